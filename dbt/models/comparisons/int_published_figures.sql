-- grain: one row per claim_id of the published documents
with

figures as (
    select
        *,
        -- the seed keeps the file's order, so the count is the file's line
        row_number() over () + 1 as raw_line,
    from {{ ref('published_claims') }}
),

confounders as (
    select
        claim_id,
        list(confounder order by confounder) as confounders,
    from {{ ref('published_confounders') }}
    group by claim_id
),

final as (
    select
        figures.claim_id,
        figures.source as document,
        figures.part::varchar as part,
        figures.subject,
        figures.engine,
        figures.layout,
        figures.gpus::integer as gpus,
        figures.workload,
        figures.concurrency::integer as concurrency,
        figures.context_tokens::bigint as context_tokens,
        figures.metric,
        figures.value::double as figure,
        figures.unit,
        figures.compared_with,
        figures.standing,
        figures.condition,
        coalesce(confounders.confounders, []::varchar[]) as confounders,
        'dbt/seeds/published_claims.csv' as raw_file,
        figures.raw_line::bigint as raw_line,
    from figures
    left join confounders on figures.claim_id = confounders.claim_id
)

select * from final
