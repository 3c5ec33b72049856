-- grain: one row per subject and layout that the published table shows at 1M
with

figures as (
    select
        *,
        -- "of 3": the count asked is part of the unit
        try_cast(regexp_extract(unit, '^of (\d+)$', 1) as bigint) as asked,
    from {{ ref('int_published_figures') }}
    where context_tokens = 1000000
),

final as (
    select
        subject || coalesce('/' || layout, '') as table_id,
        'published' as source,
        subject,
        any_value(engine) as engine,
        layout,
        max(gpus) as gpus,
        max(context_tokens) as context_tokens,
        {%- set fresh = "metric in ('needles_found', 'oneshot_passed')" %}
        (max(figure) filter (where metric = 'needles_found'))::bigint
            as fresh_found,
        max(asked) filter (where metric = 'needles_found') as fresh_asked,
        bool_or(
            (metric = 'oneshot_passed' and figure = 1)
            or (metric = 'needles_found' and figure = asked)
        ) filter (where {{ fresh }}) as is_fresh_passed,
        max(figure * 60000) filter (where metric = 'ttft' and unit = 'min')
            as fresh_ttft_ms,
        max(standing) filter (
            where {{ fresh }} or (metric = 'ttft' and unit = 'min')
        ) as fresh_standing,
        {%- for users in [1, 2] %}
            {%- set recalled = "metric = 'turns_recalled' and concurrency = "
                ~ users %}
            {%- set decode = "metric = 'decode_rate' and concurrency = "
                ~ users %}
            (max(figure) filter (where {{ recalled }}))::bigint
                as ramp_{{ users }}_recalled,
            max(asked) filter (where {{ recalled }}) as ramp_{{ users }}_asked,
            max(standing) filter (where {{ recalled }})
                as ramp_{{ users }}_standing,
            max(figure) filter (where {{ decode }})
                as last_turn_{{ users }}_decode_tokens_per_s,
            max(standing) filter (where {{ decode }})
                as last_turn_{{ users }}_standing,
        {%- endfor %}
        list(claim_id order by raw_line) as row_ids,
    from figures
    where
        metric in (
            'needles_found', 'oneshot_passed', 'turns_recalled', 'decode_rate',
            'ttft'
        )
    group by subject, layout
)

select * from final
