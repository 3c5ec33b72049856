-- grain: one row per row_id
-- The client's own delays are small against what it measured.
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
                'loop_lag',
                "case
                    when loop_lag_p99_ms is null then 'unknown'
                    when isfinite(loop_lag_p99_ms) and loop_lag_p99_ms <= least(
                        " ~ threshold('client_lag', 'max_loop_lag_ms') ~ ",
                        coalesce(
                            chunk_gap_ms_p50
                            * " ~ threshold('client_lag', 'max_loop_lag_share') ~ ",
                            " ~ threshold('client_lag', 'max_loop_lag_ms') ~ "
                        )
                    )
                        then 'pass'
                    else 'fail'
                end",
                'loop_lag_p99_ms',
                "'<= ' || round(least(
                        " ~ threshold('client_lag', 'max_loop_lag_ms') ~ ",
                        coalesce(
                            chunk_gap_ms_p50
                            * " ~ threshold('client_lag', 'max_loop_lag_share') ~ ",
                            " ~ threshold('client_lag', 'max_loop_lag_ms') ~ "
                        )
                    ), 4)",
                'ms',
                "'loop lag p99; median gap between chunks '
                || coalesce(round(chunk_gap_ms_p50, 2)::varchar, 'unknown')
                || ' ms'"
            ) }},
            {{ part(
                'send_delay',
                at_most(
                    '(send_delay_p99_ms / nullif(ttft_ms_p50, 0))',
                    threshold('client_lag', 'max_send_delay_share')
                ),
                'send_delay_p99_ms / nullif(ttft_ms_p50, 0)',
                "'<= ' || " ~ threshold('client_lag', 'max_send_delay_share'),
                'share of median TTFT',
                "'send delay p99 '
                || coalesce(round(send_delay_p99_ms, 3)::varchar, 'unknown')
                || ' ms'"
            ) }},
            {{ part(
                'engine_gap',
                "case
                    when ttft_from_send_ms_mean is null
                        or engine_ttft_ms_mean is null then 'not_applicable'
                    when ttft_from_send_ms_mean - engine_ttft_ms_mean <= greatest(
                        " ~ threshold('client_lag', 'engine_gap_floor_ms') ~ ",
                        engine_ttft_ms_mean
                        * " ~ threshold('client_lag', 'max_engine_gap_share') ~ "
                    )
                        then 'pass'
                    else 'fail'
                end",
                'ttft_from_send_ms_mean - engine_ttft_ms_mean',
                "'<= ' || round(greatest(
                        " ~ threshold('client_lag', 'engine_gap_floor_ms') ~ ",
                        engine_ttft_ms_mean
                        * " ~ threshold('client_lag', 'max_engine_gap_share') ~ "
                    ), 1)",
                'ms',
                "'mean TTFT of the client over that of the engine'"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('client_lag') }}
