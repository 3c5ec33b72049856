-- grain: one row per row_id
-- The figures of a row. Of an imported row without requests they are the ones
-- that its tool computed, and only those.
with

cells as (
    select * from {{ ref('int_cells') }}
),

requests as (
    select * from {{ ref('int_cell_requests') }}
),

windows as (
    select * from {{ ref('stg_windows') }}
),

chunks as (
    select * from {{ ref('stg_cell_chunks') }}
),

imports as (
    select
        run_id,
        cell_id,
        has_requests,
        has_instants,
        -- what was recomputed from requests goes before what was claimed
        {% for figure in nested_types('recomputed') -%}
            coalesce(
                {{ nested('recomputed', figure) }},
                {{ nested('headline', figure) }}
            ) as {{ figure }},
        {% endfor -%}
    from {{ ref('stg_imported_results') }}
),

joined as (
    select
        cells.row_id,
        cells.run_id,
        cells.cell_id,
        cells.concurrency,
        imports.run_id is not null as is_imported,
        imports.has_requests,
        imports.has_instants,
        imports.asked_rps,
        imports.sent_rps,
        coalesce(
            imports.duration_s, (windows.closed_ns - windows.opened_ns) / 1e9
        ) as window_s,
        coalesce(requests.ok, imports.requests_ok)::bigint as requests_ok,
        coalesce(requests.failed, imports.requests_failed)::bigint
            as requests_failed,
        coalesce(requests.cancelled, imports.requests_cancelled)::bigint
            as requests_cancelled,
        requests.unsent::bigint as requests_unsent,
        coalesce(requests.prompt_tokens, imports.prompt_tokens)::bigint
            as prompt_tokens,
        requests.cached_tokens,
        coalesce(requests.output_tokens, imports.output_tokens)::bigint
            as output_tokens,
        coalesce(requests.prompt_tokens_mean, imports.prompt_tokens_mean)
            as prompt_tokens_mean,
        coalesce(requests.output_tokens_mean, imports.output_tokens_mean)
            as output_tokens_mean,
        imports.output_tokens_per_s as imported_output_tokens_per_s,
        imports.total_tokens_per_s as imported_total_tokens_per_s,
        imports.request_rps as imported_requests_per_s,
        coalesce(requests.ttft_count, requests_ok)::bigint as ttft_count,
        coalesce(requests.tpot_count, requests_ok)::bigint as tpot_count,
        coalesce(requests.e2e_count, requests_ok)::bigint as e2e_count,
        coalesce(requests.ttft_ms_mean, imports.ttft_mean_ms) as ttft_ms_mean,
        coalesce(requests.ttft_ms_p50, imports.ttft_p50_ms) as ttft_ms_p50,
        coalesce(requests.ttft_ms_p90, imports.ttft_p90_ms) as ttft_ms_p90,
        coalesce(requests.ttft_ms_p99, imports.ttft_p99_ms) as ttft_ms_p99,
        coalesce(requests.tpot_ms_p50, imports.tpot_p50_ms) as tpot_ms_p50,
        coalesce(requests.tpot_ms_p90, imports.tpot_p90_ms) as tpot_ms_p90,
        coalesce(requests.tpot_ms_p99, imports.tpot_p99_ms) as tpot_ms_p99,
        coalesce(requests.e2e_ms_mean, imports.e2e_mean_ms) as e2e_ms_mean,
        requests.e2e_ms_stddev,
        coalesce(requests.e2e_ms_p50, imports.e2e_p50_ms) as e2e_ms_p50,
        coalesce(requests.e2e_ms_p90, imports.e2e_p90_ms) as e2e_ms_p90,
        coalesce(requests.e2e_ms_p99, imports.e2e_p99_ms) as e2e_ms_p99,
        coalesce(chunks.gap_p50_ms, imports.itl_p50_ms) as chunk_gap_ms_p50,
        coalesce(chunks.gap_p99_ms, imports.itl_p99_ms) as chunk_gap_ms_p99,
        chunks.gap_count,
        requests.output_tokens / nullif(requests.chunks, 0)
            as tokens_per_chunk,
        requests.coalesced_chunks / nullif(requests.chunks, 0)
            as coalesced_share,
        requests.prefill_rate_max,
        requests.prefill_rate_prompt_tokens,
        requests.decode_rate_p50,
        requests.decode_rate_max,
        coalesce(
            windows.mean_concurrency, requests.busy_ns
            / nullif(windows.closed_ns - windows.opened_ns, 0)
        ) as mean_concurrency,
        windows.max_concurrency,
    from cells
    left join requests using (run_id, cell_id)
    left join windows using (run_id, cell_id)
    left join chunks using (run_id, cell_id)
    left join imports using (run_id, cell_id)
),

final as (
    select
        *,
        coalesce(
            case
                when not is_imported or has_instants
                    then output_tokens / nullif(window_s, 0)
            end,
            imported_output_tokens_per_s
        ) as output_tokens_per_s,
        coalesce(
            case
                when not is_imported or has_instants
                    then (prompt_tokens + output_tokens) / nullif(window_s, 0)
            end,
            imported_total_tokens_per_s
        ) as total_tokens_per_s,
        coalesce(
            case
                when not is_imported or has_instants
                    then requests_ok / nullif(window_s, 0)
            end,
            imported_requests_per_s
        ) as requests_per_s,
        (prompt_tokens - coalesce(cached_tokens, 0)) / nullif(window_s, 0)
            as uncached_tokens_per_s,
        -- the largest batch that can have been: an upper bound for a ceiling
        greatest(
            coalesce(max_concurrency, 0), coalesce(concurrency, 0), 1
        )::double as batch,
    from joined
)

select * from final
