{% macro mean_keys(tokens, limit) -%}
    {#- keys that a token of a prompt looks at, on average, in layers that keep
        at most `limit` of them (null: all) -#}
    case
        when {{ limit }} is null or {{ tokens }} <= {{ limit }}
            then {{ tokens }} / 2
        else {{ limit }} * (1 - {{ limit }} / (2 * {{ tokens }}))
    end
{%- endmacro %}

{% macro flops_per_token(tokens) -%}
    {#- prefill of one token of a prompt of `tokens` -#}
    (
        2 * params_active
        + coalesce(attn_flops_per_token_per_key_full, 0) * {{ tokens }} / 2
        + coalesce(attn_flops_per_token_per_key_sliding, 0)
        * ({{ mean_keys(tokens, 'sliding_window') }})
        + coalesce(attn_flops_per_token_per_key_sparse, 0)
        * ({{ mean_keys(tokens, 'sparse_topk') }})
        + coalesce(state_flops_per_token, 0)
    )
{%- endmacro %}

{% macro kv_read_bytes(tokens) -%}
    {#- read from the cache to decode one token after `tokens` -#}
    (
        kv_scale * (
            coalesce(kv_read_bytes_per_token_full, 0) * {{ tokens }}
            + coalesce(kv_read_bytes_per_token_sparse, 0)
            * least({{ tokens }}, coalesce(sparse_topk, {{ tokens }}))
            + coalesce(kv_bytes_per_token_sliding, 0)
            * least({{ tokens }}, coalesce(sliding_window, {{ tokens }}))
        )
        + coalesce(state_bytes_per_sequence, 0)
    )
{%- endmacro %}
