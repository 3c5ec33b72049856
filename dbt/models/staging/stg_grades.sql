-- written by python -m contracts.generate from contracts/records.py
-- grain: one row per graded answer and grader
select
    record,
    schema_version,
    campaign,
    run_id,
    cell_id,
    request_id,
    grader,
    is_correct,
    is_correct_lenient,
    expected,
    found,
    why,
    depth_pct,
    turn,
    "user",
    file,
    line,
from {{ source('raw', 'grade') }}
