-- grain: one row per table_id: a configuration that was tried on a long
-- context, or a subject of the published table; every cell with its standing
with

configurations as (
    select
        configuration_id,
        source,
        campaign,
        recipe,
        model,
        engine,
        layout,
        gpus,
        max(max_model_len) as configured_tokens,
    from {{ ref('int_configurations') }}
    group by all
),

long_rows as (
    select * from {{ ref('int_long_rows') }}
),

costs as (
    select * from {{ ref('cost_per_token') }}
),

scores as (
    select
        configurations.configuration_id,
        sum(scores.correct)::bigint as correct,
        sum(scores.graded)::bigint as graded,
        arg_max(scores.standing, standing_order.badness) as standing,
        list(scores.row_id order by scores.row_id) as row_ids,
    from {{ ref('quality_scores') }} as scores
    inner join {{ ref('int_configurations') }} as configurations
        on scores.run_id = configurations.run_id
    inner join {{ ref('standing_order') }} as standing_order
        on scores.standing = standing_order.standing
    where scores.workload = 'chat_quality'
    group by configurations.configuration_id
),

cells as (
    select
        long_rows.configuration_id,
        max(long_rows.context_tokens) as context_tokens,
        max(
            case
                when long_rows.workload = 'conversation_ramp'
                    then long_rows.last_turn_prompt_tokens
                when long_rows.ttft_ms_mean is not null
                    then long_rows.context_tokens
            end
        ) as capacity_tokens,
        {%- set fresh = "long_rows.workload = 'fresh_document'" %}
        (sum(long_rows.correct) filter (where {{ fresh }}))::bigint
            as fresh_found,
        (sum(long_rows.asked) filter (where {{ fresh }}))::bigint
            as fresh_asked,
        avg(long_rows.ttft_ms_mean) filter (where {{ fresh }})
            as fresh_ttft_ms,
        arg_max(long_rows.standing, long_rows.badness) filter (
            where {{ fresh }}
        ) as fresh_standing,
        {%- for users in [1, 2] %}
            {%- set ramp = "long_rows.workload = 'conversation_ramp' and "
                ~ "long_rows.users = " ~ users %}
            (sum(long_rows.correct) filter (where {{ ramp }}))::bigint
                as ramp_{{ users }}_recalled,
            (sum(long_rows.asked) filter (where {{ ramp }}))::bigint
                as ramp_{{ users }}_asked,
            arg_max(long_rows.standing, long_rows.badness) filter (
                where {{ ramp }}
            ) as ramp_{{ users }}_standing,
            avg(long_rows.last_turn_ttft_ms) filter (where {{ ramp }})
                as last_turn_{{ users }}_ttft_ms,
            avg(long_rows.last_turn_decode_tokens_per_s) filter (
                where {{ ramp }}
            )
                as last_turn_{{ users }}_decode_tokens_per_s,
            arg_max(long_rows.standing, long_rows.badness) filter (
                where {{ ramp }} and long_rows.last_turn_ttft_ms is not null
            ) as last_turn_{{ users }}_standing,
            avg(costs.total_cost_usd_per_mtok) filter (where {{ ramp }})
                as ramp_{{ users }}_usd_per_mtok,
            arg_max(long_rows.standing, long_rows.badness) filter (
                where {{ ramp }} and costs.total_cost_usd_per_mtok is not null
            ) as ramp_{{ users }}_cost_standing,
        {%- endfor %}
        arg_min(long_rows.standing, long_rows.badness) filter (
            where long_rows.ttft_ms_mean is not null
        ) as capacity_standing,
        list(long_rows.row_id order by long_rows.row_id) as row_ids,
    from long_rows
    left join costs on long_rows.row_id = costs.row_id
    group by long_rows.configuration_id
),

measured as (
    select
        cells.configuration_id as table_id,
        configurations.source,
        configurations.campaign,
        configurations.recipe as subject,
        configurations.model,
        configurations.engine,
        configurations.layout,
        configurations.gpus,
        configurations.configured_tokens,
        cells.* exclude (configuration_id, row_ids),
        cells.fresh_found = cells.fresh_asked as is_fresh_passed,
        scores.correct / nullif(scores.graded, 0) as quality_score,
        {{ wilson('scores.correct', 'scores.graded', 'low') }}
            as quality_score_low,
        {{ wilson('scores.correct', 'scores.graded', 'high') }}
            as quality_score_high,
        scores.graded as quality_asked,
        scores.standing as quality_standing,
        list_concat(cells.row_ids, scores.row_ids) as row_ids,
    from cells
    inner join configurations
        on cells.configuration_id = configurations.configuration_id
    left join scores on cells.configuration_id = scores.configuration_id
),

final as (
    select * from measured
    union all by name
    select * from {{ ref('int_published_long_context') }}
)

select * from final
