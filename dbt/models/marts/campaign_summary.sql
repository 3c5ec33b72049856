-- grain: one row per source and campaign
-- Every count is one of its own: rows that pass and rows that are invalid do
-- not add up to all rows.
with

runs as (
    select
        runs.source,
        runs.campaign,
        count(*) as runs,
        count(*) filter (where bring_ups.state = 'served') as runs_served,
        count(*) filter (where bring_ups.state = 'failed') as runs_failed,
        count(distinct runs.model) as models,
        count(distinct row(runs.model, runs.recipe)) as variants,
        min(runs.started_at) as started_at,
        any_value(runs.policy) as policy,
    from {{ ref('stg_runs') }} as runs
    left join {{ ref('stg_bring_ups') }} as bring_ups
        on runs.run_id = bring_ups.run_id
    group by runs.source, runs.campaign
),

rows_measured as (
    select
        source,
        campaign,
        count(*) as row_count,
        count(*) filter (where standing = 'publishable') as rows_passing,
        count(*) filter (where standing = 'provisional') as rows_provisional,
        count(*) filter (where standing = 'held') as rows_held,
        count(*) filter (where standing = 'invalid') as rows_invalid,
        count(*) filter (where standing_strict = 'publishable')
            as rows_passing_strict,
    from {{ ref('measured_rows') }}
    group by source, campaign
),


published as (
    select
        'published' as source,
        'series' as campaign,
        max(figure) filter (where metric = 'rows')::bigint as row_count,
        max(figure) filter (where metric = 'runs')::bigint as runs,
        max(figure) filter (where metric = 'model_variants')::bigint
            as variants,
        max(figure) filter (
            where metric = 'rows_passing_publication_filters'
        )::bigint as rows_passing,
        max(figure) filter (where metric = 'rows_invalid')::bigint
            as rows_invalid,
    from {{ ref('int_published_figures') }}
    where subject = 'campaign' and workload = 'collector'
),

final as (
    select
        runs.source,
        runs.campaign,
        runs.policy,
        runs.started_at,
        coalesce(rows_measured.row_count, 0) as row_count,
        runs.runs,
        runs.runs_served,
        runs.runs_failed,
        runs.models,
        runs.variants,
        coalesce(rows_measured.rows_passing, 0) as rows_passing,
        coalesce(rows_measured.rows_provisional, 0) as rows_provisional,
        coalesce(rows_measured.rows_held, 0) as rows_held,
        coalesce(rows_measured.rows_invalid, 0) as rows_invalid,
        coalesce(rows_measured.rows_passing_strict, 0)
            as rows_passing_strict,
    from runs
    left join rows_measured
        on
            runs.source = rows_measured.source
            and runs.campaign = rows_measured.campaign
    union all by name
    select * from published
)

select * from final
