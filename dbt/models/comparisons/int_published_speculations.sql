-- grain: one row per published pair with and without speculation
with

pairs as (
    select * from {{ ref('published_speculations') }}
),

figures as (
    select * from {{ ref('int_published_figures') }}
),

comparisons as (
    select * from {{ ref('int_published_comparisons') }}
),

final as (
    select
        rate.claim_id as comparison_id,
        'published' as source,
        base.subject as model,
        base.layout as base_recipe,
        rate.layout as changed_recipe,
        [pairs.under_test] as under_test,
        rate.workload,
        rate.concurrency,
        base.figure as base_decode_tokens_per_s,
        rate.figure as changed_decode_tokens_per_s,
        rate_pair.difference as decode_difference_tokens_per_s,
        rate_pair.ratio as decode_ratio,
        kv_pair.compared_figure::bigint as base_kv_tokens,
        kv.figure::bigint as changed_kv_tokens,
        kv_pair.ratio as kv_ratio,
        rate_pair.verdict,
        rate_pair.verdict_reason,
        rate.confounders,
        rate_pair.comparison_standing as standing,
        [base.claim_id] as base_row_ids,
        [rate.claim_id] as changed_row_ids,
    from pairs
    inner join figures as rate on pairs.rate_claim_id = rate.claim_id
    inner join comparisons as rate_pair on rate.claim_id = rate_pair.claim_id
    inner join figures as base on rate.compared_with = base.claim_id
    left join figures as kv on pairs.kv_claim_id = kv.claim_id
    left join comparisons as kv_pair on kv.claim_id = kv_pair.claim_id
)

select * from final
