-- grain: one row per row_id
-- Every needle of the nearest probed context that covers the row was found.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(
            needles_file || coalesce(':' || needles_first_missed_line, ''),
            cell_file
        ) as evidence,
        [
            {{ part(
                'needles',
                "case
                    when coalesce(needles_asked_at_context, 0) = 0
                        then 'unknown'
                    when needles_asked_at_context - needles_found_at_context
                        > needles_ungraded_at_context then 'fail'
                    when needles_ungraded_at_context > 0
                        or not has_required_needle_depths then 'unknown'
                    else 'pass'
                end",
                'needles_asked_at_context - needles_found_at_context',
                "'0 missed'",
                'needles missed',
                "case
                    when coalesce(needles_asked_at_context, 0) = 0
                        then 'no needle was asked on this server at '
                            || coalesce(row_context_tokens::varchar, 'an unknown number of')
                            || ' tokens or above'
                    else needles_found_at_context || ' of '
                        || needles_asked_at_context || ' found at '
                        || needle_context_tokens || ' tokens'
                        || case when not has_required_needle_depths
                            then ', not at all of 10, 50 and 90 %' else '' end
                end"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('needle_gate') }}
