-- grain: one row per configuration_id with a start that is known to be cold
with

starts as (
    select * from {{ ref('int_starts') }}
),

quantiles as (
    select * from {{ ref('t_quantiles') }}
),

grouped as (
    select
        configuration_id,
        campaign,
        source,
        recipe,
        engine,
        model,
        layout,
        gpus,
        count(*) filter (where kind = 'cold') as cold_starts,
        count(*) filter (where kind = 'warm') as warm_starts,
        count(*) filter (where kind = 'unknown') as unknown_starts,
        {% for kind in ['cold', 'warm'] -%}
            {% for quantity in [
                'ready_s', 'process_s', 'weights_s', 'compile_s',
                'graph_capture_s', 'kv_s', 'first_request_ttft_ms'
            ] -%}
                avg({{ quantity }}) filter (where kind = '{{ kind }}')
                    as {{ kind }}_{{ quantity }},
            {% endfor -%}
            var_samp(ready_s) filter (where kind = '{{ kind }}')
            / count(ready_s) filter (where kind = '{{ kind }}')
                as {{ kind }}_error,
        {% endfor -%}
        list(run_id order by run_id) filter (where kind = 'cold')
            as cold_run_ids,
        list(run_id order by run_id) filter (where kind = 'warm')
            as warm_run_ids,
    from starts
    group by all
),

compared as (
    select
        *,
        cold_ready_s - warm_ready_s as saved_s,
        case
            when cold_starts >= 2 and warm_starts >= 2
                then {{ welch_degrees(
                    'cold_error', 'cold_starts', 'warm_error', 'warm_starts'
                ) }}
        end as degrees,
    from grouped
    where cold_starts > 0
),

final as (
    select
        compared.* exclude (cold_error, warm_error, degrees),
        compared.saved_s
        - t.t_975 * sqrt(compared.cold_error + compared.warm_error)
            as saved_s_low,
        compared.saved_s
        + t.t_975 * sqrt(compared.cold_error + compared.warm_error)
            as saved_s_high,
        compared.warm_ready_s / nullif(compared.cold_ready_s, 0)
            as warm_share_of_cold,
    from compared
    asof left join quantiles as t on compared.degrees >= t.degrees_of_freedom
)

select * from final
