-- grain: one row per row_id
-- No rate above what devices, precision and model allow: int_row_ceilings.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(run_file, cell_file) as evidence,
        [
            {{ part(
                'prefill',
                "case
                    when prefill_tokens_per_s is null
                        or coalesce(prefill_ceiling_tokens_per_s, 0) = 0
                        then 'unknown'
                    when prefill_tokens_per_s
                        <= prefill_ceiling_tokens_per_s * " ~ threshold('roofline', 'max_share') ~ "
                        then 'pass'
                    else 'fail'
                end",
                "prefill_tokens_per_s / nullif(
                    prefill_ceiling_tokens_per_s, 0
                )",
                "'<= ' || " ~ threshold('roofline', 'max_share'),
                'share of ceiling',
                "case
                    when prefill_tokens_per_s is null then 'no prefill rate'
                    when prefill_ceiling_tokens_per_s is null
                        then 'model facts or device peaks are missing'
                    else round(prefill_tokens_per_s) || ' of '
                        || round(prefill_ceiling_tokens_per_s)
                        || ' tokens/s possible'
                end"
            ) }},
            {{ part(
                'decode',
                "case
                    when decode_tokens_per_s is null
                        or coalesce(decode_ceiling_tokens_per_s, 0) = 0
                        then 'unknown'
                    when decode_tokens_per_s
                        <= decode_ceiling_tokens_per_s * " ~ threshold('roofline', 'max_share') ~ "
                        then 'pass'
                    else 'fail'
                end",
                "decode_tokens_per_s / nullif(
                    decode_ceiling_tokens_per_s, 0
                )",
                "'<= ' || " ~ threshold('roofline', 'max_share'),
                'share of ceiling',
                "case
                    when decode_tokens_per_s is null then 'no decode rate'
                    when decode_ceiling_tokens_per_s is null
                        then 'model facts or device peaks are missing'
                    else round(decode_tokens_per_s) || ' of '
                        || round(decode_ceiling_tokens_per_s)
                        || ' tokens/s possible'
                end"
            ) }},
            {{ part(
                'single_decode',
                "case
                    when decode_rate_max is null then 'not_applicable'
                    when coalesce(single_ceiling_tokens_per_s, 0) = 0
                        then 'unknown'
                    when decode_rate_max <= single_ceiling_tokens_per_s
                        * " ~ threshold('roofline', 'max_share') ~ "
                        then 'pass'
                    else 'fail'
                end",
                "decode_rate_max / nullif(
                    single_ceiling_tokens_per_s, 0
                )",
                "'<= ' || " ~ threshold('roofline', 'max_share'),
                'share of ceiling',
                "case
                    when decode_rate_max is null then 'no single decode rate'
                    when single_ceiling_tokens_per_s is null
                        then 'model facts or device peaks are missing'
                    else round(decode_rate_max) || ' of '
                        || round(single_ceiling_tokens_per_s)
                        || ' tokens/s possible'
                end"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('roofline') }}
