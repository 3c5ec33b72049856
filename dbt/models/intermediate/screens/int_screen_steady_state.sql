-- grain: one row per row_id
-- A settled server: no edges, equal halves, no trend. The 5 % point of
-- Student's t is the Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5).
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
                'length',
                "case
                    when shape_kind is not distinct from 'sessions'
                        then 'not_applicable'
                    when not coalesce(
                        steady_requests >= " ~ threshold('steady_state', 'min_requests') ~ "
                        and steady_latencies >= " ~ threshold('steady_state', 'min_latencies') ~ ",
                        false
                    ) then 'unknown'
                    else 'pass'
                end",
                'steady_requests',
                "'>= ' || " ~ threshold('steady_state', 'min_requests') ~ " || ' over ' || " ~ threshold('steady_state', 'min_latencies') ~ " || ' latencies'",
                'requests',
                "coalesce(steady_requests::varchar, 'no')
                || ' requests over '
                || coalesce(round(steady_latencies, 1)::varchar, '0')
                || ' median latencies before the last send'"
            ) }},
            {{ part(
                'edges',
                "case
                    when shape_kind is not distinct from 'sessions'
                        then 'not_applicable'
                    when not coalesce(
                        steady_requests >= " ~ threshold('steady_state', 'min_requests') ~ "
                        and steady_latencies >= " ~ threshold('steady_state', 'min_latencies') ~ ",
                        false
                    ) then 'not_applicable'
                    else " ~ at_most('abs(ramp_effect)', threshold('steady_state', 'max_ramp_effect')) ~ "
                end",
                'ramp_effect',
                "'<= ' || " ~ threshold('steady_state', 'max_ramp_effect'),
                'share of the rate',
                "'rate of the steady part over that of the window'"
            ) }},
            {{ part(
                'halves',
                "case
                    when shape_kind is not distinct from 'sessions'
                        then 'not_applicable'
                    when not coalesce(
                        steady_requests >= " ~ threshold('steady_state', 'min_requests') ~ "
                        and steady_latencies >= " ~ threshold('steady_state', 'min_latencies') ~ ",
                        false
                    ) then 'not_applicable'
                    else " ~ at_most('abs(half_difference)', threshold('steady_state', 'max_half_difference')) ~ "
                end",
                'half_difference',
                "'<= ' || " ~ threshold('steady_state', 'max_half_difference'),
                'share of the rate',
                "'rate of the first half over that of the second'"
            ) }},
            {{ part(
                'trend',
                "case
                    when shape_kind is not distinct from 'sessions'
                        then 'not_applicable'
                    when not coalesce(
                        steady_requests >= " ~ threshold('steady_state', 'min_requests') ~ "
                        and steady_latencies >= " ~ threshold('steady_state', 'min_latencies') ~ ",
                        false
                    ) then 'not_applicable'
                    when trend_t is null or not isfinite(trend_t) then
                        case
                            when trend_drift is null then 'unknown'
                            when trend_drift = 0 then 'pass'
                            else 'fail'
                        end
                    when abs(trend_drift) > " ~ threshold('steady_state', 'trend_materiality') ~ "
                        and abs(trend_t) > " ~ student_t(
                            threshold('steady_state', 'trend_z'), '(steady_requests - 2)'
                        ) ~ "
                        then 'fail'
                    else 'pass'
                end",
                'trend_drift',
                "'p > 0.05, or <= ' || " ~ threshold('steady_state', 'trend_materiality'),
                'share over the window',
                "'latency a token from the first send to the last, t = '
                || coalesce(round(trend_t, 2)::varchar, 'unknown')"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('steady_state') }}
