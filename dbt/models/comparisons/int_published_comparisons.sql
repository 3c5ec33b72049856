-- grain: one row per published claim_id that names what it is compared with
with

figures as (
    select * from {{ ref('int_published_figures') }}
),

standings as (
    select * from {{ ref('standing_order') }}
),

pairs as (
    select
        figures.claim_id,
        figures.figure,
        figures.standing,
        figures.confounders,
        base.figure as compared_figure,
        base.standing as compared_standing,
        (
            figures.metric = base.metric
            and figures.unit = base.unit
            and figures.unit != 'bool'
        ) as is_same_quantity,
        (
            figures.workload is not distinct from base.workload
            and figures.context_tokens is not distinct from base.context_tokens
        ) as is_same_workload,
        -- one configuration, more users: how much the others cost the first
        (
            figures.subject = base.subject
            and figures.layout is not distinct from base.layout
            and figures.concurrency > base.concurrency
        ) as is_more_users,
    from figures
    inner join figures as base on figures.compared_with = base.claim_id
),

ratios as (
    select
        *,
        case when is_same_quantity then figure - compared_figure end
            as difference,
        case when is_same_quantity then figure / nullif(compared_figure, 0) end
            as ratio,
    from pairs
),

final as (
    select
        ratios.claim_id,
        ratios.compared_figure,
        ratios.difference,
        ratios.ratio,
        case
            when ratios.ratio is null then null
            when ratios.is_more_users then 'slowdown'
            else 'ratio'
        end as comparison_kind,
        case
            when ratios.is_more_users and ratios.ratio is not null
                then ratios.compared_figure / nullif(ratios.figure, 0)
            else ratios.ratio
        end as comparison,
        case
            when not (ratios.is_same_quantity and ratios.is_same_workload)
                then 'not comparable'
            when len(ratios.confounders) > 0 then 'confounded'
            -- without its settings an isolated change is not proven: null
        end as verdict,
        case
            when not ratios.is_same_quantity then 'not one quantity'
            when not ratios.is_same_workload then 'not one workload'
            when len(ratios.confounders) > 0
                then array_to_string(ratios.confounders, '; ')
            else 'the source does not give the settings of both sides'
        end as verdict_reason,
        case
            when own.badness >= base.badness then ratios.standing
            else ratios.compared_standing
        end as comparison_standing,
    from ratios
    left join standings as own on ratios.standing = own.standing
    left join standings as base on ratios.compared_standing = base.standing
)

select * from final
