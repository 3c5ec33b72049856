{% macro wilson(hits, trials, side) -%}
    {#- 95 % score interval of a share (Wilson 1927): honest at 0 and 1 and for
        small samples, where the normal interval has no width at all. Null
        without trials. side: low or high. -#}
    {%- set z = 1.959964 -%}
    (
        (
            {{ hits }} / nullif({{ trials }}, 0)
            + {{ z * z / 2 }} / nullif({{ trials }}, 0)
            {{ '-' if side == 'low' else '+' }} {{ z }} * sqrt(
                greatest(
                    0,
                    {{ hits }} / nullif({{ trials }}, 0)
                    * (1 - {{ hits }} / nullif({{ trials }}, 0))
                    / nullif({{ trials }}, 0)
                    + {{ z * z / 4 }} / nullif({{ trials }}, 0) ** 2
                )
            )
        ) / (1 + {{ z * z }} / nullif({{ trials }}, 0))
    )
{%- endmacro %}
