-- grain: one row per row_id
-- Everything that a screen may look at, in one place: the SQL screens and the
-- Python that checks them at publication read the same columns.
{{ config(materialized='table') }}
with

cells as (
    select * from {{ ref('int_cells') }}
),

runs as (
    select * from {{ ref('int_runs') }}
),

figures as (
    select * from {{ ref('int_row_figures') }}
),

requests as (
    select * from {{ ref('int_cell_requests') }}
),

steady as (
    select * from {{ ref('int_cell_steady') }}
),

prompts as (
    select * from {{ ref('int_cell_prompts') }}
),

windows as (
    select * from {{ ref('stg_windows') }}
),

counters as (
    select * from {{ ref('int_counter_windows') }}
),

-- Where several imported rows lie between two dumps, only the share that was
-- attributed to a row is its own; the tokens and times counted are of them all.
spans as (
    select
        run_id,
        cell_id,
    from {{ ref('int_imported_evidence') }}
    where attributed_cached_share is not null
),

own_counters as (
    select counters.*
    from counters
    anti join spans
        on
            counters.run_id = spans.run_id
            and counters.cell_id = spans.cell_id
),

probes as (
    select * from {{ ref('int_run_probes') }}
),

ceilings as (
    select * from {{ ref('int_row_ceilings') }}
),

needles as (
    select * from {{ ref('int_needles') }}
),

gates as (
    select * from {{ ref('int_row_gates') }}
),

clocks as (
    select * from {{ ref('int_cell_telemetry') }}
),

imports as (
    select * from {{ ref('int_imported_evidence') }}
),

grades as (
    select * from {{ ref('int_cell_grades') }}
),

probes_in_window as (
    select
        run_id,
        cell_id,
        count(*) as probes_in_window,
    from {{ ref('stg_probes') }}
    where phase = 'during'
    group by run_id, cell_id
),

final as (
    select
        cells.row_id,
        cells.run_id,
        cells.cell_id,
        cells.campaign,
        runs.source,
        cells.workload,
        cells.shape_kind,
        cells.has_cell_record,
        cells.window_state,
        coalesce(cells.cell_file, cells.any_file) as cell_file,
        cells.requests_file,
        windows.file as window_file,
        counters.file as counters_file,
        runs.file as run_file,
        -- needle_gate
        gates.row_context_tokens,
        gates.needle_context_tokens,
        needles.asked as needles_asked_at_context,
        needles.found as needles_found_at_context,
        needles.ungraded as needles_ungraded_at_context,
        needles.has_required_depths as has_required_needle_depths,
        needles.file as needles_file,
        needles.first_missed_line as needles_first_missed_line,
        -- cache_screen, roofline
        figures.prefill_rate_max as uncached_prefill_tokens_per_s,
        requests.instant_first_tokens,
        requests.prefill_rate_line,
        ceilings.prefill_tokens_per_s,
        ceilings.prefill_ceiling_tokens_per_s,
        ceilings.output_tokens_per_s as decode_tokens_per_s,
        ceilings.decode_ceiling_tokens_per_s,
        ceilings.decode_rate_max,
        ceilings.single_ceiling_tokens_per_s,
        -- cache_accounting
        cells.is_cold_expected,
        cells.cache_budget_min,
        cells.cache_budget_max,
        coalesce(
            case
                when requests.cached_missing = 0 and requests.prompt_missing = 0
                    then
                        requests.cached_tokens
                        / nullif(requests.prompt_tokens, 0)
            end,
            imports.cached_share
        ) as cached_share_usage,
        coalesce(
            imports.attributed_cached_share,
            own_counters.cached_prompt_tokens / nullif(
                coalesce(
                    nullif(own_counters.prefix_queries, 0),
                    own_counters.prompt_tokens
                ),
                0
            )
        ) as cached_share_counters,
        -- nonce_audit
        cells.declares_sharing,
        prompts.blocks_missing,
        coalesce(imports.prompts_repeated, prompts.blocks_repeated)
            as blocks_repeated,
        prompts.first_repeated_line,
        -- output_attainment
        cells.is_fixed_length,
        cells.planned_finish_reason,
        requests.output_tokens / nullif(requests.asked_output_tokens, 0)
            as output_attainment_ratio,
        requests.ok - requests.attainment_known as attainment_unknown,
        requests.off_length / nullif(requests.ok, 0) as off_length_share,
        case cells.planned_finish_reason
            when 'length' then requests.ok - requests.finish_length
            when 'stop' then requests.ok - requests.finish_stop
        end / nullif(requests.ok, 0) as off_finish_share,
        requests.finish_missing,
        requests.empty_answers / nullif(requests.ok, 0) as empty_answer_share,
        requests.answers_missing,
        -- token_reconciliation
        requests.output_missing,
        requests.output_counted,
        requests.chunks / nullif(requests.output_tokens, 0)
            as chunks_per_token,
        requests.chunks_not_adding_up,
        coalesce(
            imports.counted_output_ratio,
            own_counters.output_tokens / nullif(requests.all_output_tokens, 0)
        ) as counter_output_ratio,
        own_counters.prompt_tokens / nullif(requests.all_prompt_tokens, 0)
            as counter_prompt_ratio,
        own_counters.prompt_tokens / nullif(
            requests.all_prompt_tokens - requests.cached_tokens, 0
        ) as counter_uncached_prompt_ratio,
        probes_in_window.probes_in_window,
        -- population
        -- an imported file that does not say how many were asked for has none
        case
            when imports.run_id is null then cells.planned_requests
            else nullif(cells.planned_requests, 0)
        end as planned_requests,
        windows.planned as window_planned,
        coalesce(
            requests.recorded,
            figures.requests_ok + coalesce(figures.requests_failed, 0)
            + coalesce(figures.requests_cancelled, 0)
        )::bigint as requests_recorded,
        figures.requests_ok,
        figures.requests_failed,
        figures.requests_cancelled,
        figures.requests_unsent,
        cells.stop_after_s,
        (
            windows.run_id is null
            or (
                windows.ok = requests.ok
                and windows.failed = requests.failed
                and windows.cancelled = requests.cancelled
                and windows.unsent = requests.unsent
            )
        ) as is_window_count_right,
        windows.run_id is not null as has_window_record,
        -- an importer decides what was served; a file that was not streamed
        -- has no first tokens
        case when imports.run_id is null then requests.ok_with_error end
            as ok_with_error,
        requests.first_bad_line,
        requests.commonest_error,
        -- little_law
        case
            when imports.run_id is null then cells.concurrency
            else nullif(cells.concurrency, 0)
        end as concurrency,
        windows.asked_concurrency,
        windows.mean_concurrency as certified_concurrency,
        requests.busy_ns / nullif(windows.closed_ns - windows.opened_ns, 0)
            as busy_concurrency,
        case
            when
                steady.ends_ns > steady.begins_ns
                and steady.steady_requests > cells.concurrency
                then
                    steady.steady_busy_ns / (steady.ends_ns - steady.begins_ns)
            else steady.in_flight_at_last_send
        end as achieved_concurrency,
        case
            when
                cells.shape_kind in ('constant', 'poisson', 'gamma', 'trace')
                and requests.recorded > 1
                then
                    (requests.last_planned_ns - requests.first_planned_ns)
                    / nullif(
                        requests.last_sent_ns - requests.first_sent_ns, 0
                    )
            else figures.sent_rps / nullif(figures.asked_rps, 0)
        end as achieved_rate_ratio,
        figures.sent_rps / nullif(figures.asked_rps, 0) as imported_rate_ratio,
        -- client_lag
        windows.loop_lag_p99_ms,
        windows.send_delay_p99_ms,
        figures.chunk_gap_ms_p50,
        figures.ttft_ms_p50,
        requests.ttft_from_send_ms_mean,
        1000 * own_counters.ttft_sum_s / nullif(own_counters.ttft_count, 0)
            as engine_ttft_ms_mean,
        -- clock_sanity
        coalesce(requests.disordered, imports.disordered) as disordered,
        requests.negative_gaps,
        requests.gaps_not_adding_up,
        windows.drift_ms_per_min,
        -- steady_state
        steady.steady_requests,
        (steady.ends_ns - steady.begins_ns) / 1e6
        / nullif(requests.e2e_ms_p50, 0) as steady_latencies,
        steady.steady_tokens
        / nullif((steady.ends_ns - steady.begins_ns) / 1e9, 0)
        / nullif(figures.output_tokens_per_s, 0) - 1 as ramp_effect,
        steady.steady_tokens
        / nullif((steady.ends_ns - steady.begins_ns) / 1e9, 0)
            as steady_output_tokens_per_s,
        steady.first_half_tokens / nullif(
            steady.steady_tokens - steady.first_half_tokens, 0
        ) - 1
            as half_difference,
        steady.trend_correlation * sqrt(
            greatest(steady.steady_requests - 2, 0)
            / nullif(1 - pow(steady.trend_correlation, 2), 0)
        ) as trend_t,
        steady.trend_slope * (steady.ends_ns - steady.begins_ns)
        / nullif(steady.trend_mean, 0) as trend_drift,
        -- sample_size
        figures.e2e_count,
        1.96 * figures.e2e_ms_stddev
        / nullif(sqrt(figures.e2e_count) * figures.e2e_ms_mean, 0)
            as e2e_interval_share,
        -- stream_granularity
        coalesce(figures.tokens_per_chunk, imports.tokens_per_chunk)
            as tokens_per_chunk,
        coalesce(figures.coalesced_share, imports.coalesced_share)
            as coalesced_share,
        -- without chunks nothing is known of how an answer arrived
        case
            when imports.run_id is null or requests.chunks > 0
                then requests.long_answers
        end as long_answers,
        case
            when imports.run_id is null or requests.chunks > 0
                then requests.burst_answers / nullif(requests.long_answers, 0)
        end
            as burst_share,
        coalesce({{
            nested('recipe_settings', 'speculation.draft_tokens', 'runs')
        }}, 0) as draft_tokens,
        -- server_health
        own_counters.has_both_edges,
        own_counters.has_restarted,
        own_counters.is_restart_observed,
        own_counters.preemptions / nullif(figures.requests_ok, 0)
            as preemptions_per_request,
        probes.probes_before,
        probes.probes_after,
        probes.kinds_before,
        probes.kinds_compared,
        probes.worst_share_lost as probe_share_lost,
        probes.first_failed_why as probe_failed_why,
        probes.after_file as probes_file,
        probes.first_failed_line as probes_failed_line,
        case
            when steady.later_requests >= 2 * cells.concurrency
                then steady.first_wave_ms_p50 / nullif(steady.later_ms_p50, 0)
        end
            as first_wave_ratio,
        own_counters.kv_usage_max,
        own_counters.requests_waiting_max,
        -- declared_config
        runs.engine_version,
        {{ nested('recipe_settings', 'prefix_caching', 'runs') }}
            as declared_prefix_caching,
        runs.prefix_caching as observed_prefix_caching,
        {{ nested('recipe_settings', 'max_running_requests', 'runs') }}
            as declared_max_running_requests,
        runs.max_running_requests as observed_max_running_requests,
        runs.claimed_precision,
        runs.model_facts ->> 'precision_true' as true_precision,
        {{ nested('model_facts', 'is_precision_label_true', 'runs') }}
            as is_precision_label_true,
        runs.engine_facts ->> 'kernel_precision' as kernel_precision,
        runs.gpus,
        runs.node_gpus,
        clocks.throttled_share,
        clocks.throttle_reasons,
        clocks.telemetry_samples,
        {{ nested('params', 'thinking', 'cells') }} as declared_thinking,
        requests.reasoned / nullif(requests.ok, 0) as reasoned_share,
        coalesce(
            cells.params ->> 'dataset_name', cells.params ->> 'dataset'
        ) as prompt_dataset,
        own_counters.drafts,
        cells.asked_prompt_tokens as cell_asked_prompt_tokens,
        case
            when requests.asked_prompt_tokens > 0
                then
                    requests.prompt_tokens_where_asked
                    - requests.asked_prompt_tokens
            else
                (figures.prompt_tokens_mean - cells.asked_prompt_tokens)
                * figures.requests_ok
        end / nullif(figures.requests_ok, 0) as prompt_tokens_off_mean,
        coalesce(
            requests.asked_prompt_tokens / nullif(requests.ok, 0),
            cells.asked_prompt_tokens
        ) as asked_prompt_tokens_mean,
        imports.is_mock as is_imported_mock,
        grades.graded,
        grades.correct,
        grades.correct_lenient,
    from cells
    left join runs on cells.run_id = runs.run_id
    left join figures on cells.row_id = figures.row_id
    left join requests
        on cells.run_id = requests.run_id and cells.cell_id = requests.cell_id
    left join steady
        on cells.run_id = steady.run_id and cells.cell_id = steady.cell_id
    left join prompts
        on cells.run_id = prompts.run_id and cells.cell_id = prompts.cell_id
    left join windows
        on cells.run_id = windows.run_id and cells.cell_id = windows.cell_id
    left join counters
        on cells.run_id = counters.run_id and cells.cell_id = counters.cell_id
    left join own_counters
        on
            cells.run_id = own_counters.run_id
            and cells.cell_id = own_counters.cell_id
    left join probes on cells.run_id = probes.run_id
    left join ceilings on cells.row_id = ceilings.row_id
    left join gates on cells.row_id = gates.row_id
    left join needles
        on
            gates.run_id = needles.run_id
            and gates.needle_context_tokens = needles.context_tokens
    left join clocks
        on cells.run_id = clocks.run_id and cells.cell_id = clocks.cell_id
    left join imports
        on cells.run_id = imports.run_id and cells.cell_id = imports.cell_id
    left join grades
        on cells.run_id = grades.run_id and cells.cell_id = grades.cell_id
    left join probes_in_window
        on
            cells.run_id = probes_in_window.run_id
            and cells.cell_id = probes_in_window.cell_id
)

select * from final
