-- grain: one row per row_id whose measurement itself is broken
with

cells as (
    select * from {{ ref('int_cells') }}
),

runs as (
    select * from {{ ref('int_runs') }}
),

faults as (
    select * from {{ ref('int_faults') }}
),

requests as (
    select * from {{ ref('int_cell_requests') }}
),

imports as (
    select * from {{ ref('stg_imported_results') }}
),

grades as (
    select * from {{ ref('int_cell_grades') }}
),

unreadable as (
    select
        run_id,
        null as cell_id,
        {{ unreadable('runs', [
            'recipe_settings', 'model_facts', 'node_facts'
        ]) }} as what,
    from runs
    union all
    select
        run_id,
        cell_id,
        {{ unreadable('cells', ['params', 'shape']) }} as what,
    from cells
    union all
    select
        run_id,
        cell_id,
        {{ unreadable('imports', ['evidence', 'headline', 'recomputed']) }}
            as what,
    from imports
),

measured as (
    select count(*) as runs
    from runs
    where source in ('measured', 'imported')
),

reasons as (
    select
        cells.row_id,
        faults.fault as reason,
    from cells
    inner join faults
        on
            cells.run_id = faults.run_id
            and (faults.cell_id is null or cells.cell_id = faults.cell_id)
    union all
    select
        cells.row_id,
        case
            when not cells.has_cell_record
                then 'no readable cell record: the window never ended'
            else
                'window ' || cells.window_state
                || coalesce(': ' || cells.window_note, '')
        end as reason,
    from cells
    where cells.window_state is distinct from 'complete'
    union all
    select
        cells.row_id,
        'no readable run_start record' as reason,
    from cells
    inner join runs on cells.run_id = runs.run_id
    where not runs.has_start
    union all
    select
        cells.row_id,
        'unreadable: ' || unreadable.what as reason,
    from cells
    inner join unreadable
        on
            cells.run_id = unreadable.run_id
            and (
                unreadable.cell_id is null or cells.cell_id = unreadable.cell_id
            )
    where unreadable.what is not null
    union all
    -- one chunk is one gap, and gaps lead from the send to the last token
    select
        cells.row_id,
        'accounting does not add up: '
        || requests.chunks_not_adding_up || ' requests with other than '
        || 'one gap a chunk' as reason,
    from cells
    inner join requests
        on cells.run_id = requests.run_id and cells.cell_id = requests.cell_id
    left join imports
        on cells.run_id = imports.run_id and cells.cell_id = imports.cell_id
    where requests.chunks_not_adding_up > 0 and imports.run_id is null
    union all
    select
        cells.row_id,
        'accounting does not add up: more cached than prompt tokens' as reason,
    from cells
    inner join requests
        on cells.run_id = requests.run_id and cells.cell_id = requests.cell_id
    where requests.cached_tokens > requests.prompt_tokens
    union all
    select
        cells.row_id,
        'no readable requests' as reason,
    from cells
    left join requests
        on cells.run_id = requests.run_id and cells.cell_id = requests.cell_id
    left join imports
        on cells.run_id = imports.run_id and cells.cell_id = imports.cell_id
    where requests.run_id is null and imports.run_id is null
    union all
    -- a strict score of nothing beside a lenient one of half: the scorer
    -- failed, not the model
    select
        cells.row_id,
        'scorer failure: 0 strict, ' || grades.correct_lenient
        || ' lenient of ' || grades.graded || ' answers' as reason,
    from cells
    inner join grades
        on cells.run_id = grades.run_id and cells.cell_id = grades.cell_id
    where
        grades.needles_asked = 0
        and grades.graded >= 10
        and grades.correct = 0
        and grades.correct_lenient >= grades.graded / 2
    union all
    select
        cells.row_id,
        'the server of this import is a mock' as reason,
    from cells
    inner join imports
        on cells.run_id = imports.run_id and cells.cell_id = imports.cell_id
    where {{ nested('evidence', 'is_mock', 'imports') }}
    union all
    select
        cells.row_id,
        'synthetic evidence beside measured: never mixed' as reason,
    from cells
    inner join runs on cells.run_id = runs.run_id
    cross join measured
    where runs.source = 'synthetic' and measured.runs > 0
),

final as (
    select
        row_id,
        string_agg(distinct reason, '; ' order by reason) as reason,
    from reasons
    group by row_id
)

select * from final
