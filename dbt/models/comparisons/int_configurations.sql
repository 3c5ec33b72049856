-- grain: one row per run_id
-- A configuration is everything that a repeat keeps: runs that share it are
-- repeats of each other, each with a server start of its own.
-- A table: most marts read it, and settings are parsed once.
{{ config(materialized='table') }}
with

run_starts as (
    select * from {{ ref('stg_runs') }}
),

bring_ups as (
    select * from {{ ref('stg_bring_ups') }}
),

described as (
    select
        run_starts.run_id,
        run_starts.campaign,
        run_starts.source,
        run_starts.recipe,
        run_starts.model,
        run_starts.engine,
        run_starts.layout,
        run_starts.gpus,
        run_starts.node_id,
        run_starts.started_at,
        bring_ups.kv_tokens,
        bring_ups.max_model_len,
        bring_ups.is_warm_start,
        -- another client times differently: never put beside this one
        coalesce(
            run_starts.importer::json ->> '$.tool',
            'weighbridge'
        ) as client,
        map_concat(
            run_starts.recipe_settings::json::map (varchar, json),
            map {
                'engine version': to_json(bring_ups.engine_version),
                'prefix caching in effect': to_json(bring_ups.prefix_caching),
                'running requests in effect': to_json(
                    bring_ups.max_running_requests
                ),
                'weighbridge version': to_json(run_starts.weighbridge_version)
            }
        ) as settings,
    from run_starts
    left join bring_ups on run_starts.run_id = bring_ups.run_id
),

final as (
    select
        *,
        md5(
            concat_ws(
                '|',
                campaign,
                recipe,
                model,
                engine,
                layout,
                gpus,
                source,
                node_id,
                client,
                settings::varchar
            )
        ) as configuration_id,
    from described
)

select * from final
