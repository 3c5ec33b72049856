-- grain: one row per axis, base and changed configuration of one campaign,
-- model and source that differ on that axis
with

configurations as (
    select
        configuration_id,
        campaign,
        source,
        recipe,
        model,
        engine,
        layout,
        gpus,
        node_id,
        client,
        any_value(settings) as settings,
        min(started_at) as started_at,
        median(kv_tokens)::bigint as kv_tokens,
        count(*) as runs,
    from {{ ref('int_configurations') }}
    group by all
),

axes as (
    select
        axis,
        list(setting) as axis_settings,
    from {{ ref('comparison_axes') }}
    group by axis
),

-- what a configuration has on an axis; only pairs that differ there are kept
signed as (
    select
        configurations.*,
        axes.axis,
        axes.axis_settings,
        list_sort(
            list_transform(
                list_filter(
                    map_entries(configurations.settings),
                    lambda e: e.value is not null
                    and list_contains(
                        axes.axis_settings, split_part(e.key, '.', 1)
                    )
                ),
                lambda e: e.key || '=' || e.value
            )
        )::varchar as signature,
        -- which side is the base: no speculation before any, fewer draft
        -- tokens before more; fewer devices before more
        case axes.axis
            when 'speculation'
                then coalesce(
                    try_cast(
                        configurations.settings['speculation.draft_tokens']
                        as bigint
                    ),
                    0
                )
            when 'layout' then configurations.gpus
            else 0
        end as amount,
    from configurations
    cross join axes
),

pairs as (
    select
        base.axis,
        base.axis_settings,
        base.campaign,
        base.source,
        base.model,
        base.configuration_id as base_id,
        base.recipe as base_recipe,
        base.layout as base_layout,
        base.gpus as base_gpus,
        base.kv_tokens as base_kv_tokens,
        base.settings as base_settings,
        changed.configuration_id as changed_id,
        changed.recipe as changed_recipe,
        changed.layout as changed_layout,
        changed.gpus as changed_gpus,
        changed.kv_tokens as changed_kv_tokens,
        changed.settings as changed_settings,
        base.node_id = changed.node_id as is_same_hardware,
        base.client = changed.client as is_same_client,
        list_filter(
            list_distinct(
                list_concat(
                    map_keys(base.settings), map_keys(changed.settings)
                )
            ),
            lambda k: (base.settings[k] is distinct from changed.settings[k])
        ) as differing,
    from signed as base
    inner join signed as changed
        on
            base.axis = changed.axis
            and base.campaign = changed.campaign
            and base.source = changed.source
            and base.model = changed.model
            and base.signature != changed.signature
            and (base.amount, base.started_at, base.configuration_id)
            < (changed.amount, changed.started_at, changed.configuration_id)
),

split as (
    select
        *,
        list_sort(
            list_filter(
                differing,
                lambda k: list_contains(axis_settings, split_part(k, '.', 1))
            )
        ) as under_test,
        -- other devices follow from another count of devices
        list_sort(
            list_filter(
                differing,
                lambda k: not list_contains(
                    axis_settings, split_part(k, '.', 1)
                )
                and not (k = 'gpu_ids' and base_gpus != changed_gpus)
            )
        ) as confounding,
    from pairs
),

final as (
    select
        * exclude (
            axis_settings, differing, confounding, base_settings,
            changed_settings
        ),
        list_transform(
            confounding,
            lambda k: k || ': '
            || coalesce(base_settings[k]::varchar, 'not set') || ' / '
            || coalesce(changed_settings[k]::varchar, 'not set')
        ) as confounders,
        len(confounding) = min(len(confounding)) over (
            partition by axis, changed_id
        ) as is_closest_base,
    from split
)

select * from final
