-- grain: one row per run_id
-- What the run's devices can do at most: FLOP/s at the fastest arithmetic that
-- the weights allow (a GPU without it uses the next wider one), and bytes/s.
with

runs as (
    select * from {{ ref('int_runs') }}
),

peaks as (
    select * from {{ ref('gpu_peaks') }}
),

facts as (
    select
        run_id,
        gpus,
        gpu_name,
        node_gpus,
        node_facts,
        model_facts ->> 'compute_precision' as compute_precision,
        {% for fact, type in nested_types('model_facts').items()
            if type == 'double' -%}
            {{ nested('model_facts', fact) }} as {{ fact }},
        {% endfor -%}
        -- a cache in fewer bits is read in fewer bytes
        case
            when
                recipe_settings ->> 'kv_cache_dtype' like '%fp8%'
                or recipe_settings ->> 'kv_cache_dtype' like '%int8%'
                or recipe_settings ->> 'kv_cache_dtype' = 'q8_0'
                then 1.0
            when
                recipe_settings ->> 'kv_cache_dtype' like '%fp4%'
                or recipe_settings ->> 'kv_cache_dtype' like 'q4%'
                then 0.5
        end as kv_cache_element_bytes,
        coalesce(
            {{ nested('recipe_settings', 'speculation.draft_tokens') }}, 0
        ) as draft_tokens,
    from runs
),

named as (
    select
        facts.run_id,
        peaks.*,
    from facts
    inner join peaks
        on regexp_matches(facts.gpu_name, peaks.name_pattern, 'i')
    -- the most specific name wins: H200 NVL over H200
    qualify row_number() over (
        partition by facts.run_id order by peaks.specificity desc
    ) = 1
),

devices as (
    select
        facts.*,
        named.gpu,
        coalesce(facts.node_gpus, 0) = 0 as is_cpu,
        {{ nested('node_facts', 'cpu_gflops', 'facts') }} as cpu_gflops,
        coalesce(
            {{ nested('node_facts', 'cpu_gflops_low_precision', 'facts') }},
            {{ nested('node_facts', 'cpu_gflops', 'facts') }}
        ) as cpu_low_gflops,
        case
            when
                facts.active_weight_bytes
                <= {{ threshold('roofline', 'cpu_cached_weight_bytes') }}
                then coalesce(
                    {{ nested(
                        'node_facts', 'cpu_cache_bandwidth_gb_s', 'facts'
                    ) }},
                    {{ nested('node_facts', 'cpu_bandwidth_gb_s', 'facts') }}
                )
            else {{ nested('node_facts', 'cpu_bandwidth_gb_s', 'facts') }}
        end as cpu_gb_s,
        case facts.compute_precision
            when 'fp32' then named.tf32_tflops
            when 'bf16' then named.bf16_tflops
            when 'fp8' then coalesce(named.fp8_tflops, named.bf16_tflops)
            when 'int8' then coalesce(named.int8_tops, named.bf16_tflops)
            when 'fp4' then coalesce(
                named.fp4_tflops, named.fp8_tflops, named.bf16_tflops
            )
        end as gpu_tflops,
        named.bandwidth_gb_s as gpu_gb_s,
    from facts
    left join named on facts.run_id = named.run_id
),

final as (
    select
        * exclude (node_facts),
        case
            when not is_cpu then gpus * gpu_tflops * 1e12
            when compute_precision = 'fp32' then cpu_gflops * 1e9
            when compute_precision is not null then cpu_low_gflops * 1e9
        end as peak_flops,
        case
            when is_cpu then cpu_gb_s * 1e9 else gpus * gpu_gb_s * 1e9
        end as peak_bytes_per_s,
        coalesce(kv_cache_element_bytes / nullif(kv_element_bytes, 0), 1.0)
            as kv_scale,
    from devices
)

select * from final
