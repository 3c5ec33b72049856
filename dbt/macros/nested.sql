{% macro nested_types(column) -%}
    {#- what is read out of the mappings in raw, and as what -#}
    {%- set figures = [
        'duration_s', 'requests_planned', 'requests_ok', 'requests_failed',
        'requests_cancelled', 'prompt_tokens', 'output_tokens',
        'prompt_tokens_mean', 'output_tokens_mean', 'request_rps',
        'output_tokens_per_s', 'total_tokens_per_s', 'ttft_mean_ms',
        'ttft_p50_ms', 'ttft_p90_ms', 'ttft_p99_ms', 'tpot_p50_ms',
        'tpot_p90_ms', 'tpot_p99_ms', 'itl_p50_ms', 'itl_p99_ms',
        'e2e_mean_ms', 'e2e_p50_ms', 'e2e_p90_ms', 'e2e_p99_ms',
        'asked_rps', 'sent_rps'
    ] -%}
    {%- set columns = {
        'recipe_settings': {
            'speculation.draft_tokens': 'double',
            'prefix_caching': 'boolean',
            'max_running_requests': 'bigint',
        },
        'model_facts': {
            'is_precision_label_true': 'boolean',
            'params_active': 'double',
            'active_weight_bytes': 'double',
            'kv_read_bytes_per_token_full': 'double',
            'kv_read_bytes_per_token_sparse': 'double',
            'kv_bytes_per_token_sliding': 'double',
            'state_bytes_per_sequence': 'double',
            'attn_flops_per_token_per_key_full': 'double',
            'attn_flops_per_token_per_key_sliding': 'double',
            'attn_flops_per_token_per_key_sparse': 'double',
            'state_flops_per_token': 'double',
            'sliding_window': 'double',
            'sparse_topk': 'double',
            'kv_element_bytes': 'double',
        },
        'node_facts': {
            'cpu_gflops': 'double',
            'cpu_gflops_low_precision': 'double',
            'cpu_bandwidth_gb_s': 'double',
            'cpu_cache_bandwidth_gb_s': 'double',
        },
        'params': {'thinking': 'boolean'},
        'shape': {'ramp_up_s': 'double', 'stop_after_s': 'double'},
        'evidence': {
            'is_mock': 'boolean',
            'attributed_cached_share': 'double',
            'prompts_repeated': 'bigint',
            'counted_output_ratio': 'double',
            'disordered_figures': 'bigint',
            'tokens_per_chunk': 'double',
            'coalesced_share': 'double',
        },
        'headline': dict.fromkeys(
            figures + ['cached_tokens', 'cached_share'], 'double'
        ),
        'recomputed': dict.fromkeys(figures, 'double'),
    } -%}
    {{ return(columns[column]) }}
{%- endmacro %}

{% macro parsed(text, type) -%}
    {#- text as what it must be; null where it is not -#}
    {%- if type == 'double' -%}
        case
            when isfinite(try_cast({{ text }} as double))
                then try_cast({{ text }} as double)
        end
    {%- else -%}
        try_cast({{ text }} as {{ type }})
    {%- endif -%}
{%- endmacro %}

{% macro nested(column, name, relation=none) -%}
    {#- one value of a mapping in raw; null where it is absent or is not what
        it must be, which `unreadable` tells apart -#}
    {{ parsed(
        (relation ~ '.' if relation else '') ~ column ~ " ->> '" ~ name ~ "'",
        nested_types(column)[name]
    ) }}
{%- endmacro %}

{% macro unreadable(relation, columns) -%}
    {#- the values of these mappings that are there and cannot be read, as
        text; null where all can. A mapping is parsed once for each type. -#}
    nullif(
        array_to_string(
            list_transform(
                flatten([
                    {%- for column in columns -%}
                        {%- for type, items in nested_types(column).items()
                            | groupby(1) -%}
                            {%- set names = items | map(attribute=0) | list -%}
                            list_filter(
                                list_zip(
                                    [
                                        {%- for name in names -%}
                                            '{{ column }}.{{ name }}',
                                        {%- endfor -%}
                                    ],
                                    json_extract_string(
                                        {{ relation }}.{{ column }},
                                        [
                                            {%- for name in names -%}
                                                '$."{{ name }}"',
                                            {%- endfor -%}
                                        ]
                                    )
                                ),
                                lambda value:
                                value[2] is not null
                                and {{ parsed('value[2]', type) }} is null
                            ),
                        {%- endfor -%}
                    {%- endfor -%}
                ]),
                lambda value: value[1] || ' is ' || left(value[2], 40)
            ),
            ', '
        ),
        ''
    )
{%- endmacro %}
