-- grain: one row per axis, base and changed configuration, kind of cell and
-- metric
-- A table: several marts read it.
{{ config(materialized='table') }}
with

pairs as (
    select * from {{ ref('int_setting_differences') }}
),

sides as (
    select * from {{ ref('int_comparison_sides') }}
),

quantiles as (
    select * from {{ ref('t_quantiles') }}
),

paired as (
    select
        pairs.*,
        changed.workload,
        changed.variant,
        changed.concurrency,
        changed.users,
        changed.context_tokens,
        changed.asked_prompt_tokens,
        changed.asked_output_tokens,
        changed.metric,
        (
            base.asked_prompt_tokens
            is not distinct from changed.asked_prompt_tokens
            and base.asked_output_tokens
            is not distinct from changed.asked_output_tokens
        ) as is_same_size,
        -- one pair in one kind of cell, whatever the metric
        md5(
            concat_ws(
                '|',
                pairs.axis,
                pairs.base_id,
                pairs.changed_id,
                changed.workload,
                changed.variant,
                changed.concurrency,
                coalesce(changed.users, -1),
                coalesce(changed.context_tokens, -1),
                coalesce(base.asked_prompt_tokens, -1),
                coalesce(base.asked_output_tokens, -1),
                coalesce(changed.asked_prompt_tokens, -1),
                coalesce(changed.asked_output_tokens, -1)
            )
        ) as pair_key,
        base.starts as base_starts,
        changed.starts as changed_starts,
        base.repeats as base_repeats,
        changed.repeats as changed_repeats,
        base.row_ids as base_row_ids,
        changed.row_ids as changed_row_ids,
        case
            when base.starts >= 2 and changed.starts >= 2 then 'server start'
            when base.repeats >= 2 and changed.repeats >= 2
                then 'repeat on one server'
        end as interval_unit,
        case interval_unit
            when 'server start' then base.starts
            when 'repeat on one server' then base.repeats
        end as base_n,
        case interval_unit
            when 'server start' then changed.starts
            when 'repeat on one server' then changed.repeats
        end as changed_n,
        base.mean_of_starts as base_figure,
        changed.mean_of_starts as changed_figure,
        case interval_unit
            when 'server start' then base.variance_of_starts
            else base.variance_of_repeats
        end / base_n as base_error,
        case interval_unit
            when 'server start' then changed.variance_of_starts
            else changed.variance_of_repeats
        end / changed_n as changed_error,
        case
            when not pairs.is_same_client then 'measured by another client'
            when not pairs.is_same_hardware then 'other hardware'
            when not is_same_size
                then 'other prompt or output sizes'
        end as not_comparable_why,
        case
            when base.badness > changed.badness then base.standing
            else changed.standing
        end as standing,
    from pairs
    inner join sides as base on pairs.base_id = base.configuration_id
    inner join sides as changed
        on
            pairs.changed_id = changed.configuration_id
            and base.metric = changed.metric
            and base.workload = changed.workload
            and base.variant = changed.variant
            and base.concurrency = changed.concurrency
            and (base.users is not distinct from changed.users)
            and (
                base.context_tokens is not distinct from changed.context_tokens
            )
    -- sizes are crossed only where no pair of equal sizes exists
    qualify
        is_same_size
        or not bool_or(is_same_size) over (
            partition by
                pairs.axis, pairs.base_id, pairs.changed_id, changed.metric,
                changed.workload, changed.variant, changed.concurrency,
                changed.users, changed.context_tokens
        )
),

-- no difference and no ratio of what is not comparable: null, with the reason
errors as (
    select
        *,
        case
            when not_comparable_why is null then changed_figure - base_figure
        end as difference,
        case
            when not_comparable_why is null
                then changed_figure / nullif(base_figure, 0)
        end as ratio,
        base_error / nullif(base_figure, 0) ** 2 as base_log_error,
        changed_error / nullif(changed_figure, 0) ** 2 as changed_log_error,
        {{ welch_degrees(
            'base_error', 'base_n', 'changed_error', 'changed_n'
        ) }} as degrees,
        {{ welch_degrees(
            'base_log_error', 'base_n', 'changed_log_error', 'changed_n'
        ) }} as log_degrees,
    from paired
),

final as (
    select
        errors.* exclude (
            not_comparable_why, base_error, changed_error, base_log_error,
            changed_log_error, degrees, log_degrees
        ),
        errors.difference
        - t.t_975 * sqrt(errors.base_error + errors.changed_error)
            as difference_low,
        errors.difference
        + t.t_975 * sqrt(errors.base_error + errors.changed_error)
            as difference_high,
        errors.ratio * exp(
            -log_t.t_975
            * sqrt(errors.base_log_error + errors.changed_log_error)
        ) as ratio_low,
        errors.ratio * exp(
            log_t.t_975
            * sqrt(errors.base_log_error + errors.changed_log_error)
        ) as ratio_high,
        case
            when errors.not_comparable_why is not null then 'not comparable'
            when len(errors.confounders) > 0 then 'confounded'
            else 'isolated'
        end as verdict,
        coalesce(
            errors.not_comparable_why,
            nullif(array_to_string(errors.confounders, '; '), ''),
            'nothing differs but ' || array_to_string(errors.under_test, ', ')
        ) as verdict_reason,
    from errors
    asof left join quantiles as t on errors.degrees >= t.degrees_of_freedom
    asof left join quantiles as log_t
        on errors.log_degrees >= log_t.degrees_of_freedom
)

select * from final
