-- grain: one row per interference_id: an answer that shares the server with
-- other users, beside the same answer alone; or a published pair
with

requests as (
    select * from {{ ref('int_user_requests') }}
),

rows_measured as (
    select * from {{ ref('measured_rows') }}
    where workload in ('conversation_ramp', 'interference')
),

turns as (
    select
        rows_measured.row_id,
        rows_measured.source,
        rows_measured.campaign,
        rows_measured.run_id,
        rows_measured.recipe,
        rows_measured.engine,
        rows_measured.model,
        rows_measured.layout,
        rows_measured.gpus,
        rows_measured.workload,
        rows_measured.context_tokens,
        rows_measured.repeat,
        rows_measured.users,
        rows_measured.standing,
        requests.turn,
        requests.is_last_turn,
        requests.decode_tokens_per_s,
        requests.decode_tokens_per_s_during_prefill,
        requests.ttft_ns / 1e6 as ttft_ms,
        configurations.configuration_id,
        standing_order.badness,
        -- alone and beside are two variants of one thing
        case
            when rows_measured.workload = 'interference'
                then
                    regexp_replace(
                        rows_measured.variant, '(^|/)(alone|beside)$', ''
                    )
            else rows_measured.variant
        end as plan,
    from requests
    inner join rows_measured
        on
            requests.run_id = rows_measured.run_id
            and requests.cell_id = rows_measured.cell_id
    inner join {{ ref('int_configurations') }} as configurations
        on requests.run_id = configurations.run_id
    inner join {{ ref('standing_order') }} as standing_order
        on rows_measured.standing = standing_order.standing
    -- of an interference the writer is watched: user 0
    where rows_measured.workload = 'conversation_ramp' or requests.user = 0
),

alone as (
    select
        configuration_id,
        workload,
        plan,
        context_tokens,
        turn,
        avg(decode_tokens_per_s) as decode_tokens_per_s,
        avg(ttft_ms) as ttft_ms,
        list(distinct row_id order by row_id) as row_ids,
        arg_max(standing, badness) as standing,
        max(badness) as badness,
    from turns
    where users = 1
    group by all
),

shared as (
    select
        row_id,
        source,
        campaign,
        configuration_id,
        run_id,
        recipe,
        engine,
        model,
        layout,
        gpus,
        workload,
        plan,
        context_tokens,
        repeat,
        users,
        turn,
        is_last_turn,
        standing,
        badness,
        min(decode_tokens_per_s) as decode_tokens_per_s_slowest,
        median(decode_tokens_per_s) as decode_tokens_per_s_median,
        max(ttft_ms) as ttft_ms_slowest,
        arg_min(decode_tokens_per_s_during_prefill, decode_tokens_per_s)
            as decode_tokens_per_s_during_prefill,
    from turns
    where users > 1
    group by all
),

final as (
    select
        shared.row_id || coalesce('/' || shared.turn, '') as interference_id,
        shared.source,
        shared.campaign,
        shared.run_id,
        shared.row_id,
        alone.row_ids as alone_row_ids,
        shared.recipe as subject,
        shared.model,
        shared.engine,
        shared.layout,
        shared.gpus,
        shared.workload,
        shared.users,
        shared.context_tokens,
        shared.turn,
        shared.is_last_turn,
        alone.decode_tokens_per_s as decode_tokens_per_s_alone,
        shared.decode_tokens_per_s_slowest,
        shared.decode_tokens_per_s_median,
        alone.decode_tokens_per_s
        / nullif(shared.decode_tokens_per_s_slowest, 0) as decode_slowdown,
        shared.decode_tokens_per_s_during_prefill,
        alone.decode_tokens_per_s
        / nullif(shared.decode_tokens_per_s_during_prefill, 0)
            as decode_slowdown_during_prefill,
        alone.ttft_ms as ttft_ms_alone,
        shared.ttft_ms_slowest,
        shared.ttft_ms_slowest / nullif(alone.ttft_ms, 0) as ttft_slowdown,
        case
            when alone.badness > shared.badness then alone.standing
            else shared.standing
        end as standing,
    from shared
    left join alone
        on
            shared.configuration_id = alone.configuration_id
            and shared.workload = alone.workload
            and shared.plan = alone.plan
            and (
                shared.context_tokens is not distinct from alone.context_tokens
            )
            and (shared.turn is not distinct from alone.turn)
    union all by name
    select
        figures.claim_id as interference_id,
        'published' as source,
        figures.subject,
        figures.engine,
        figures.layout,
        figures.gpus,
        figures.workload,
        figures.concurrency as users,
        figures.context_tokens,
        pairs.compared_figure as decode_tokens_per_s_alone,
        figures.figure as decode_tokens_per_s_slowest,
        pairs.comparison as decode_slowdown,
        pairs.comparison_standing as standing,
    from {{ ref('int_published_comparisons') }} as pairs
    inner join {{ ref('int_published_figures') }} as figures
        on pairs.claim_id = figures.claim_id
    where pairs.comparison_kind = 'slowdown' and figures.metric = 'decode_rate'
)

select * from final
