-- why: a published number without its raw file, lines and hash is hearsay
select gated.row_id
from {{ ref('gated_rows') }} as gated
left join {{ ref('evidence_lines') }} as evidence
    on
        gated.row_id = evidence.row_id
        and evidence.kind in ('request', 'imported_result')
        and evidence.sha256 is not null
        and evidence.last_raw_line >= evidence.first_raw_line
where evidence.row_id is null
