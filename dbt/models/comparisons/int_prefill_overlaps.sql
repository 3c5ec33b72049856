-- grain: one row per timed request_id of a user that was answered while
-- another user's prompt was being prefilled
-- Reads the requests of new runs once, like every model that reads requests.
{{ config(
    materialized='incremental',
    incremental_strategy='append',
    pre_hook='{{ forget_changed_runs() }}'
) }}
with

requests as (
    select * from {{ ref('stg_requests_new') }}
    where
        phase = 'timed'
        and "user" is not null
        and first_token_ns is not null
),

-- a prefill lasts from its sending to its first token
spans as (
    select
        answering.run_id,
        answering.request_id,
        greatest(answering.first_token_ns, prefilling.sent_ns) as from_ns,
        least(answering.last_token_ns, prefilling.first_token_ns) as to_ns,
    from requests as answering
    inner join requests as prefilling
        on
            answering.run_id = prefilling.run_id
            and answering.cell_id = prefilling.cell_id
            and answering.user != prefilling.user
            and answering.last_token_ns > prefilling.sent_ns
            and answering.first_token_ns < prefilling.first_token_ns
            and answering.first_token_ns < answering.last_token_ns
),

-- prefills of several users may overlap each other: time counts once
before_each as (
    select
        *,
        max(to_ns) over (
            partition by run_id, request_id
            order by from_ns, to_ns
            rows between unbounded preceding and 1 preceding
        ) as covered_to_ns,
    from spans
),

lasted as (
    select
        run_id,
        request_id,
        sum(
            greatest(
                0, to_ns - greatest(from_ns, coalesce(covered_to_ns, from_ns))
            )
        )::bigint as overlap_ns,
    from before_each
    group by run_id, request_id
),

gaps as (
    select
        run_id,
        request_id,
        sent_ns,
        output_tokens / len(user_gap_ns) as tokens_per_chunk,
        unnest(user_gap_ns) as gap_ns,
        generate_subscripts(user_gap_ns, 1) as chunk,
    from requests
    where len(user_gap_ns) > 0
),

arrivals as (
    select
        run_id,
        request_id,
        tokens_per_chunk,
        chunk,
        sent_ns + sum(gap_ns) over (
            partition by run_id, request_id order by chunk
        ) as at_ns,
    from gaps
),

came as (
    select
        arrivals.run_id,
        arrivals.request_id,
        sum(arrivals.tokens_per_chunk) as overlap_tokens,
    from arrivals
    semi join spans
        on
            arrivals.run_id = spans.run_id
            and arrivals.request_id = spans.request_id
            and arrivals.at_ns > spans.from_ns
            and arrivals.at_ns <= spans.to_ns
    -- the first chunk ends the prefill of this request itself
    where arrivals.chunk > 1
    group by arrivals.run_id, arrivals.request_id
),

final as (
    select
        lasted.run_id,
        lasted.request_id,
        lasted.overlap_ns,
        coalesce(came.overlap_tokens, 0) as overlap_tokens,
    from lasted
    left join came
        on
            lasted.run_id = came.run_id
            and lasted.request_id = came.request_id
)

select * from final
