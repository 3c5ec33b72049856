-- grain: one row per row_id and grader
-- A score never stands without its sample size and its interval.
with

grades as (
    select * from {{ ref('int_grades') }}
),

rows_measured as (
    select * from {{ ref('measured_rows') }}
),

final as (
    select
        rows_measured.row_id,
        grades.grader,
        rows_measured.source,
        rows_measured.campaign,
        rows_measured.run_id,
        rows_measured.recipe,
        rows_measured.engine,
        rows_measured.model,
        rows_measured.layout,
        rows_measured.gpus,
        rows_measured.workload,
        rows_measured.variant,
        rows_measured.concurrency,
        rows_measured.context_tokens,
        rows_measured.repeat,
        grades.asked,
        grades.graded,
        grades.correct,
        grades.correct / nullif(grades.graded, 0) as score,
        {{ wilson('grades.correct', 'grades.graded', 'low') }} as score_low,
        {{ wilson('grades.correct', 'grades.graded', 'high') }} as score_high,
        grades.correct_lenient / nullif(grades.graded_lenient, 0)
            as score_lenient,
        -- all wrong by the strict reading, and the lenient one cannot be
        -- chance: the grader failed, not the model
        coalesce(
            grades.correct = 0
            and {{ wilson('grades.correct', 'grades.graded', 'high') }}
            < {{ wilson(
                'grades.correct_lenient', 'grades.graded_lenient', 'low'
            ) }},
            false
        ) as is_grader_suspect,
        rows_measured.standing,
        grades.raw_file,
        grades.first_raw_line,
        grades.last_raw_line,
    from grades
    inner join rows_measured
        on
            grades.run_id = rows_measured.run_id
            and grades.cell_id = rows_measured.cell_id
)

select * from final
