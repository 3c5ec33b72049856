{% macro part(name, verdict, measured, required, unit, reason) -%}
    {#- one thing that a screen looks at; the worst part is the verdict -#}
    {
        'part': '{{ name }}',
        'verdict': ({{ verdict }})::varchar,
        'measured': ({{ measured }})::double,
        'required': ({{ required }})::varchar,
        'unit': '{{ unit }}'::varchar,
        'reason': ({{ reason }})::varchar
    }
{%- endmacro %}

{% macro judged(screen, relation='parts') -%}
    {#- fail, else unknown, else pass, else not_applicable -#}
    select
        row_id,
        '{{ screen }}' as screen,
        worst.verdict as verdict,
        worst.part as part,
        worst.measured as measured,
        worst.required as required,
        worst.unit as unit,
        evidence,
        worst.reason as reason,
        parts,
    from (
        select
            row_id,
            evidence,
            parts,
            coalesce(
                list_filter(parts, lambda p: p.verdict = 'fail')[1],
                list_filter(parts, lambda p: p.verdict = 'unknown')[1],
                list_filter(parts, lambda p: p.verdict = 'pass')[1],
                parts[1]
            ) as worst,
        from {{ relation }}
    ) as weighed
{%- endmacro %}

{% macro at_most(measured, limit) -%}
    {#- what was not measured is unknown; what is not finite fails -#}
    case
        when {{ measured }} is null then 'unknown'
        when not isfinite(({{ measured }})::double) then 'fail'
        when {{ measured }} <= {{ limit }} then 'pass'
        else 'fail'
    end
{%- endmacro %}

{% macro at_least(measured, limit) -%}
    case
        when {{ measured }} is null then 'unknown'
        when not isfinite(({{ measured }})::double) then 'fail'
        when {{ measured }} >= {{ limit }} then 'pass'
        else 'fail'
    end
{%- endmacro %}

{% macro student_t(z, degrees) -%}
    (
        {{ z }}
        + (pow({{ z }}, 3) + {{ z }}) / 4 / {{ degrees }}
        + (5 * pow({{ z }}, 5) + 16 * pow({{ z }}, 3) + 3 * {{ z }})
        / 96 / pow({{ degrees }}, 2)
    )
{%- endmacro %}
