-- grain: one row per run_id and cell_id
-- A cell exists where its requests, its record or its import landed, whether or
-- not the rest can be read: broken evidence makes a row of standing invalid, it
-- does not make the row vanish. Probe cells are not rows.
{{ config(materialized='table') }}
with

files as (
    select * from {{ ref('stg_files') }}
),

cells as (
    select * from {{ ref('stg_cells') }}
),

spine as (
    select
        run_id,
        cell_id,
        any_value(campaign) as campaign,
        any_value(file) filter (where kind = 'request') as requests_file,
        any_value(sealed_sha256) filter (where kind = 'request')
            as requests_sha256,
        any_value(sealed_lines) filter (where kind = 'request')
            as requests_lines,
        any_value(file) as any_file,
        count(*) filter (where kind = 'cell' and state = 'loaded')
            as cell_files,
    from files
    where
        kind in ('request', 'cell', 'imported_result')
        and cell_id is not null
        and state in ('loaded', 'edited', 'missing')
    group by run_id, cell_id
),

final as (
    select
        spine.run_id || '/' || spine.cell_id as row_id,
        spine.*,
        cells.* exclude (
            record, schema_version, campaign, run_id, cell_id, file, line
        ),
        cells.cell_id is not null as has_cell_record,
        cells.file as cell_file,
        cells.shape ->> 'kind' as shape_kind,
        {{ nested('shape', 'stop_after_s', 'cells') }} as stop_after_s,
    from spine
    left join cells using (run_id, cell_id)
    where cells.workload is distinct from 'probes'
)

select * from final
