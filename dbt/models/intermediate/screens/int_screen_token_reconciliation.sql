-- grain: one row per row_id
-- Usage, the stream and the engine's counters tell the same number of tokens.
-- One witness besides usage must speak, or nothing was reconciled.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(counters_file, requests_file, cell_file) as evidence,
        [
            {{ part(
                'usage',
                "case
                    when coalesce(output_missing, 1)
                        + coalesce(output_counted, 0) > 0
                        then 'unknown'
                    else 'pass'
                end",
                'output_missing + coalesce(output_counted, 0)',
                "'0 without'",
                'requests',
                "'requests without output tokens in usage'"
            ) }},
            {{ part(
                'stream',
                "case
                    when case
                        when chunks_per_token is null
                            or chunks_per_token < 1 - " ~ threshold('token_reconciliation', 'max_difference') ~ "
                            then 'not_applicable'
                        when chunks_per_token <= 1 + " ~ threshold('token_reconciliation', 'max_difference') ~ " then 'pass'
                        else 'fail'
                    end = 'not_applicable'
                        and case
                        when counter_output_ratio is null
                            or coalesce(probes_in_window, 0) > 0
                            then 'not_applicable'
                        when abs(counter_output_ratio - 1) <= " ~ threshold('token_reconciliation', 'max_difference') ~ "
                            then 'pass'
                        else 'fail'
                    end = 'not_applicable'
                        then 'unknown'
                    else case
                        when chunks_per_token is null
                            or chunks_per_token < 1 - " ~ threshold('token_reconciliation', 'max_difference') ~ "
                            then 'not_applicable'
                        when chunks_per_token <= 1 + " ~ threshold('token_reconciliation', 'max_difference') ~ " then 'pass'
                        else 'fail'
                    end
                end",
                'chunks_per_token',
                "'within ' || " ~ threshold('token_reconciliation', 'max_difference') ~ " || ' of 1'",
                'chunks/token',
                "'streamed chunks over tokens of usage'"
            ) }},
            {{ part(
                'counted_output',
                "case
                        when counter_output_ratio is null
                            or coalesce(probes_in_window, 0) > 0
                            then 'not_applicable'
                        when abs(counter_output_ratio - 1) <= " ~ threshold('token_reconciliation', 'max_difference') ~ "
                            then 'pass'
                        else 'fail'
                    end",
                'counter_output_ratio',
                "'within ' || " ~ threshold('token_reconciliation', 'max_difference') ~ " || ' of 1'",
                'counted/usage',
                "'output tokens of the engine over those of usage'"
            ) }},
            {{ part(
                'counted_prompt',
                "case
                    when counter_prompt_ratio is null
                        or coalesce(probes_in_window, 0) > 0
                        then 'not_applicable'
                    when abs(counter_prompt_ratio - 1) <= " ~ threshold('token_reconciliation', 'max_difference') ~ "
                        or coalesce(
                            abs(counter_uncached_prompt_ratio - 1)
                            <= " ~ threshold('token_reconciliation', 'max_difference') ~ ", false
                        )
                        then 'pass'
                    else 'fail'
                end",
                'counter_prompt_ratio',
                "'within ' || " ~ threshold('token_reconciliation', 'max_difference') ~ " || ' of 1'",
                'counted/usage',
                "'prompt tokens of the engine over those of usage, all or uncached'"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('token_reconciliation') }}
