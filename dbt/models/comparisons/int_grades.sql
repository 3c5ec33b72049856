-- grain: one row per run_id, cell_id and grader
with

grades as (
    select * from {{ ref('stg_grades') }}
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
