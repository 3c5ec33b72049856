-- grain: one row per run_id and context_tokens at which needles were planted
with

grades as (
    select * from {{ ref('stg_grades') }}
    where depth_pct is not null
),

cells as (
    select * from {{ ref('int_cells') }}
    where context_tokens is not null and has_cell_record
),

depths as (
    select
        cells.run_id,
        cells.context_tokens,
        grades.depth_pct,
        count(*) as asked,
        count(*) filter (where grades.is_correct) as found,
        count(*) filter (where grades.is_correct is null) as ungraded,
        min(grades.file) as file,
        min(grades.line) filter (where grades.is_correct is not true)
            as first_missed_line,
    from grades
    inner join cells using (run_id, cell_id)
    group by cells.run_id, cells.context_tokens, grades.depth_pct
),

final as (
    select
        run_id,
        context_tokens,
        sum(asked)::bigint as asked,
        sum(found)::bigint as found,
        sum(ungraded)::bigint as ungraded,
        min(file) as file,
        min(first_missed_line) as first_missed_line,
        list(depth_pct order by depth_pct) as depths_pct,
        (
            {% for depth in ['depth_low_pct', 'depth_middle_pct',
                             'depth_high_pct'] -%}
                {% if not loop.first %}+ {% endif %}max((
                    abs(depth_pct - {{ threshold('needle_gate', depth) }})
                    <= {{ threshold('needle_gate', 'depth_tolerance_pct') }}
                )::integer)
            {% endfor %}
        ) = 3 as has_required_depths,
    from depths
    group by run_id, context_tokens
)

select * from final
