{% macro welch_degrees(base_error, base_n, changed_error, changed_n) -%}
    {#- Welch-Satterthwaite degrees of freedom of a difference of two means.
        *_error: variance of each mean (s^2 / n). 1 where nothing varies: the
        interval then has no width, whatever the quantile. -#}
    coalesce(
        ({{ base_error }} + {{ changed_error }}) ** 2
        / nullif(
            {{ base_error }} ** 2 / ({{ base_n }} - 1)
            + {{ changed_error }} ** 2 / ({{ changed_n }} - 1),
            0
        ),
        1
    )
{%- endmacro %}
