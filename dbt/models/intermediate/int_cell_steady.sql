-- grain: one row per run_id and cell_id
-- The steady part runs from the end of the ramp-up to the last send: until
-- then a closed loop is full. A request's tokens are spread evenly over its
-- whole time on the server, so that streams in lockstep do not look unsteady.
{{ config(
    materialized='incremental',
    incremental_strategy='append',
    pre_hook='{{ forget_changed_runs() }}'
) }}
with

requests as (
    select * from {{ ref('stg_requests_new') }}
    where phase = 'timed' and sent_ns is not null and end_ns is not null
),

cells as (
    select * from {{ ref('stg_cells') }}
),

windows as (
    select * from {{ ref('stg_windows') }}
),

last_sends as (
    select
        run_id,
        cell_id,
        max(sent_ns) as ends_ns,
    from requests
    group by run_id, cell_id
),

bounds as (
    select
        last_sends.run_id,
        last_sends.cell_id,
        cells.concurrency,
        windows.opened_ns
        + (
            coalesce({{ nested('shape', 'ramp_up_s', 'cells') }}, 0) * 1e9
        )::bigint
            as begins_ns,
        last_sends.ends_ns,
        (begins_ns + last_sends.ends_ns) // 2 as middle_ns,
    from last_sends
    inner join cells using (run_id, cell_id)
    inner join windows using (run_id, cell_id)
),

spread as (
    select
        bounds.*,
        requests.sent_ns,
        requests.end_ns,
        requests.outcome = 'ok' as is_ok,
        requests.index < bounds.concurrency as is_first_wave,
        (requests.end_ns - requests.sent_ns) / 1e6 as busy_ms,
        (requests.end_ns - requests.planned_ns) / 1e6
        / greatest(coalesce(requests.output_tokens, 1), 1) as ms_per_token,
        coalesce(requests.output_tokens, 0)
        / greatest(requests.end_ns - requests.sent_ns, 1) as tokens_per_ns,
        greatest(requests.sent_ns, begins_ns) as from_ns,
        least(requests.end_ns, ends_ns) as to_ns,
    from requests
    inner join bounds using (run_id, cell_id)
),

final as (
    select
        run_id,
        cell_id,
        any_value(begins_ns) as begins_ns,
        any_value(ends_ns) as ends_ns,
        count(*) filter (where is_ok and sent_ns >= begins_ns)
            as steady_requests,
        sum(greatest(to_ns - from_ns, 0) * tokens_per_ns)
        filter (where is_ok) as steady_tokens,
        sum(greatest(least(to_ns, middle_ns) - from_ns, 0) * tokens_per_ns)
        filter (where is_ok) as first_half_tokens,
        sum(
            greatest(least(end_ns, ends_ns) - greatest(sent_ns, begins_ns), 0)
        )::double as steady_busy_ns,
        count(*) filter (where end_ns > ends_ns) as in_flight_at_last_send,
        corr(ms_per_token, sent_ns) filter (
            where is_ok and sent_ns >= begins_ns
        )
            as trend_correlation,
        regr_slope(ms_per_token, sent_ns) filter (
            where is_ok and sent_ns >= begins_ns
        ) as trend_slope,
        avg(ms_per_token) filter (where is_ok and sent_ns >= begins_ns)
            as trend_mean,
        median(busy_ms) filter (where is_ok and is_first_wave)
            as first_wave_ms_p50,
        median(busy_ms) filter (where is_ok and not is_first_wave)
            as later_ms_p50,
        count(*) filter (where is_ok and not is_first_wave) as later_requests,
    from spread
    group by run_id, cell_id
)

select * from final
