-- grain: one row per file of a run folder
select
    file,
    campaign,
    run_id,
    path,
    kind,
    cell_id,
    state,
    reason,
    sealed_lines,
    staged_lines,
    quarantined_lines,
    bytes,
    sha256,
    sealed_sha256,
    try_cast(landed_at as timestamp) as landed_at,
from {{ source('raw', 'files') }}
