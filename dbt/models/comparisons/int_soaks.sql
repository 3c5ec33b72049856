-- grain: one row per soak: run_id, variant and concurrency
with

rows_measured as (
    select
        rows_measured.*,
        standing_order.badness,
        windows.ok,
        windows.failed,
        windows.file,
        windows.line,
    from {{ ref('measured_rows') }} as rows_measured
    inner join {{ ref('standing_order') }} as standing_order
        on rows_measured.standing = standing_order.standing
    left join {{ ref('stg_windows') }} as windows
        on
            rows_measured.run_id = windows.run_id
            and rows_measured.cell_id = windows.cell_id
    where rows_measured.workload = 'soak'
),

minutes as (
    select
        run_id,
        variant,
        concurrency,
        count(*) as minutes,
        -- change over an hour as a share of the mean, by least squares; of
        -- fewer than two points the slope would be NaN
        case
            when count(output_tokens_per_s) >= 2
                then
                    60 * regr_slope(output_tokens_per_s, soak_minute)
                    / nullif(avg(output_tokens_per_s), 0)
        end as output_drift_share_per_hour,
        case
            when count(ttft_ms_p50) >= 2
                then
                    60 * regr_slope(ttft_ms_p50, soak_minute)
                    / nullif(avg(ttft_ms_p50), 0)
        end as ttft_drift_share_per_hour,
        max(failed) as worst_minute_failed,
    from {{ ref('int_soak_minutes') }}
    group by run_id, variant, concurrency
),

memory as (
    select
        cells.run_id,
        cells.variant,
        cells.concurrency,
        case
            when
                count(distinct counters.at_ns) filter (
                    where counters.server_rss_mb is not null
                ) >= 2
                then
                    regr_slope(counters.server_rss_mb, counters.at_ns / 3.6e12)
        end as server_memory_drift_mb_per_hour,
    from {{ ref('stg_counters') }} as counters
    inner join {{ ref('stg_cells') }} as cells
        on
            counters.run_id = cells.run_id
            and counters.cell_id = cells.cell_id
    where cells.workload = 'soak'
    group by cells.run_id, cells.variant, cells.concurrency
),

probes as (
    select
        run_id,
        count(*) filter (where phase = 'before') as before_probes,
        count(*) filter (where phase = 'before' and is_passed)
            as before_probes_passed,
        count(*) filter (where phase = 'during') as during_probes,
        count(*) filter (where phase = 'during' and is_passed)
            as during_probes_passed,
        count(*) filter (where phase = 'after') as after_probes,
        count(*) filter (where phase = 'after' and is_passed)
            as after_probes_passed,
        string_agg(
            phase || ' ' || kind || ': ' || why, '; '
            order by phase, kind, why
        ) filter (where not is_passed) as probes_failed,
    from {{ ref('stg_probes') }}
    group by run_id
),

soaks as (
    select
        run_id,
        variant,
        concurrency,
        any_value(source) as source,
        any_value(campaign) as campaign,
        any_value(recipe) as recipe,
        any_value(engine) as engine,
        any_value(model) as model,
        any_value(layout) as layout,
        any_value(gpus) as gpus,
        any_value(context_tokens) as context_tokens,
        any_value(asked_prompt_tokens) as asked_prompt_tokens,
        any_value(asked_output_tokens) as asked_output_tokens,
        sum(window_s) / 3600 as hours,
        sum(ok)::bigint as completed_requests,
        sum(failed)::bigint as failed_requests,
        sum(output_tokens_per_s * window_s) / nullif(sum(window_s), 0)
            as output_tokens_per_s,
        arg_max(standing, badness) as standing,
        bool_or(standing = 'invalid') as is_any_invalid,
        bool_or(population = 'fail') as is_population_failed,
        bool_or(server_health = 'fail') as is_health_failed,
        list(row_id order by row_id) as row_ids,
        min(file) as raw_file,
        min(line) as raw_line,
    from rows_measured
    group by run_id, variant, concurrency
),

final as (
    select
        soaks.*,
        minutes.* exclude (run_id, variant, concurrency),
        memory.server_memory_drift_mb_per_hour,
        probes.* exclude (run_id),
    from soaks
    left join minutes using (run_id, variant, concurrency)
    left join memory using (run_id, variant, concurrency)
    left join probes using (run_id)
)

select * from final
