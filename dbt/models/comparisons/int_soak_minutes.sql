-- grain: one row per soak (run_id, variant, concurrency) and whole minute
-- Reads the requests of new runs once, like every model that reads requests.
{{ config(
    materialized='incremental',
    incremental_strategy='append',
    pre_hook='{{ forget_changed_runs() }}'
) }}
with

cells as (
    select * from {{ ref('stg_cells') }}
    where workload = 'soak'
),

windows as (
    select * from {{ ref('stg_windows') }}
),

requests as (
    select * from {{ ref('stg_requests_new') }}
    where phase = 'timed'
),

soaks as (
    select
        cells.run_id,
        cells.cell_id,
        cells.variant,
        cells.concurrency,
        windows.opened_ns,
        windows.closed_ns,
        -- a soak may be one long window or many short ones
        min(windows.opened_ns) over (
            partition by cells.run_id, cells.variant, cells.concurrency
        ) as soak_opened_ns,
    from cells
    inner join windows
        on
            cells.run_id = windows.run_id
            and cells.cell_id = windows.cell_id
),

final as (
    select
        soaks.run_id,
        soaks.variant,
        soaks.concurrency,
        ((requests.end_ns - soaks.soak_opened_ns) // 60_000_000_000)
            as soak_minute,
        count(*) filter (where requests.outcome = 'ok') as ok,
        count(*) filter (where requests.outcome = 'failed') as failed,
        coalesce(
            sum(requests.output_tokens) filter (where requests.outcome = 'ok'),
            0
        ) / 60.0 as output_tokens_per_s,
        median(
            requests.first_token_ns
            - coalesce(requests.planned_ns, requests.sent_ns)
        ) / 1e6 as ttft_ms_p50,
    from soaks
    inner join requests
        on
            soaks.run_id = requests.run_id
            and soaks.cell_id = requests.cell_id
    -- the last minute is cut short by the end of the window
    where
        (requests.end_ns - soaks.soak_opened_ns) // 60_000_000_000
        < (soaks.closed_ns - soaks.soak_opened_ns) // 60_000_000_000
    group by all
)

select * from final
