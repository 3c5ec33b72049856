-- grain: one row per run_id and cell_id of an imported run
-- What another tool's file says that a screen may look at and that its
-- requests, if it has any, do not say: docs/import.md. What it does not say is
-- null.
with

imports as (
    select * from {{ ref('stg_imported_results') }}
),

final as (
    select
        run_id,
        cell_id,
        (evidence ->> 'is_mock')::boolean as is_mock,
        -- a share of 0 may be a missing metric; importers leave it out
        coalesce(
            (headline ->> 'cached_tokens')::double
            / nullif((headline ->> 'prompt_tokens')::double, 0),
            (headline ->> 'cached_share')::double
        ) as cached_share,
        (evidence ->> 'attributed_cached_share')::double
            as attributed_cached_share,
        (evidence ->> 'prompts_repeated')::bigint as prompts_repeated,
        (evidence ->> 'counted_output_ratio')::double as counted_output_ratio,
        (evidence ->> 'disordered_figures')::bigint as disordered,
        (evidence ->> 'tokens_per_chunk')::double as tokens_per_chunk,
        (evidence ->> 'coalesced_share')::double as coalesced_share,
    from imports
)

select * from final
