-- grain: one row per row_id and raw file that it rests on
-- From a published row back to its evidence: file, lines and sealed hash.
with

rows_measured as (
    select * from {{ ref('measured_rows') }}
),

files as (
    select * from {{ ref('stg_files') }}
    where kind is not null
),

-- files of the cell, and files of the run that every cell of it rests on
final as (
    select
        rows_measured.row_id,
        rows_measured.source,
        rows_measured.campaign,
        rows_measured.run_id,
        rows_measured.standing,
        files.kind,
        files.file as raw_file,
        case when files.staged_lines > 0 then 1 end::bigint as first_raw_line,
        nullif(
            files.staged_lines + coalesce(files.quarantined_lines, 0), 0
        )::bigint as last_raw_line,
        files.quarantined_lines,
        files.state as seal_state,
        files.sha256,
        files.landed_at,
    from rows_measured
    inner join files
        on
            rows_measured.run_id = files.run_id
            and (
                rows_measured.cell_id = files.cell_id
                or files.cell_id is null
            )
)

select * from final
