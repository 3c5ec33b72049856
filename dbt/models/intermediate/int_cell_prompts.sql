-- grain: one row per run_id and cell_id
-- A prompt's first block belongs to one conversation, or to one request where
-- there is none: another owner on the same server may find it in the cache.
{{ config(
    materialized='incremental',
    incremental_strategy='append',
    pre_hook='{{ forget_changed_runs() }}'
) }}
with

requests as (
    select
        run_id,
        cell_id,
        phase,
        line,
        hash(first_block_sha256) as block,
        -- a conversation is of one cell
        hash(cell_id, phase, coalesce(session_id, request_id)) as owner,
        first_block_sha256 is null as is_missing,
        hash(prompt_sha256) as prompt,
        prompt_sha256 is null as is_prompt_missing,
    from {{ ref('stg_requests_new') }}
    where outcome != 'unsent'
),

owners as (
    select
        run_id,
        block,
        min(owner) != max(owner) as is_repeated,
    from requests
    where not is_missing
    group by run_id, block
),

final as (
    select
        requests.run_id,
        requests.cell_id,
        count(*) filter (where requests.is_missing) as blocks_missing,
        count(*) filter (where owners.is_repeated) as blocks_repeated,
        min(requests.line) filter (where owners.is_repeated)
            as first_repeated_line,
        count(*) as prompts,
        count(*) filter (where not requests.is_prompt_missing)
            as prompts_known,
    from requests
    left join owners
        on
            requests.run_id = owners.run_id
            and requests.block = owners.block
            and not requests.is_missing
    where requests.phase = 'timed'
    group by requests.run_id, requests.cell_id
)

select * from final
