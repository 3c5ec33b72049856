-- why: two hours of clean load and one HTTP 500 afterwards is no handoff
select
    soak_id,
    verdict,
from {{ ref('soak_verdicts') }}
where
    verdict = 'handoff'
    and source != 'published'
    and (
        coalesce(before_probes, 0) = 0
        or coalesce(after_probes, 0) = 0
        or before_probes_passed < before_probes
        or after_probes_passed < after_probes
        or standing = 'invalid'
    )
