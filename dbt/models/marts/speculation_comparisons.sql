-- grain: one row per comparison_id: a speculating configuration beside one
-- without (or with fewer draft tokens) in one kind of cell; or a published pair
with

metrics as (
    select * from {{ ref('int_comparison_metrics') }}
    where axis = 'speculation'
),

acceptance as (
    select * from {{ ref('int_acceptance') }}
),

decode as (
    select * from metrics
    where metric = 'decode_tokens_per_s'
),

output as (
    select * from metrics
    where metric = 'output_tokens_per_s'
),

measured as (
    select
        decode.pair_key as comparison_id,
        decode.source,
        decode.campaign,
        decode.model,
        decode.base_recipe,
        decode.changed_recipe,
        decode.under_test,
        decode.workload,
        decode.variant,
        decode.concurrency,
        decode.users,
        decode.context_tokens,
        decode.asked_prompt_tokens,
        decode.asked_output_tokens,
        decode.base_figure as base_decode_tokens_per_s,
        decode.changed_figure as changed_decode_tokens_per_s,
        decode.difference as decode_difference_tokens_per_s,
        decode.difference_low as decode_difference_low,
        decode.difference_high as decode_difference_high,
        decode.ratio as decode_ratio,
        decode.ratio_low as decode_ratio_low,
        decode.ratio_high as decode_ratio_high,
        output.base_figure as base_output_tokens_per_s,
        output.changed_figure as changed_output_tokens_per_s,
        output.ratio as output_ratio,
        output.ratio_low as output_ratio_low,
        output.ratio_high as output_ratio_high,
        decode.base_n,
        decode.changed_n,
        decode.interval_unit,
        acceptance.acceptance_length_tokens,
        acceptance.acceptance_share,
        decode.base_kv_tokens,
        decode.changed_kv_tokens,
        decode.changed_kv_tokens / nullif(decode.base_kv_tokens, 0)
            as kv_ratio,
        decode.verdict,
        decode.verdict_reason,
        decode.confounders,
        decode.is_closest_base,
        decode.standing,
        decode.base_row_ids,
        decode.changed_row_ids,
    from decode
    left join output on decode.pair_key = output.pair_key
    left join acceptance
        on
            decode.changed_id = acceptance.configuration_id
            and decode.workload = acceptance.workload
            and decode.variant = acceptance.variant
            and decode.concurrency = acceptance.concurrency
            and (decode.users is not distinct from acceptance.users)
            and (
                decode.context_tokens
                is not distinct from acceptance.context_tokens
            )
            and (
                decode.asked_prompt_tokens
                is not distinct from acceptance.asked_prompt_tokens
            )
            and (
                decode.asked_output_tokens
                is not distinct from acceptance.asked_output_tokens
            )
),

final as (
    select * from measured
    union all by name
    select * from {{ ref('int_published_speculations') }}
)

select * from final
