-- grain: one row per comparison_id: two configurations of one model that differ
-- in layout (or KV offload), one kind of cell, one metric
with

metrics as (
    select * from {{ ref('int_comparison_metrics') }}
    where axis in ('layout', 'kv_offload')
),

final as (
    select
        pair_key || '/' || metric as comparison_id,
        axis,
        source,
        campaign,
        model,
        base_recipe,
        base_layout,
        base_gpus,
        changed_recipe,
        changed_layout,
        changed_gpus,
        under_test,
        workload,
        variant,
        concurrency,
        users,
        context_tokens,
        asked_prompt_tokens,
        asked_output_tokens,
        metric,
        base_figure,
        changed_figure,
        difference,
        difference_low,
        difference_high,
        ratio,
        ratio_low,
        ratio_high,
        -- the same, for each device that is paid for
        case
            when metric = 'output_tokens_per_s'
                then ratio * base_gpus / nullif(changed_gpus, 0)
        end as ratio_per_gpu,
        base_n,
        changed_n,
        interval_unit,
        verdict,
        verdict_reason,
        confounders,
        is_closest_base,
        standing,
        base_row_ids,
        changed_row_ids,
    from metrics
)

select * from final
