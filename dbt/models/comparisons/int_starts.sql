-- grain: one row per run_id that came up
with

bring_ups as (
    select * from {{ ref('stg_bring_ups') }}
    where state = 'served'
),

configurations as (
    select * from {{ ref('int_configurations') }}
),

first_requests as (
    select
        run_id,
        min(ttft_ms_mean) as ttft_ms,
    from {{ ref('measured_rows') }}
    where workload = 'cold_start' and standing != 'invalid'
    group by run_id
),

final as (
    select
        configurations.configuration_id,
        configurations.campaign,
        configurations.source,
        configurations.recipe,
        configurations.engine,
        configurations.model,
        configurations.layout,
        configurations.gpus,
        bring_ups.run_id,
        case bring_ups.is_warm_start
            when true then 'warm'
            when false then 'cold'
            else 'unknown'
        end as kind,
        bring_ups.ready_s,
        try_cast(bring_ups.phases_s ->> 'process' as double) as process_s,
        try_cast(bring_ups.phases_s ->> 'weights' as double) as weights_s,
        try_cast(bring_ups.phases_s ->> 'compile' as double) as compile_s,
        try_cast(bring_ups.phases_s ->> 'graph_capture' as double)
            as graph_capture_s,
        try_cast(bring_ups.phases_s ->> 'kv' as double) as kv_s,
        first_requests.ttft_ms as first_request_ttft_ms,
        bring_ups.file as raw_file,
        bring_ups.line as raw_line,
    from bring_ups
    inner join configurations on bring_ups.run_id = configurations.run_id
    left join first_requests on bring_ups.run_id = first_requests.run_id
)

select * from final
