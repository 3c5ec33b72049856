-- grain: one row per row_id
-- No timed request begins like another conversation of the same server.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(requests_file, cell_file)
        || coalesce(':' || first_repeated_line, '') as evidence,
        [
            {{ part(
                'first_blocks',
                "case
                    when declares_sharing then 'not_applicable'
                    when blocks_repeated is null then 'unknown'
                    when blocks_repeated > " ~ threshold('nonce_audit', 'max_repeated') ~ " then 'fail'
                    when blocks_missing > 0 then 'unknown'
                    else 'pass'
                end",
                'blocks_repeated',
                "'<= ' || " ~ threshold('nonce_audit', 'max_repeated'),
                'requests',
                "case
                    when declares_sharing
                        then 'the workload declares that prompts share'
                    when blocks_repeated > 0
                        then 'first blocks that another conversation had sent'
                    when blocks_repeated is null or blocks_missing > 0
                        then 'first blocks were not recorded'
                    else 'every first block is unique'
                end"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('nonce_audit') }}
