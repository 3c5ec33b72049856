-- grain: one row per raw line of a probe (raw_file, raw_line)
with

probes as (
    select * from {{ ref('stg_probes') }}
),

runs as (
    select * from {{ ref('stg_runs') }}
),

final as (
    select
        runs.source,
        probes.campaign,
        probes.run_id,
        runs.recipe,
        runs.engine,
        runs.model,
        probes.probe_id,
        probes.phase,
        probes.kind,
        probes.cell_id,
        probes.is_passed,
        probes.why,
        probes.http_status,
        probes.latency_ms,
        probes.sent_at,
        probes.file as raw_file,
        probes.line as raw_line,
    from probes
    inner join runs on probes.run_id = runs.run_id
)

select * from final
