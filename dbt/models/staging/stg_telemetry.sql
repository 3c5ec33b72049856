-- written by python -m contracts.generate from contracts/records.py
-- grain: one row per sample of one GPU
select
    record,
    schema_version,
    campaign,
    run_id,
    cell_id,
    at_ns,
    gpu,
    power_w,
    sm_clock_mhz,
    mem_clock_mhz,
    temperature_c,
    utilization_pct,
    memory_used_mb,
    throttle_reasons,
    energy_mj,
    file,
    line,
from {{ source('raw', 'telemetry') }}
