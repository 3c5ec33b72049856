{% macro threshold(screen, name) -%}
    {#- a number that decides lives in contracts/screens and arrives by seed -#}
    (
        select screens.value
        from {{ ref('screens') }} as screens
        where
            screens.screen = '{{ screen }}'
            and screens.threshold = '{{ name }}'
    )
{%- endmacro %}
