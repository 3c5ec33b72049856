-- grain: one row per row_id
-- Answers as long as asked, ended as planned, and not empty.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(requests_file, cell_file) as evidence,
        [
            {{ part(
                'total_length',
                "case
                    when not has_cell_record then 'unknown'
                    when not is_fixed_length then 'not_applicable'
                    when output_attainment_ratio is null then 'unknown'
                    when output_attainment_ratio
                        between " ~ threshold('output_attainment', 'ratio_min') ~ " and " ~ threshold('output_attainment', 'ratio_max') ~ "
                        then 'pass'
                    else 'fail'
                end",
                'output_attainment_ratio',
                threshold('output_attainment', 'ratio_min') ~ " || ' to ' || " ~ threshold('output_attainment', 'ratio_max'),
                'tokens/asked',
                "'output tokens over asked tokens, all requests'"
            ) }},
            {{ part(
                'single_lengths',
                "case
                    when not has_cell_record then 'unknown'
                    when not is_fixed_length then 'not_applicable'
                    when off_length_share is null then 'unknown'
                    when off_length_share > " ~ threshold('output_attainment', 'max_off_share') ~ " then 'fail'
                    when attainment_unknown > 0 then 'unknown'
                    else 'pass'
                end",
                'off_length_share',
                "'<= ' || " ~ threshold('output_attainment', 'max_off_share'),
                'share of requests',
                "'requests longer or shorter than asked'"
            ) }},
            {{ part(
                'ends',
                "case
                    when not has_cell_record then 'unknown'
                    when planned_finish_reason is null then 'not_applicable'
                    when finish_missing > 0 then 'unknown'
                    else " ~ at_most('off_finish_share', threshold('output_attainment', 'max_off_share')) ~ "
                end",
                'off_finish_share',
                "'<= ' || " ~ threshold('output_attainment', 'max_off_share'),
                'share of requests',
                "'requests that did not end by '
                || coalesce(planned_finish_reason, 'a planned reason')"
            ) }},
            {{ part(
                'empty_answers',
                "case
                    when not has_cell_record then 'unknown'
                    when is_fixed_length then 'not_applicable'
                    when answers_missing > 0 then 'unknown'
                    else " ~ at_most('empty_answer_share', threshold('output_attainment', 'max_off_share')) ~ "
                end",
                'empty_answer_share',
                "'<= ' || " ~ threshold('output_attainment', 'max_off_share'),
                'share of requests',
                "'answers without any text'"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('output_attainment') }}
