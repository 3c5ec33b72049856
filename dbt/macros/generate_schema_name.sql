{% macro generate_schema_name(custom_schema_name, node) -%}
    {#- schemas carry the names that analysts type: marts, not main_marts -#}
    {{ (custom_schema_name or target.schema) | trim }}
{%- endmacro %}
