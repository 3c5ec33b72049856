-- written by python -m contracts.generate from contracts/records.py
-- grain: one row per run_id and cell_id of an imported run
select
    record,
    schema_version,
    campaign,
    run_id,
    cell_id,
    tool,
    tool_version,
    source_file,
    source_sha256,
    row_in_file,
    headline,
    recomputed,
    differences,
    has_requests,
    has_instants,
    evidence,
    missing,
    notes,
    file,
    line,
from {{ source('raw', 'imported_result') }}
