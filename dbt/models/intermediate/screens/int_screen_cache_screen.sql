-- grain: one row per row_id
-- The published campaign's rule: no prefill faster than 60,000 tokens/s.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(requests_file, cell_file)
        || coalesce(':' || prefill_rate_line, '') as evidence,
        [
            {{ part(
                'prefill',
                "case when instant_first_tokens > 0 then 'fail' else " ~ at_most(
                    'uncached_prefill_tokens_per_s',
                    threshold('cache_screen', 'max_tokens_per_s')
                ) ~ " end",
                'uncached_prefill_tokens_per_s',
                "'<= ' || " ~ threshold('cache_screen', 'max_tokens_per_s'),
                'tokens/s',
                "case
                    when instant_first_tokens > 0
                        then instant_first_tokens
                            || ' request(s) had their first token at the send'
                    when uncached_prefill_tokens_per_s is null
                        then 'no request has a first token and a prompt count'
                    else 'uncached prompt tokens a second, fastest request'
                end"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('cache_screen') }}
