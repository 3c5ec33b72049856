-- grain: one row per row_id
-- A stream of about one token a chunk; else its gaps are per chunk.
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
                'tokens_per_chunk',
                "case
                    when draft_tokens > 0
                        and tokens_per_chunk > " ~ threshold('stream_granularity', 'max_tokens_per_chunk') ~ "
                        and tokens_per_chunk <= 1 + draft_tokens
                        then 'not_applicable'
                    else " ~ at_most('tokens_per_chunk', threshold('stream_granularity', 'max_tokens_per_chunk')) ~ "
                end",
                'tokens_per_chunk',
                "'<= ' || " ~ threshold('stream_granularity', 'max_tokens_per_chunk'),
                'tokens/chunk',
                "case when draft_tokens > 0
                    then 'speculation of ' || draft_tokens || ' tokens declared'
                    else 'tokens of usage over streamed chunks' end"
            ) }},
            {{ part(
                'bursts',
                "case
                    when long_answers = 0 then 'not_applicable'
                    else " ~ at_most('burst_share', threshold('stream_granularity', 'max_burst_share')) ~ "
                end",
                'burst_share',
                "'<= ' || " ~ threshold('stream_granularity', 'max_burst_share'),
                'share of answers',
                "'answers that came at once at their end'"
            ) }},
            {{ part(
                'coalesced',
                at_most('coalesced_share', threshold('stream_granularity', 'max_coalesced_share')),
                'coalesced_share',
                "'<= ' || " ~ threshold('stream_granularity', 'max_coalesced_share'),
                'share of chunks',
                "'chunks that the client read together with the one before'"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('stream_granularity') }}
