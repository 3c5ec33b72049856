-- grain: one row per row_id
-- Standing, in this precedence: invalid (the measurement itself is broken),
-- held (a required screen failed), provisional (a required screen is unknown),
-- publishable. Under the campaign's policy and under each by name.
{{ config(materialized='table') }}
with

results as (
    select * from {{ ref('int_screen_results') }}
),

policies as (
    select * from {{ ref('policies') }}
),

invalid as (
    select * from {{ ref('int_invalid_rows') }}
),

cells as (
    select * from {{ ref('int_cells') }}
),

runs as (
    select * from {{ ref('int_runs') }}
),

-- a policy that nobody wrote down is judged by the strictest
chosen as (
    select
        cells.row_id,
        case
            when runs.policy in (select policy from policies) then runs.policy
            else 'strict'
        end as policy,
    from cells
    left join runs on cells.run_id = runs.run_id
),

-- the finding in words, with what was measured and what is required
worded as (
    select
        row_id,
        screen,
        verdict,
        screen || ': ' || coalesce(reason, '')
        || case
            when measured is null then ''
            else
                ' (' || format('{:.4g}', measured) || coalesce(' ' || unit, '')
                || coalesce(', required ' || required, '') || ')'
        end as finding,
    from results
),

weighed as (
    select
        results.row_id,
        policies.policy,
        coalesce(bool_or(results.verdict = 'fail'), true) as has_failed,
        coalesce(bool_or(results.verdict = 'unknown'), true) as has_unknown,
        string_agg(
            results.finding, '; ' order by results.screen
        ) filter (where results.verdict = 'fail') as failed,
        string_agg(
            results.finding, '; ' order by results.screen
        ) filter (where results.verdict = 'unknown') as unknown,
    from worded as results
    inner join policies on results.screen = policies.screen
    group by results.row_id, policies.policy
),

standings as (
    select
        weighed.row_id,
        weighed.policy,
        case
            when invalid.row_id is not null then 'invalid'
            when weighed.has_failed then 'held'
            when weighed.has_unknown then 'provisional'
            else 'publishable'
        end as standing,
        case
            when invalid.row_id is not null then invalid.reason
            when weighed.has_failed then weighed.failed
            when weighed.has_unknown then weighed.unknown
        end as standing_reason,
    from weighed
    left join invalid on weighed.row_id = invalid.row_id
),

screens as (
    pivot (select
        row_id,
        screen,
        verdict
    from results)
    on screen in (
        'needle_gate', 'cache_screen', 'roofline', 'cache_accounting',
        'nonce_audit', 'output_attainment', 'token_reconciliation',
        'population', 'little_law', 'client_lag', 'clock_sanity',
        'steady_state', 'sample_size', 'stream_granularity', 'server_health',
        'declared_config'
    )
    using any_value(verdict)
    group by row_id
),

final as (
    select
        screens.*,
        chosen.policy,
        own.standing,
        own.standing_reason,
        original.standing as standing_original,
        strict.standing as standing_strict,
        strict.standing_reason as standing_reason_strict,
        invalid.reason as invalid_reason,
    from screens
    inner join chosen on screens.row_id = chosen.row_id
    inner join standings as own
        on screens.row_id = own.row_id and chosen.policy = own.policy
    inner join standings as original
        on screens.row_id = original.row_id and original.policy = 'original'
    inner join standings as strict
        on screens.row_id = strict.row_id and strict.policy = 'strict'
    left join invalid on screens.row_id = invalid.row_id
)

select * from final
