-- grain: one row per row_id
-- Enough requests for what is shown; percentiles below their floor are null.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(requests_file, cell_file) as evidence,
        [
            {{ part(
                'floor',
                at_least('e2e_count', threshold('sample_size', 'min_p50')),
                'e2e_count',
                "'>= ' || " ~ threshold('sample_size', 'min_p50'),
                'requests',
                "'p90 is shown from ' || " ~ threshold('sample_size', 'min_p90') ~ " || ' on, p99 from ' || " ~ threshold('sample_size', 'min_p99')
            ) }},
            {{ part(
                'interval',
                at_most('e2e_interval_share', threshold('sample_size', 'max_interval')),
                'e2e_interval_share',
                "'<= ' || " ~ threshold('sample_size', 'max_interval'),
                'half width / mean',
                "'95 % interval of the mean end-to-end latency'"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('sample_size') }}
