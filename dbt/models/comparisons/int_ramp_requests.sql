-- grain: one row per timed request_id that is a turn of a conversation
-- Reads the requests of new runs once, like every model that reads requests.
{{ config(
    materialized='incremental',
    incremental_strategy='append',
    pre_hook='{{ forget_changed_runs() }}'
) }}
with

requests as (
    select
        *,
        coalesce(planned_ns, sent_ns) as due_ns,
    from {{ ref('stg_requests_new') }}
    where phase = 'timed' and turn is not null
),

-- how long another user's prompt was being prefilled while this answer came
meanwhile as (
    select
        answering.run_id,
        answering.request_id,
        sum(
            least(answering.last_token_ns, prefilling.first_token_ns)
            - greatest(answering.first_token_ns, prefilling.sent_ns)
        )::bigint as overlap_ns,
    from requests as answering
    inner join requests as prefilling
        on
            answering.run_id = prefilling.run_id
            and answering.cell_id = prefilling.cell_id
            and answering.user != prefilling.user
            and answering.last_token_ns > prefilling.sent_ns
            and answering.first_token_ns < prefilling.first_token_ns
    group by answering.run_id, answering.request_id
),

final as (
    select
        requests.run_id,
        requests.cell_id,
        requests.request_id,
        requests.user,
        requests.turn,
        requests.outcome,
        requests.asked_prompt_tokens,
        requests.expected_cached_tokens,
        requests.prompt_tokens,
        requests.cached_tokens,
        requests.output_tokens,
        requests.file,
        requests.line,
        requests.turn = max(requests.turn) over (
            partition by requests.run_id, requests.cell_id
        ) as is_last_turn,
        case when requests.outcome = 'ok' then requests.first_token_ns end
        - requests.due_ns as ttft_ns,
        case
            when requests.outcome = 'ok'
                then requests.last_token_ns - requests.first_token_ns
        end as decode_ns,
        coalesce(meanwhile.overlap_ns, 0) as overlap_ns,
    from requests
    left join meanwhile
        on
            requests.run_id = meanwhile.run_id
            and requests.request_id = meanwhile.request_id
)

select * from final
