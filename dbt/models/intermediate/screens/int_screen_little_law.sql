-- grain: one row per row_id
-- Concurrency is throughput times latency, and as much as was asked.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(window_file, cell_file) as evidence,
        [
            {{ part(
                'identity',
                "case
                    when certified_concurrency is null
                        or coalesce(busy_concurrency, 0) = 0 then 'unknown'
                    when abs(certified_concurrency / busy_concurrency - 1)
                        <= " ~ threshold('little_law', 'max_difference') ~ " then 'pass'
                    else 'fail'
                end",
                'abs(certified_concurrency / nullif(busy_concurrency, 0) - 1)',
                "'<= ' || " ~ threshold('little_law', 'max_difference'),
                'share',
                "'mean in flight '
                || coalesce(round(certified_concurrency, 2)::varchar, 'unknown')
                || ', latency x rate '
                || coalesce(round(busy_concurrency, 2)::varchar, 'unknown')"
            ) }},
            {{ part(
                'achieved',
                "case
                    when shape_kind in ('constant', 'poisson', 'gamma', 'trace')
                        then " ~ at_least('achieved_rate_ratio', threshold('little_law', 'min_achieved')) ~ "
                    when imported_rate_ratio is not null
                        then " ~ at_least('imported_rate_ratio', threshold('little_law', 'min_achieved')) ~ "
                    when shape_kind = 'sessions' then 'not_applicable'
                    when not has_cell_record or concurrency is null
                        or achieved_concurrency is null then 'unknown'
                    else " ~ at_least('(achieved_concurrency / concurrency)', threshold('little_law', 'min_achieved')) ~ "
                end",
                "case
                    when shape_kind in ('constant', 'poisson', 'gamma', 'trace')
                        then achieved_rate_ratio
                    when imported_rate_ratio is not null
                        then imported_rate_ratio
                    when shape_kind = 'sessions' or not has_cell_record
                        then null
                    else achieved_concurrency / nullif(concurrency, 0)
                end",
                "'>= ' || " ~ threshold('little_law', 'min_achieved'),
                'share of asked',
                "case
                    when shape_kind in ('constant', 'poisson', 'gamma', 'trace')
                        then 'planned span of sends over the real one'
                    else 'in flight '
                        || coalesce(
                            round(achieved_concurrency, 2)::varchar, 'unknown'
                        )
                        || ' of '
                        || coalesce(concurrency::varchar, 'unknown')
                        || ' asked, until the last send'
                end"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('little_law') }}
