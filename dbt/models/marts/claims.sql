-- grain: one row per claim_id: a sentence with a number that is bound to rows,
-- measured or published; never both in one row
with

figures as (
    select * from {{ ref('int_published_figures') }}
),

comparisons as (
    select * from {{ ref('int_published_comparisons') }}
),

measured as (
    select * from {{ ref('int_measured_claims') }}
),

published as (
    select
        figures.claim_id,
        'published' as source,
        figures.document,
        figures.part,
        figures.subject,
        figures.engine,
        figures.layout,
        figures.gpus,
        figures.workload,
        figures.concurrency,
        figures.context_tokens,
        figures.metric,
        figures.figure as value,
        figures.unit,
        figures.standing,
        figures.condition,
        figures.compared_with,
        comparisons.compared_figure as compared_value,
        comparisons.difference,
        comparisons.ratio,
        comparisons.comparison,
        comparisons.comparison_kind,
        comparisons.verdict,
        comparisons.verdict_reason,
        figures.confounders,
        comparisons.comparison_standing,
        concat_ws(
            ', ',
            figures.subject,
            figures.layout,
            replace(figures.metric, '_', ' ') || ' '
            || case
                when figures.figure = floor(figures.figure)
                    then format('{:,}', figures.figure::bigint)
                else figures.figure::varchar
            end || case
                when figures.unit = 'bool' then ' (yes is 1)'
                else ' ' || figures.unit
            end,
            'at concurrency ' || figures.concurrency,
            'at ' || format('{:,}', figures.context_tokens) || ' tokens',
            case
                when comparisons.comparison is not null
                    then
                        'against ' || figures.compared_with || ': '
                        || comparisons.comparison_kind || ' '
                        || format('{:.3g}', comparisons.comparison)
                        || coalesce(' (' || comparisons.verdict || ')', '')
            end
        ) as sentence,
        [figures.claim_id] as row_ids,
        figures.raw_file,
        figures.raw_line,
    from figures
    left join comparisons on figures.claim_id = comparisons.claim_id
),

final as (
    select * from published
    union all by name
    select * from measured
)

select
    claim_id,
    source,
    document,
    part,
    campaign,
    subject,
    engine,
    layout,
    gpus,
    workload,
    concurrency,
    context_tokens,
    metric,
    value,
    unit,
    standing,
    condition,
    compared_with,
    compared_value,
    difference,
    ratio,
    comparison,
    comparison_kind,
    comparison_low,
    comparison_high,
    verdict,
    verdict_reason,
    coalesce(confounders, []::varchar[]) as confounders,
    comparison_standing,
    sentence,
    row_ids,
    raw_file,
    raw_line,
from final
