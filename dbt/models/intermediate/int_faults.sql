-- grain: one row per reason for which a row's evidence cannot be believed
-- cell_id is null where the fault is of the whole run.
with

files as (
    select * from {{ ref('stg_files') }}
),

quarantine as (
    select * from {{ ref('stg_quarantine') }}
),

file_faults as (
    select
        run_id,
        cell_id,
        state || ': ' || file || coalesce(' (' || reason || ')', '') as fault,
    from files
    where
        state in ('edited', 'missing')
        -- a log says why an engine failed; no figure comes from it
        or (
            state = 'unsealed' and kind is not null
        )
),

line_faults as (
    select
        run_id,
        cell_id,
        count(*) || ' quarantined line(s) in ' || file
        || ', the first ' || min(line) || ' (' || arg_min(reason, line) || ')'
            as fault,
    from quarantine
    group by run_id, cell_id, file
),

final as (
    select * from file_faults
    union all
    select * from line_faults
)

select * from final
