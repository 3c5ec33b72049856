-- grain: one row per row_id and screen
{{ config(materialized='table') }}
{% for screen in [
    'needle_gate', 'cache_screen', 'roofline', 'cache_accounting',
    'nonce_audit', 'output_attainment', 'token_reconciliation', 'population',
    'little_law', 'client_lag', 'clock_sanity', 'steady_state', 'sample_size',
    'stream_granularity', 'server_health', 'declared_config'
] -%}
    select * from {{ ref('int_screen_' ~ screen) }}
    {% if not loop.last %}union all{% endif %}
{% endfor %}
