-- grain: one row per run_id and cell_id
-- What the engine's own counters say of the window: after minus before, over
-- all endpoints. A counter that any endpoint lacks is null, never 0. The two
-- sides of a prefill/decode split count the same requests: what happens before
-- the first token is the prefill side's, the rest the decode side's.
{% set before_first_token = [
    'prompt_tokens', 'cached_prompt_tokens', 'prefix_queries', 'ttft_sum_s',
    'ttft_count'
] -%}
{% set after_first_token = [
    'output_tokens', 'requests_ok', 'draft_tokens', 'accepted_tokens', 'drafts'
] -%}
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
        {% for counter in
            before_first_token + after_first_token + ['preemptions'] -%}
            arg_max({{ counter }}, at_ns) filter (where "at" = 'after')
            - arg_max({{ counter }}, at_ns) filter (where "at" = 'before')
                as {{ counter }},
        {% endfor -%}
        any_value(role) as role,
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
        {% for counters, other_side in [
            (before_first_token, 'decode'),
            (after_first_token, 'prefill'),
            (['preemptions'], none)
        ] -%}
            {% set has_part = "role is distinct from '" ~ other_side ~ "'"
                if other_side else 'true' -%}
            {% for counter in counters -%}
                case
                    when
                        count({{ counter }}) filter (where {{ has_part }})
                        = count(*) filter (where {{ has_part }})
                        then sum({{ counter }}) filter (where {{ has_part }})
                end as {{ counter }},
            {% endfor -%}
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
