-- grain: one row per claim_id: a sentence whose number is bound to rows, all of
-- them publishable
with

gated as (
    select
        *,
        recipe || ' (' || model || ' on ' || engine || ')' as subject,
        'at concurrency ' || concurrency
        || coalesce(
            ', ' || users || if(users = 1, ' user', ' users'), ''
        )
        || coalesce(', ' || format('{:,}', context_tokens) || ' tokens', '')
        || ' (' || workload || ')' as place,
    from {{ ref('gated_rows') }}
),

evidence as (
    select
        run_id,
        cell_id,
        min(file) as raw_file,
    from {{ ref('stg_files') }}
    where kind in ('request', 'imported_result') and cell_id is not null
    group by run_id, cell_id
),

grades as (
    select * from {{ ref('quality_scores') }}
),

speculations as (
    select * from {{ ref('speculation_comparisons') }}
    where
        source != 'published'
        and standing = 'publishable'
        and verdict = 'isolated'
        and is_closest_base
),

rates as (
    select
        row_id || '/output_tokens_per_s' as claim_id,
        'output_tokens_per_s' as metric,
        output_tokens_per_s as value,
        'tokens/s' as unit,
        subject || ' gave ' || format('{:,.1f}', output_tokens_per_s)
        || ' output tokens/s ' || place as sentence,
        [row_id] as row_ids,
        gated.* exclude (run_id, cell_id),
        evidence.raw_file,
    from gated
    left join evidence
        on
            gated.run_id = evidence.run_id
            and gated.cell_id = evidence.cell_id
    where output_tokens_per_s is not null
),

recalls as (
    select
        grades.row_id || '/' || grades.grader as claim_id,
        'score' as metric,
        grades.score as value,
        'share' as unit,
        gated.subject || ' answered ' || grades.correct || ' of '
        || grades.graded || ' right ' || gated.place as sentence,
        [grades.row_id] as row_ids,
        gated.*,
        grades.raw_file,
    from grades
    inner join gated on grades.row_id = gated.row_id
    where grades.graded > 0
),

gains as (
    select
        comparison_id as claim_id,
        source,
        campaign,
        changed_recipe as subject,
        workload,
        concurrency,
        context_tokens,
        'decode_tokens_per_s' as metric,
        changed_decode_tokens_per_s as value,
        'tokens/s' as unit,
        base_recipe as compared_with,
        base_decode_tokens_per_s as compared_value,
        decode_difference_tokens_per_s as difference,
        decode_ratio as ratio,
        decode_ratio as comparison,
        'ratio' as comparison_kind,
        decode_ratio_low as comparison_low,
        decode_ratio_high as comparison_high,
        verdict,
        verdict_reason,
        confounders,
        standing as comparison_standing,
        standing,
        changed_recipe || ' decoded ' || format('{:,.2f}', decode_ratio)
        || ' times as fast as ' || base_recipe || ' at concurrency '
        || concurrency || coalesce(
            ' (95 % interval ' || format('{:,.2f}', decode_ratio_low)
            || ' to ' || format('{:,.2f}', decode_ratio_high) || ', n = '
            || base_n || ' and ' || changed_n || ')',
            ' (no interval: too few repeats)'
        ) as sentence,
        list_concat(base_row_ids, changed_row_ids) as row_ids,
    from speculations
),

final as (
    {%- set shared = 'claim_id, source, campaign, subject, engine, layout,
        gpus, workload, concurrency, context_tokens, metric, value, unit,
        standing, sentence, row_ids, raw_file' %}
    select {{ shared }} from rates
    union all by name
    select {{ shared }} from recalls
    union all by name
    select * from gains
)

select * from final
