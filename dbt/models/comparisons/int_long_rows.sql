-- grain: one row per row_id of a fresh document or a growing conversation, at
-- the largest context that its configuration reached in that workload
with

rows_measured as (
    select * from {{ ref('measured_rows') }}
    where workload in ('fresh_document', 'conversation_ramp')
),

configurations as (
    select * from {{ ref('int_configurations') }}
),

standings as (
    select * from {{ ref('standing_order') }}
),

grades as (
    select
        run_id,
        cell_id,
        sum(asked)::bigint as asked,
        sum(correct)::bigint as correct,
    from {{ ref('int_grades') }}
    group by run_id, cell_id
),

last_turns as (
    select
        run_id,
        cell_id,
        max(ttft_ns) / 1e6 as last_turn_ttft_ms,
        min(decode_tokens_per_s) as last_turn_decode_tokens_per_s,
        max(prompt_tokens) as prompt_tokens,
    from {{ ref('int_user_requests') }}
    where is_last_turn and outcome = 'ok'
    group by run_id, cell_id
),

final as (
    select
        configurations.configuration_id,
        rows_measured.row_id,
        rows_measured.workload,
        rows_measured.context_tokens,
        rows_measured.users,
        rows_measured.ttft_ms_mean,
        rows_measured.standing,
        standings.badness,
        grades.asked,
        grades.correct,
        last_turns.last_turn_ttft_ms,
        last_turns.last_turn_decode_tokens_per_s,
        last_turns.prompt_tokens as last_turn_prompt_tokens,
    from rows_measured
    inner join configurations on rows_measured.run_id = configurations.run_id
    inner join standings on rows_measured.standing = standings.standing
    left join grades
        on
            rows_measured.run_id = grades.run_id
            and rows_measured.cell_id = grades.cell_id
    left join last_turns
        on
            rows_measured.run_id = last_turns.run_id
            and rows_measured.cell_id = last_turns.cell_id
    qualify
        rows_measured.context_tokens = max(rows_measured.context_tokens) over (
            partition by
                configurations.configuration_id, rows_measured.workload
        )
)

select * from final
