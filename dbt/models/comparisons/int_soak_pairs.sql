-- grain: one row per soak that has a baseline: another soak of its campaign,
-- source, model, concurrency and sizes
with

soaks as (
    select
        soaks.*,
        configurations.configuration_id,
        configurations.settings,
        configurations.node_id,
        configurations.client,
        configurations.started_at,
        coalesce(
            try_cast(
                configurations.settings['speculation.draft_tokens'] as bigint
            ),
            0
        ) as draft_tokens,
    from {{ ref('int_soaks') }} as soaks
    inner join {{ ref('int_configurations') }} as configurations
        on soaks.run_id = configurations.run_id
),

standings as (
    select * from {{ ref('standing_order') }}
),

-- the baseline is the plainest soak that came first
baselines as (
    select * from soaks
    qualify
        row_number() over (
            partition by campaign, source, model
            order by draft_tokens, started_at, run_id
        ) = 1
),

pairs as (
    select
        soaks.run_id,
        soaks.variant,
        soaks.concurrency,
        base.recipe as base_recipe,
        base.run_id as base_run_id,
        soaks.output_tokens_per_s / nullif(base.output_tokens_per_s, 0)
            as ratio,
        soaks.settings,
        base.settings as base_settings,
        case
            when soaks.client != base.client then 'measured by another client'
            when soaks.node_id != base.node_id then 'other hardware'
            when soaks.concurrency != base.concurrency then 'other concurrency'
            when
                (
                    soaks.asked_prompt_tokens
                    is distinct from base.asked_prompt_tokens
                )
                or (
                    soaks.asked_output_tokens
                    is distinct from base.asked_output_tokens
                )
                then 'other prompt or output sizes'
        end as not_comparable_why,
        case
            when own.badness >= other.badness then soaks.standing
            else base.standing
        end as standing,
        list_sort(
            list_filter(
                list_distinct(
                    list_concat(
                        map_keys(soaks.settings), map_keys(base.settings)
                    )
                ),
                lambda k: (
                    soaks.settings[k] is distinct from base.settings[k]
                )
            )
        ) as differing,
    from soaks
    inner join baselines as base
        on
            soaks.campaign = base.campaign
            and soaks.source = base.source
            and soaks.model = base.model
            and soaks.configuration_id != base.configuration_id
    inner join standings as own on soaks.standing = own.standing
    inner join standings as other on base.standing = other.standing
),

-- what is under test: speculation where it differs, else the one setting that
-- does; everything beyond it confounds
tested as (
    select
        *,
        list_distinct(
            list_transform(differing, lambda k: split_part(k, '.', 1))
        ) as roots,
        case
            when list_contains(roots, 'speculation') then 'speculation'
            when len(roots) = 1 then roots[1]
        end as under_test,
        list_filter(
            differing,
            lambda k: (split_part(k, '.', 1) is distinct from under_test)
        ) as confounding,
    from pairs
),

final as (
    select
        run_id,
        variant,
        concurrency,
        base_recipe,
        base_run_id,
        standing,
        under_test,
        not_comparable_why,
        case when not_comparable_why is null then ratio end as ratio,
        case
            when not_comparable_why is not null then 'not comparable'
            when len(confounding) > 0 then 'confounded'
            else 'isolated'
        end as verdict,
        list_transform(
            confounding,
            lambda k: k || ': '
            || coalesce(base_settings[k]::varchar, 'not set') || ' / '
            || coalesce(settings[k]::varchar, 'not set')
        ) as confounders,
    from tested
)

select * from final
