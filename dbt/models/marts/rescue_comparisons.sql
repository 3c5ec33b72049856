-- grain: one row per run_id that rescues a recipe
-- It stands beside the recipe's last failure before it.
with

runs as (
    select * from {{ ref('runs') }}
),

starts as (
    select * from {{ ref('stg_runs') }}
),

probes as (
    select
        run_id,
        count(*) filter (where is_passed) as probes_passed,
        count(*) as probes_asked,
    from {{ ref('stg_probes') }}
    group by run_id
),

rates as (
    select
        run_id,
        max(output_tokens_per_s) as best_output_tokens_per_s,
        sum(requests_ok)::bigint as requests_ok,
    from {{ ref('measured_rows') }}
    where standing != 'invalid'
    group by run_id
),

pairs as (
    select
        rescue.*,
        failed.run_id as failed_run_id,
        failed.recipe as failed_recipe,
        failed.failure_class as original_failure_class,
    from runs as rescue
    left join runs as failed
        on
            rescue.rescues = failed.recipe
            and rescue.campaign = failed.campaign
            and failed.state = 'failed'
            and (
                rescue.started_at >= failed.started_at
                or rescue.started_at is null
            )
            and failed.reproduces_run_id is null
    where rescue.rescues is not null
    qualify row_number() over (
        partition by rescue.run_id order by failed.started_at desc
    ) = 1
),

reproductions as (
    select
        reproduces_run_id,
        count(*) as reproductions,
        count(*) filter (where state = 'failed') as reproduced_failures,
    from runs
    where reproduces_run_id is not null
    group by reproduces_run_id
),

settings as (
    select
        run_id,
        unnest(json_keys(recipe_settings)) as setting,
        recipe_settings,
    from starts
),

differences as (
    select
        pairs.run_id,
        string_agg(
            distinct settings.setting, ', ' order by settings.setting
        ) as settings_changed,
    from pairs
    inner join starts as mine on pairs.run_id = mine.run_id
    inner join starts as other on pairs.failed_run_id = other.run_id
    inner join settings
        on settings.run_id in (pairs.run_id, pairs.failed_run_id)
    where
        json_extract(mine.recipe_settings, '$."' || settings.setting || '"')
        is distinct from
        json_extract(other.recipe_settings, '$."' || settings.setting || '"')
        -- the change under test is no confounder of itself
        and coalesce(
            pairs.rescue_change not like '%"' || settings.setting || '"%', true
        )
    group by pairs.run_id
),

final as (
    select
        pairs.run_id,
        pairs.campaign,
        pairs.recipe,
        pairs.rescues,
        pairs.failed_run_id,
        pairs.original_failure_class,
        coalesce(reproductions.reproductions, 0)::bigint as reproductions,
        coalesce(reproductions.reproduced_failures, 0)::bigint
            as reproduced_failures,
        pairs.rescue_attempt,
        pairs.rescue_change,
        pairs.state,
        pairs.failure_class,
        probes.probes_passed::bigint as probes_passed,
        probes.probes_asked::bigint as probes_asked,
        rates.requests_ok,
        rates.best_output_tokens_per_s,
        pairs.kv_tokens,
        differences.settings_changed as confounders,
        pairs.source,
    from pairs
    left join probes on pairs.run_id = probes.run_id
    left join rates on pairs.run_id = rates.run_id
    left join reproductions
        on pairs.failed_run_id = reproductions.reproduces_run_id
    left join differences on pairs.run_id = differences.run_id
)

select * from final
