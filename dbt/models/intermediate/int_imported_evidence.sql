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
        {{ nested('evidence', 'is_mock') }} as is_mock,
        -- a share of 0 may be a missing metric; importers leave it out
        coalesce(
            {{ nested('headline', 'cached_tokens') }}
            / nullif({{ nested('headline', 'prompt_tokens') }}, 0),
            {{ nested('headline', 'cached_share') }}
        ) as cached_share,
        {{ nested('evidence', 'attributed_cached_share') }}
            as attributed_cached_share,
        {{ nested('evidence', 'prompts_repeated') }} as prompts_repeated,
        {{ nested('evidence', 'counted_output_ratio') }}
            as counted_output_ratio,
        {{ nested('evidence', 'disordered_figures') }} as disordered,
        {{ nested('evidence', 'tokens_per_chunk') }} as tokens_per_chunk,
        {{ nested('evidence', 'coalesced_share') }} as coalesced_share,
    from imports
)

select * from final
