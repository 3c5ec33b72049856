-- grain: one row per refused raw line
select
    campaign,
    run_id,
    cell_id,
    kind,
    file,
    line,
    reason,
    detail,
from {{ source('raw', 'quarantine') }}
