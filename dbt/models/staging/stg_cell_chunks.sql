-- grain: one row per run_id and cell_id
select
    run_id,
    cell_id,
    gap_count,
    gap_mean_ms,
    gap_zero_count,
    gap_p50_ms,
    gap_p90_ms,
    gap_p99_ms,
from {{ source('raw', 'cell_chunks') }}
