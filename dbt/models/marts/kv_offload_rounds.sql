-- grain: one row per row_id and round of a load that fills the KV pool
with

requests as (
    select * from {{ ref('int_user_requests') }}
    where turn is not null
),

rows_measured as (
    select * from {{ ref('measured_rows') }}
    where workload = 'kv_offload'
),

configurations as (
    select * from {{ ref('int_configurations') }}
),

counters as (
    select * from {{ ref('int_counter_windows') }}
),

grades as (
    select
        run_id,
        request_id,
        bool_or(is_correct) as is_correct,
    from {{ ref('stg_grades') }}
    group by run_id, request_id
),

final as (
    select
        rows_measured.row_id,
        requests.turn as round,
        rows_measured.source,
        rows_measured.campaign,
        rows_measured.run_id,
        rows_measured.recipe,
        rows_measured.engine,
        rows_measured.model,
        rows_measured.layout,
        rows_measured.gpus,
        rows_measured.users,
        rows_measured.context_tokens,
        rows_measured.users * rows_measured.context_tokens
            as pool_asked_tokens,
        any_value(configurations.kv_tokens) as kv_tokens,
        any_value(counters.preemptions) as preemptions,
        count(*) as requests,
        count(*) filter (where requests.outcome = 'ok') as requests_ok,
        avg(requests.ttft_ns) / 1e6 as ttft_ms_mean,
        sum(requests.cached_tokens) / nullif(
            sum(requests.prompt_tokens) filter (
                where requests.cached_tokens is not null
            ),
            0
        ) as cached_share,
        count(grades.is_correct) as graded,
        -- null, not 0, where no answer of the round could be graded
        sum(grades.is_correct::integer)::bigint as found,
        rows_measured.standing,
    from requests
    inner join rows_measured
        on
            requests.run_id = rows_measured.run_id
            and requests.cell_id = rows_measured.cell_id
    left join configurations
        on requests.run_id = configurations.run_id
    left join counters
        on
            requests.run_id = counters.run_id
            and requests.cell_id = counters.cell_id
    left join grades
        on
            requests.run_id = grades.run_id
            and requests.request_id = grades.request_id
    group by all
)

select * from final
