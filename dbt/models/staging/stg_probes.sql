-- written by python -m contracts.generate from contracts/records.py
-- grain: one row per probe
select
    record,
    schema_version,
    campaign,
    run_id,
    probe_id,
    phase,
    kind,
    cell_id,
    is_passed,
    why,
    http_status,
    latency_ms,
    try_cast(sent_at as timestamp) as sent_at,
    output_text,
    tool_calls,
    file,
    line,
from {{ source('raw', 'probe') }}
