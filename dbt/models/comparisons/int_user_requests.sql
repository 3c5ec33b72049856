-- grain: one row per timed request_id that belongs to a user: a turn of a
-- conversation, or a side of an interference
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
    where phase = 'timed' and "user" is not null
),

overlaps_found as (
    select * from {{ ref('int_prefill_overlaps') }}
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
        coalesce(overlaps_found.overlap_ns, 0) as overlap_ns,
        -- the first token belongs to the prefill
        case
            when requests.outcome = 'ok'
                then
                    (requests.output_tokens - 1)
                    / (
                        nullif(
                            requests.last_token_ns - requests.first_token_ns, 0
                        ) / 1e9
                    )
        end as decode_tokens_per_s,
        case
            when requests.outcome = 'ok'
                then
                    overlaps_found.overlap_tokens
                    / (nullif(overlaps_found.overlap_ns, 0) / 1e9)
        end as decode_tokens_per_s_during_prefill,
    from requests
    left join overlaps_found
        on
            requests.run_id = overlaps_found.run_id
            and requests.request_id = overlaps_found.request_id
)

select * from final
