-- grain: one row per run folder that was read
{{ config(materialized='table') }}
with

loads as (
    select * from {{ source('raw', 'run_loads') }}
),

starts as (
    select * from {{ ref('stg_runs') }}
),

bring_ups as (
    select * from {{ ref('stg_bring_ups') }}
),

ends as (
    select * from {{ ref('stg_run_ends') }}
),

nodes as (
    select * from {{ ref('stg_nodes') }}
),

final as (
    select
        loads.run_id,
        loads.campaign,
        starts.run_id is not null as has_start,
        coalesce(starts.source, 'unknown') as source,
        starts.* exclude (
            record, schema_version, campaign, run_id, source, file, line,
            price
        ),
        try_cast(starts.price ->> 'usd_per_gpu_hour' as double)
            as price_usd_per_gpu_hour,
        starts.price ->> 'key' as price_key,
        starts.price ->> 'source' as price_source,
        starts.price ->> 'as_of' as price_as_of,
        bring_ups.state as bring_up_state,
        bring_ups.failure_class,
        bring_ups.failure_summary,
        bring_ups.evidence as failure_evidence,
        bring_ups.engine_version,
        bring_ups.served_model,
        bring_ups.kv_tokens,
        bring_ups.max_concurrency,
        bring_ups.prefix_caching,
        bring_ups.max_running_requests,
        bring_ups.max_model_len,
        bring_ups.weight_bytes,
        bring_ups.load_s,
        bring_ups.ready_s,
        bring_ups.is_warm_start,
        bring_ups.facts as engine_facts,
        ends.state as end_state,
        ends.ended_at,
        ends.note as end_note,
        ends.is_teardown_clean,
        nodes.facts as node_facts,
        try_cast(nodes.facts ->> 'gpus' as bigint) as node_gpus,
        nodes.facts ->> '$.gpu_names[0]' as gpu_name,
        coalesce(starts.file, loads.folder) as file,
    from loads
    left join starts using (run_id)
    left join bring_ups using (run_id)
    left join ends using (run_id)
    left join nodes using (run_id)
    where loads.refused is null
)

select * from final
