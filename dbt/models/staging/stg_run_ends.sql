-- written by python -m contracts.generate from contracts/records.py
-- grain: one row per run whose end was recorded
select
    record,
    schema_version,
    campaign,
    run_id,
    state,
    try_cast(ended_at as timestamp) as ended_at,
    note,
    is_teardown_clean,
    teardown_note,
    log_tail,
    file,
    line,
from {{ source('raw', 'run_end') }}
