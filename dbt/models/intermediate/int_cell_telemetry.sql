-- grain: one row per run_id and cell_id
-- Reasons that slow a GPU down although it has work: power and heat. Idle and
-- the clocks that its user set are not among them.
with

telemetry as (
    select * from {{ ref('stg_telemetry') }}
),

samples as (
    select
        run_id,
        cell_id,
        throttle_reasons is not null as is_known,
        list_filter(
            throttle_reasons::varchar[],
            lambda r: not regexp_matches(r, 'idle|application|none|user', 'i')
        ) as slowing,
    from telemetry
),

final as (
    select
        run_id,
        cell_id,
        count(*) as telemetry_samples,
        count(*) filter (where is_known and len(slowing) > 0)
        / nullif(count(*) filter (where is_known), 0) as throttled_share,
        array_to_string(list_distinct(flatten(list(slowing))), ', ')
            as throttle_reasons,
    from samples
    group by run_id, cell_id
)

select * from final
