-- grain: one row per run_id, cell_id and grader
with

-- a grade that landed twice counts once
grades as (
    select * from {{ ref('stg_grades') }}
    qualify
        row_number() over (
            partition by run_id, cell_id, request_id, grader
            order by file asc, line asc
        ) = 1
),

counted as (
    select
        run_id,
        cell_id,
        grader,
        count(*) as asked,
        count(is_correct) as graded,
        count(*) filter (where is_correct) as correct,
        count(*) filter (where is_correct_lenient) as correct_lenient,
        count(is_correct_lenient) as graded_lenient,
        min(file) as raw_file,
        min(line) as first_raw_line,
        max(line) as last_raw_line,
    from grades
    group by run_id, cell_id, grader
)

select * from counted
