-- grain: one row per run_id and cell_id
-- What the engine's own counters say of the window: after minus before, over
-- all endpoints. A counter that any endpoint lacks is null, never 0.
with

counters as (
    select * from {{ ref('stg_counters') }}
),

edges as (
    select
        run_id,
        cell_id,
        endpoint,
        count(*) filter (where "at" = 'before') as befores,
        count(*) filter (where "at" = 'after') as afters,
        {% for counter in [
            'prompt_tokens', 'cached_prompt_tokens', 'prefix_queries',
            'output_tokens', 'requests_ok', 'preemptions', 'ttft_sum_s',
            'ttft_count', 'draft_tokens', 'accepted_tokens', 'drafts'
        ] -%}
            arg_max({{ counter }}, at_ns) filter (where "at" = 'after')
            - arg_max({{ counter }}, at_ns) filter (where "at" = 'before')
                as {{ counter }},
        {% endfor -%}
        max(process_start_time_s) - min(process_start_time_s)
            as start_time_moved_s,
        count(process_start_time_s) as start_times,
        max(kv_usage) as kv_usage_max,
        max(requests_waiting) as requests_waiting_max,
        any_value(file) as file,
    from counters
    group by run_id, cell_id, endpoint
),

final as (
    select
        run_id,
        cell_id,
        any_value(file) as file,
        min(least(befores, afters)) > 0 as has_both_edges,
        {% for counter in [
            'prompt_tokens', 'cached_prompt_tokens', 'prefix_queries',
            'output_tokens', 'requests_ok', 'preemptions', 'ttft_sum_s',
            'ttft_count', 'draft_tokens', 'accepted_tokens', 'drafts'
        ] -%}
            case
                when count({{ counter }}) = count(*) then sum({{ counter }})
            end as {{ counter }},
        {% endfor -%}
        -- a restarted process counts from 0 again
        coalesce(bool_or(start_time_moved_s > 1), false)
        or coalesce(bool_or(output_tokens < 0 or prompt_tokens < 0), false)
            as has_restarted,
        min(start_times) > 0 or count(output_tokens) = count(*)
            as is_restart_observed,
        max(kv_usage_max) as kv_usage_max,
        max(requests_waiting_max) as requests_waiting_max,
    from edges
    group by run_id, cell_id
)

select * from final
