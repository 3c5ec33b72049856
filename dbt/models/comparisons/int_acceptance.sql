-- grain: one row per configuration_id and kind of cell that speculated
with

counters as (
    select * from {{ ref('int_counter_windows') }}
),

configurations as (
    select * from {{ ref('int_configurations') }}
),

rows_measured as (
    select * from {{ ref('measured_rows') }}
    where standing != 'invalid'
),

final as (
    select
        configurations.configuration_id,
        rows_measured.workload,
        rows_measured.variant,
        rows_measured.concurrency,
        rows_measured.users,
        rows_measured.context_tokens,
        rows_measured.asked_prompt_tokens,
        rows_measured.asked_output_tokens,
        -- the verified step always gives one token of its own
        1 + sum(counters.accepted_tokens) / nullif(sum(counters.drafts), 0)
            as acceptance_length_tokens,
        sum(counters.accepted_tokens) / nullif(sum(counters.draft_tokens), 0)
            as acceptance_share,
    from counters
    inner join rows_measured
        on
            counters.run_id = rows_measured.run_id
            and counters.cell_id = rows_measured.cell_id
    inner join configurations
        on counters.run_id = configurations.run_id
    where counters.draft_tokens > 0
    group by all
)

select * from final
