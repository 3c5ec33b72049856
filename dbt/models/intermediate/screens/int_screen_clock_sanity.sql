-- grain: one row per row_id
-- Instants in order, gaps that sum up, clocks that agree.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(window_file, requests_file, cell_file) as evidence,
        [
            {{ part(
                'order',
                at_most('disordered', threshold('clock_sanity', 'max_disordered')),
                'disordered',
                "'<= ' || " ~ threshold('clock_sanity', 'max_disordered'),
                'requests',
                "'requests with an effect before its cause'"
            ) }},
            {{ part(
                'gaps',
                at_most('negative_gaps', threshold('clock_sanity', 'max_disordered')),
                'negative_gaps',
                "'<= ' || " ~ threshold('clock_sanity', 'max_disordered'),
                'requests',
                "'negative gaps between chunks'"
            ) }},
            {{ part(
                'sums',
                at_most('gaps_not_adding_up', threshold('clock_sanity', 'max_disordered')),
                'gaps_not_adding_up',
                "'<= ' || " ~ threshold('clock_sanity', 'max_disordered'),
                'requests',
                "'requests whose gaps do not sum up to the last token'"
            ) }},
            {{ part(
                'drift',
                at_most('abs(drift_ms_per_min)', threshold('clock_sanity', 'max_drift_ms_per_min')),
                'drift_ms_per_min',
                "'<= ' || " ~ threshold('clock_sanity', 'max_drift_ms_per_min'),
                'ms/min',
                "'wall clock against monotonic'"
            ) }},
            {{ part(
                'engine_ttft',
                "case
                    when ttft_from_send_ms_mean is null
                        or engine_ttft_ms_mean is null then 'not_applicable'
                    when ttft_from_send_ms_mean >= engine_ttft_ms_mean
                        then 'pass'
                    else 'fail'
                end",
                'ttft_from_send_ms_mean - engine_ttft_ms_mean',
                "'>= 0'",
                'ms',
                "'mean TTFT of the client over that of the engine'"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('clock_sanity') }}
