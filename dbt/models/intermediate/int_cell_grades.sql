-- grain: one row per run_id and cell_id
with

grades as (
    select * from {{ ref('stg_grades') }}
),

final as (
    select
        run_id,
        cell_id,
        count(*) as asked,
        count(*) filter (where is_correct is not null) as graded,
        count(*) filter (where is_correct) as correct,
        count(*) filter (where is_correct_lenient) as correct_lenient,
        count(*) filter (where depth_pct is not null) as needles_asked,
        count(*) filter (where depth_pct is not null and is_correct)
            as needles_found,
    from grades
    group by run_id, cell_id
)

select * from final
