{% macro forget_changed_runs() -%}
    {#- pre-hook of every incremental model: a run whose folder changed or
        vanished is taken out before its new rows are appended -#}
    {% if is_incremental() %}
        delete from {{ this }}
        where run_id in (
            select run_id from {{ source('raw', 'changed_runs') }}
        )
    {% endif %}
{%- endmacro %}
