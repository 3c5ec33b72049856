-- grain: one row per interference_id: a turn of a conversation that shares the
-- server with others, beside the same turn alone; or a published pair
with

turns as (
    select
        ramp_turns.*,
        configurations.configuration_id,
        standing_order.badness,
    from {{ ref('ramp_turns') }} as ramp_turns
    inner join {{ ref('int_configurations') }} as configurations
        on ramp_turns.run_id = configurations.run_id
    inner join {{ ref('standing_order') }} as standing_order
        on ramp_turns.standing = standing_order.standing
),

alone as (
    select
        configuration_id,
        workload,
        variant,
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
        variant,
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
        arg_min(others_prefill_share, decode_tokens_per_s)
            as others_prefill_share,
    from turns
    where users > 1
    group by all
),

final as (
    select
        shared.row_id || '/' || shared.turn as interference_id,
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
        shared.users,
        shared.context_tokens,
        shared.turn,
        shared.is_last_turn,
        alone.decode_tokens_per_s as decode_tokens_per_s_alone,
        shared.decode_tokens_per_s_slowest,
        shared.decode_tokens_per_s_median,
        alone.decode_tokens_per_s
        / nullif(shared.decode_tokens_per_s_slowest, 0) as decode_slowdown,
        alone.ttft_ms as ttft_ms_alone,
        shared.ttft_ms_slowest,
        shared.ttft_ms_slowest / nullif(alone.ttft_ms, 0) as ttft_slowdown,
        shared.others_prefill_share,
        case
            when alone.badness > shared.badness then alone.standing
            else shared.standing
        end as standing,
    from shared
    left join alone
        on
            shared.configuration_id = alone.configuration_id
            and shared.workload = alone.workload
            and shared.variant = alone.variant
            and (shared.context_tokens is not distinct from alone.context_tokens)
            and shared.turn = alone.turn
    union all by name
    select
        figures.claim_id as interference_id,
        'published' as source,
        figures.subject,
        figures.engine,
        figures.layout,
        figures.gpus,
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
