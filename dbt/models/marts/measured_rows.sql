-- grain: one row per row_id, which is run_id/cell_id
-- A percentile is shown from as many requests on as LoadGen's floors ask for.
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

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

verdicts as (
    select * from {{ ref('int_verdicts') }}
),

grades as (
    select * from {{ ref('int_cell_grades') }}
),

quarantined as (
    select
        run_id,
        cell_id,
        count(*) as quarantined_lines,
    from {{ ref('stg_quarantine') }}
    where cell_id is not null
    group by run_id, cell_id
),

{% set p90 = threshold('sample_size', 'min_p90') %}
{% set p99 = threshold('sample_size', 'min_p99') %}
{% set p50 = threshold('sample_size', 'min_p50') %}
{% set granular = "evidence.tokens_per_chunk <= "
    ~ threshold('stream_granularity', 'max_tokens_per_chunk')
    ~ " and evidence.tokens_per_chunk >= 0.99"
    ~ " and coalesce(evidence.coalesced_share, 0) <= "
    ~ threshold('stream_granularity', 'max_coalesced_share') %}

final as (
    select
        cells.row_id,
        coalesce(runs.source, 'unknown') as source,
        cells.campaign,
        cells.run_id,
        cells.cell_id,
        runs.recipe,
        runs.engine,
        runs.engine_version,
        runs.model,
        runs.layout,
        runs.gpus::bigint as gpus,
        runs.gpu_name,
        cells.workload,
        cells.variant,
        cells.concurrency::bigint as concurrency,
        cells.context_tokens,
        cells.repeat::bigint as repeat,
        cells.attempt::bigint as attempt,
        cells.users::bigint as users,
        cells.asked_prompt_tokens,
        cells.asked_output_tokens,
        figures.window_s,
        cells.planned_requests as requests_planned,
        figures.requests_ok,
        figures.requests_failed,
        figures.requests_cancelled,
        figures.requests_unsent,
        figures.prompt_tokens,
        figures.cached_tokens,
        figures.output_tokens,
        figures.output_tokens_per_s,
        figures.total_tokens_per_s,
        figures.requests_per_s,
        evidence.steady_output_tokens_per_s,
        {% for latency in ['ttft_ms', 'tpot_ms', 'e2e_ms'] -%}
            {% set count = 'figures.' ~ latency[:-3] ~ '_count' -%}
            case
                when {{ count }} >= {{ p50 }}
                    then figures.{{ latency }}_p50
            end as {{ latency }}_p50,
            case
                when {{ count }} >= {{ p90 }}
                    then figures.{{ latency }}_p90
            end as {{ latency }}_p90,
            case
                when {{ count }} >= {{ p99 }}
                    then figures.{{ latency }}_p99
            end as {{ latency }}_p99,
        {% endfor -%}
        figures.ttft_ms_mean,
        figures.e2e_ms_mean,
        case
            when {{ granular }} and figures.gap_count >= {{ p50 }}
                then figures.chunk_gap_ms_p50
        end as itl_ms_p50,
        case
            when {{ granular }} and figures.gap_count >= {{ p99 }}
                then figures.chunk_gap_ms_p99
        end as itl_ms_p99,
        figures.chunk_gap_ms_p50,
        figures.tokens_per_chunk,
        figures.prefill_rate_max as uncached_prefill_tokens_per_s,
        figures.decode_rate_p50 as decode_tokens_per_s,
        figures.mean_concurrency,
        grades.needles_found,
        grades.needles_asked,
        case
            when cells.workload = 'chat_quality' or grades.needles_asked = 0
                then grades.correct
        end as quality_correct,
        case
            when cells.workload = 'chat_quality' or grades.needles_asked = 0
                then grades.asked
        end as quality_asked,
        coalesce(
            evidence.requests_waiting_max > 0 and evidence.kv_usage_max < 0.5,
            false
        ) as is_slot_limited,
        {% for screen in [
            'needle_gate', 'cache_screen', 'roofline', 'cache_accounting',
            'nonce_audit', 'output_attainment', 'token_reconciliation',
            'population', 'little_law', 'client_lag', 'clock_sanity',
            'steady_state', 'sample_size', 'stream_granularity',
            'server_health', 'declared_config'
        ] -%}
            verdicts.{{ screen }},
        {% endfor -%}
        verdicts.policy,
        verdicts.standing,
        verdicts.standing_original,
        verdicts.standing_strict,
        verdicts.standing_reason,
        coalesce(quarantined.quarantined_lines, 0) as quarantined_lines,
        cells.window_state,
        try_cast(cells.opened_at as timestamp) as opened_at,
        coalesce(cells.requests_file, cells.any_file) as raw_file,
        cells.requests_sha256 as raw_sha256,
        cells.requests_lines as raw_lines,
    from cells
    left join runs on cells.run_id = runs.run_id
    left join figures on cells.row_id = figures.row_id
    left join evidence on cells.row_id = evidence.row_id
    left join verdicts on cells.row_id = verdicts.row_id
    left join grades
        on cells.run_id = grades.run_id and cells.cell_id = grades.cell_id
    left join quarantined
        on
            cells.run_id = quarantined.run_id
            and cells.cell_id = quarantined.cell_id
)

select * from final
