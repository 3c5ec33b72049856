-- grain: one row per row_id
-- The nearest context at which needles were planted on this row's server, at or
-- above the row's own context.
with

cells as (
    select * from {{ ref('int_cells') }}
),

requests as (
    select * from {{ ref('int_cell_requests') }}
),

needles as (
    select * from {{ ref('int_needles') }}
),

contexts as (
    select
        cells.row_id,
        cells.run_id,
        coalesce(
            cells.context_tokens,
            cells.asked_prompt_tokens + coalesce(cells.asked_output_tokens, 0),
            requests.longest_tokens
        ) as row_context_tokens,
    from cells
    left join requests using (run_id, cell_id)
),

final as (
    select
        contexts.row_id,
        contexts.run_id,
        contexts.row_context_tokens,
        min(needles.context_tokens) as needle_context_tokens,
    from contexts
    left join needles
        on
            contexts.run_id = needles.run_id
            and contexts.row_context_tokens <= needles.context_tokens
    group by all
)

select * from final
