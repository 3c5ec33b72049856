-- written by python -m contracts.generate from contracts/records.py
-- grain: one row per run whose node facts were readable
select
    record,
    schema_version,
    campaign,
    run_id,
    node_id,
    try_cast(read_at as timestamp) as read_at,
    facts,
    file,
    line,
from {{ source('raw', 'node') }}
