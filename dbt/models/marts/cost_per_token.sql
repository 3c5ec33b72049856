-- grain: one row per row_id that has a price and tokens
-- Cost = price x GPUs x hours / tokens. Input and output are counted apart,
-- each bearing the whole cost: their sum is no price. With load time: the start
-- of the server is spread over the run's windows by their length.
with

measured as (
    select * from {{ ref('measured_rows') }}
),

runs as (
    select * from {{ ref('runs') }}
),

windows as (
    select
        run_id,
        sum(window_s) as run_window_s,
    from measured
    group by run_id
),

priced as (
    select
        measured.*,
        runs.price_usd_per_gpu_hour,
        runs.price_source,
        runs.price_as_of,
        runs.ready_s,
        runs.price_usd_per_gpu_hour * measured.gpus * measured.window_s / 3600
            as window_cost_usd,
        runs.price_usd_per_gpu_hour * measured.gpus * (
            measured.window_s
            + runs.ready_s * measured.window_s
            / nullif(windows.run_window_s, 0)
        ) / 3600 as loaded_cost_usd,
    from measured
    inner join runs on measured.run_id = runs.run_id
    inner join windows on measured.run_id = windows.run_id
    -- a price without a source and a date prices nothing
    where
        runs.price_usd_per_gpu_hour is not null
        and runs.price_source is not null
        and runs.price_as_of is not null
        and measured.standing != 'invalid'
),

final as (
    select
        row_id,
        source,
        campaign,
        run_id,
        recipe,
        model,
        gpus,
        workload,
        concurrency,
        context_tokens,
        price_usd_per_gpu_hour,
        price_source,
        price_as_of,
        window_s,
        ready_s,
        prompt_tokens,
        output_tokens,
        window_cost_usd as cost_usd,
        1e6 * window_cost_usd / nullif(prompt_tokens, 0)
            as input_cost_usd_per_mtok,
        1e6 * window_cost_usd / nullif(output_tokens, 0)
            as output_cost_usd_per_mtok,
        1e6 * window_cost_usd / nullif(prompt_tokens + output_tokens, 0)
            as total_cost_usd_per_mtok,
        1e6 * loaded_cost_usd / nullif(prompt_tokens, 0)
            as input_cost_with_load_usd_per_mtok,
        1e6 * loaded_cost_usd / nullif(output_tokens, 0)
            as output_cost_with_load_usd_per_mtok,
        1e6 * loaded_cost_usd / nullif(prompt_tokens + output_tokens, 0)
            as total_cost_with_load_usd_per_mtok,
        standing,
    from priced
)

select * from final
