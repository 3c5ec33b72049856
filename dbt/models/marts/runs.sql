-- grain: one row per run_id
with

runs as (
    select * from {{ ref('int_runs') }}
),

cells as (
    select
        run_id,
        count(*) as cells,
    from {{ ref('int_cells') }}
    group by run_id
),

final as (
    select
        runs.run_id,
        runs.campaign,
        runs.source,
        runs.recipe,
        case
            when not runs.has_start then 'unreadable'
            when runs.bring_up_state = 'failed' then 'failed'
            else coalesce(runs.end_state, 'unfinished')
        end as state,
        case
            when runs.bring_up_state = 'failed'
                then
                    coalesce(runs.failure_class, 'unknown')
        end as failure_class,
        runs.failure_summary,
        runs.failure_evidence::varchar as failure_evidence,
        runs.engine,
        runs.engine_version,
        runs.model,
        runs.layout,
        runs.gpus::bigint as gpus,
        runs.gpu_name,
        runs.node_id,
        runs.claimed_precision,
        runs.claimed_context_tokens,
        runs.policy,
        runs.rescues,
        runs.rescue_change::varchar as rescue_change,
        runs.rescue_attempt::bigint as rescue_attempt,
        runs.reproduces_run_id,
        runs.resumes_run_id,
        runs.execution_id,
        runs.kv_tokens,
        runs.max_concurrency,
        runs.prefix_caching as is_prefix_caching,
        runs.max_running_requests,
        runs.max_model_len as max_model_len_tokens,
        runs.weight_bytes,
        runs.load_s,
        runs.ready_s,
        runs.is_warm_start,
        runs.is_teardown_clean,
        runs.price_usd_per_gpu_hour,
        runs.price_source,
        runs.price_as_of,
        coalesce(cells.cells, 0)::bigint as cells,
        runs.started_at,
        runs.ended_at,
        runs.file as raw_file,
    from runs
    left join cells on runs.run_id = cells.run_id
)

select * from final
