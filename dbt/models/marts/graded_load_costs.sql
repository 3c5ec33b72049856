-- grain: one row per row_id of a graded load with a plain load beside it
with

rows_measured as (
    select
        rows_measured.*,
        standing_order.badness,
        -- `plain`, or `<entry>/plain` where a campaign has several entries
        regexp_extract(rows_measured.variant, '(needle|json|plain)$')
            as carries,
        regexp_replace(rows_measured.variant, '/?(needle|json|plain)$', '')
            as entry,
    from {{ ref('measured_rows') }} as rows_measured
    inner join {{ ref('standing_order') }} as standing_order
        on rows_measured.standing = standing_order.standing
    where rows_measured.workload = 'graded_load'
),

scores as (
    select * from {{ ref('quality_scores') }}
    qualify row_number() over (partition by row_id order by grader asc) = 1
),

final as (
    select
        graded.row_id,
        plain.row_id as plain_row_id,
        graded.source,
        graded.campaign,
        graded.run_id,
        graded.recipe,
        graded.engine,
        graded.model,
        graded.carries,
        graded.concurrency,
        graded.repeat,
        graded.output_tokens_per_s as graded_output_tokens_per_s,
        plain.output_tokens_per_s as plain_output_tokens_per_s,
        1 - graded.output_tokens_per_s / nullif(plain.output_tokens_per_s, 0)
            as throughput_cost_share,
        scores.asked,
        scores.graded,
        scores.correct,
        scores.score,
        scores.score_low,
        scores.score_high,
        case
            when plain.badness > graded.badness then plain.standing
            else graded.standing
        end as standing,
    from rows_measured as graded
    inner join rows_measured as plain
        on
            graded.run_id = plain.run_id
            and graded.entry = plain.entry
            and graded.concurrency = plain.concurrency
            and graded.repeat = plain.repeat
            and plain.carries = 'plain'
            and graded.carries != 'plain'
            and (
                graded.asked_prompt_tokens
                is not distinct from plain.asked_prompt_tokens
            )
    left join scores on graded.row_id = scores.row_id
    qualify
        row_number() over (
            partition by graded.row_id
            order by plain.row_id asc
        ) = 1
)

select * from final
