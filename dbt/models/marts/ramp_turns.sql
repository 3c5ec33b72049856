-- grain: one row per request_id that is a turn of a growing conversation
with

turns as (
    select * from {{ ref('int_user_requests') }}
),

rows_measured as (
    select * from {{ ref('measured_rows') }}
    where workload = 'conversation_ramp'
),

-- a grade that landed twice counts once
grades as (
    select * from {{ ref('stg_grades') }}
    qualify
        row_number() over (
            partition by run_id, request_id
            order by file asc, line asc
        ) = 1
),

final as (
    select
        turns.request_id,
        rows_measured.row_id,
        rows_measured.source,
        rows_measured.campaign,
        turns.run_id,
        turns.cell_id,
        rows_measured.recipe,
        rows_measured.engine,
        rows_measured.model,
        rows_measured.layout,
        rows_measured.gpus,
        rows_measured.workload,
        rows_measured.variant,
        rows_measured.context_tokens,
        rows_measured.repeat,
        rows_measured.users,
        turns.user,
        turns.turn,
        turns.is_last_turn,
        turns.outcome,
        turns.asked_prompt_tokens,
        turns.prompt_tokens,
        turns.asked_prompt_tokens - turns.expected_cached_tokens
            as expected_new_tokens,
        turns.expected_cached_tokens,
        turns.prompt_tokens - turns.cached_tokens as new_tokens,
        turns.cached_tokens,
        turns.output_tokens,
        turns.ttft_ns / 1e6 as ttft_ms,
        turns.decode_tokens_per_s,
        turns.decode_tokens_per_s_during_prefill,
        -- least() skips nulls: no decode time would read as 1
        case
            when turns.decode_ns > 0
                then least(1.0, turns.overlap_ns / turns.decode_ns)
        end as others_prefill_share,
        grades.is_correct as is_recalled,
        grades.why as recall_reason,
        rows_measured.standing,
        turns.file as raw_file,
        turns.line as raw_line,
    from turns
    inner join rows_measured
        on
            turns.run_id = rows_measured.run_id
            and turns.cell_id = rows_measured.cell_id
    left join grades
        on
            turns.run_id = grades.run_id
            and turns.request_id = grades.request_id
)

select * from final
