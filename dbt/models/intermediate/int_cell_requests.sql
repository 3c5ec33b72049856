-- grain: one row per run_id and cell_id
-- The only models that read requests are incremental: they read the requests
-- of new runs once, and everything after them works on cells.
{{ config(
    materialized='incremental',
    incremental_strategy='append',
    pre_hook='{{ forget_changed_runs() }}'
) }}
with

requests as (
    select * from {{ ref('stg_requests_new') }}
    where phase = 'timed'
),

timings as (
    select
        *,
        outcome = 'ok' as is_ok,
        (first_token_ns - planned_ns) / 1e6 as ttft_ms,
        (end_ns - planned_ns) / 1e6 as e2e_ms,
        case
            when output_tokens >= 2
                then
                    (last_token_ns - first_token_ns) / 1e6 / (output_tokens - 1)
        end as tpot_ms,
        (prompt_tokens - coalesce(cached_tokens, 0))
        / nullif((first_token_ns - sent_ns) / 1e9, 0) as prefill_rate,
        case
            when output_tokens >= 8
                then
                    (output_tokens - 1)
                    / nullif((last_token_ns - first_token_ns) / 1e9, 0)
        end as decode_rate,
    from requests
),

aggregates as (
    select
        run_id,
        cell_id,
        any_value(campaign) as campaign,
        any_value(file) as file,
        count(*) as recorded,
        count(*) filter (where is_ok) as ok,
        count(*) filter (where outcome = 'failed') as failed,
        count(*) filter (where outcome = 'cancelled') as cancelled,
        count(*) filter (where outcome = 'unsent') as unsent,
        count(*) filter (
            where is_ok and (
                error_class is not null
                or first_token_ns is null
                or coalesce(http_status, 200) >= 400
            )
        ) as ok_with_error,
        arg_min(line, line) filter (where not is_ok) as first_bad_line,
        mode(error_class) as commonest_error,
        -- tokens
        (sum(prompt_tokens) filter (where is_ok))::bigint as prompt_tokens,
        (sum(cached_tokens) filter (where is_ok))::bigint as cached_tokens,
        (sum(output_tokens) filter (where is_ok))::bigint as output_tokens,
        (sum(reasoning_tokens) filter (where is_ok))::bigint
            as reasoning_tokens,
        count(*) filter (where is_ok and prompt_tokens is null)
            as prompt_missing,
        count(*) filter (where is_ok and cached_tokens is null)
            as cached_missing,
        count(*) filter (where is_ok and output_tokens is null)
            as output_missing,
        count(*) filter (where is_ok and output_token_source = 'counted')
            as output_counted,
        sum(coalesce(output_tokens, chunk_count))::bigint as all_output_tokens,
        sum(prompt_tokens)::bigint as all_prompt_tokens,
        (sum(prompt_tokens) filter (
            where is_ok and asked_prompt_tokens is not null
        ))::bigint as prompt_tokens_where_asked,
        (sum(asked_prompt_tokens) filter (
            where is_ok and prompt_tokens is not null
        ))::bigint as asked_prompt_tokens,
        (sum(asked_output_tokens) filter (where is_ok))::bigint
            as asked_output_tokens,
        max(prompt_tokens + coalesce(output_tokens, 0)) as longest_tokens,
        avg(prompt_tokens) filter (where is_ok) as prompt_tokens_mean,
        avg(output_tokens) filter (where is_ok) as output_tokens_mean,
        -- attainment
        count(*) filter (
            where is_ok and asked_output_tokens is not null
            and output_tokens is not null
        ) as attainment_known,
        count(*) filter (
            where is_ok and not (
                output_tokens / asked_output_tokens
                between
                {{ threshold('output_attainment', 'ratio_min') }}
                and {{ threshold('output_attainment', 'ratio_max') }}
            )
        ) as off_length,
        count(*) filter (where is_ok and finish_reason = 'length')
            as finish_length,
        count(*) filter (where is_ok and finish_reason = 'stop') as finish_stop,
        count(*) filter (where is_ok and finish_reason is null)
            as finish_missing,
        -- an answer without text: sha256 of nothing
        count(*) filter (
            where is_ok and output_sha256
            = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
        ) as empty_answers,
        count(*) filter (where is_ok and output_sha256 is null)
            as answers_missing,
        count(*) filter (where is_ok and coalesce(reasoning_tokens, 0) > 0)
            as reasoned,
        -- stream
        (sum(chunk_count) filter (where is_ok and output_tokens is not null))
        ::bigint as chunks,
        (sum(coalesced_chunks) filter (where is_ok))::bigint
            as coalesced_chunks,
        count(*) filter (where is_ok and output_tokens >= 8) as long_answers,
        count(*) filter (
            where is_ok and output_tokens >= 8
            and (
                chunk_count < 2
                or (last_token_ns - first_token_ns)
                < 0.02 * (last_token_ns - sent_ns)
            )
        ) as burst_answers,
        -- latency, from the planned send
        count(ttft_ms) filter (where is_ok) as ttft_count,
        avg(ttft_ms) filter (where is_ok) as ttft_ms_mean,
        quantile_cont(ttft_ms, [0.5, 0.9, 0.99])
        filter (where is_ok) as ttft_ms_quantiles,
        avg((first_token_ns - sent_ns) / 1e6) filter (where is_ok)
            as ttft_from_send_ms_mean,
        count(tpot_ms) filter (where is_ok) as tpot_count,
        avg(tpot_ms) filter (where is_ok) as tpot_ms_mean,
        quantile_cont(tpot_ms, [0.5, 0.9, 0.99])
        filter (where is_ok) as tpot_ms_quantiles,
        count(e2e_ms) filter (where is_ok) as e2e_count,
        avg(e2e_ms) filter (where is_ok) as e2e_ms_mean,
        stddev_samp(e2e_ms) filter (where is_ok) as e2e_ms_stddev,
        quantile_cont(e2e_ms, [0.5, 0.9, 0.99])
        filter (where is_ok) as e2e_ms_quantiles,
        -- rates of single requests
        max(prefill_rate) filter (where is_ok) as prefill_rate_max,
        arg_max(prompt_tokens, prefill_rate) filter (where is_ok)
            as prefill_rate_prompt_tokens,
        arg_max(line, prefill_rate) filter (where is_ok)
            as prefill_rate_line,
        median(decode_rate) filter (where is_ok) as decode_rate_p50,
        max(decode_rate) filter (where is_ok) as decode_rate_max,
        arg_max(line, decode_rate) filter (where is_ok) as decode_rate_line,
        -- clocks
        count(*) filter (where is_ok and first_token_ns <= sent_ns)
            as instant_first_tokens,
        count(*) filter (
            where sent_ns < planned_ns
            or first_token_ns < sent_ns
            or last_token_ns < first_token_ns
            or end_ns < last_token_ns
            or end_ns < sent_ns
        ) as disordered,
        sum(gap_negative_count)::bigint as negative_gaps,
        count(*) filter (
            where is_ok and gap_count > 0
            and sent_ns + gap_sum_ns != last_token_ns
        ) as gaps_not_adding_up,
        count(*) filter (where is_ok and gap_count != chunk_count)
            as chunks_not_adding_up,
        sum(end_ns - sent_ns)::double as busy_ns,
        min(planned_ns) as first_planned_ns,
        max(planned_ns) as last_planned_ns,
        min(sent_ns) as first_sent_ns,
        max(sent_ns) as last_sent_ns,
    from timings
    group by run_id, cell_id
),

final as (
    select
        * exclude (ttft_ms_quantiles, tpot_ms_quantiles, e2e_ms_quantiles),
        ttft_ms_quantiles[1] as ttft_ms_p50,
        ttft_ms_quantiles[2] as ttft_ms_p90,
        ttft_ms_quantiles[3] as ttft_ms_p99,
        tpot_ms_quantiles[1] as tpot_ms_p50,
        tpot_ms_quantiles[2] as tpot_ms_p90,
        tpot_ms_quantiles[3] as tpot_ms_p99,
        e2e_ms_quantiles[1] as e2e_ms_p50,
        e2e_ms_quantiles[2] as e2e_ms_p90,
        e2e_ms_quantiles[3] as e2e_ms_p99,
    from aggregates
)

select * from final
