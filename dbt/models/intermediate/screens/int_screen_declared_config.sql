-- grain: one row per row_id
-- The server ran as declared, by its own word. What nobody declared is not
-- applicable; what was declared and not observed is unknown.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(run_file, cell_file) as evidence,
        [
            {{ part(
                'engine_version',
                "case when engine_version is null
                    then 'unknown' else 'pass' end",
                'null',
                "'observed'",
                'version',
                "coalesce(engine_version, 'the engine did not say its version')"
            ) }},
            {{ part(
                'prefix_caching',
                "case
                    when declared_prefix_caching is null then 'not_applicable'
                    when observed_prefix_caching is null then 'unknown'
                    when declared_prefix_caching = observed_prefix_caching
                        then 'pass'
                    else 'fail'
                end",
                'observed_prefix_caching::integer',
                "coalesce(declared_prefix_caching::varchar, 'not declared')",
                'prefix_caching',
                "'declared ' || coalesce(declared_prefix_caching::varchar, 'nothing')
                || ', the engine says '
                || coalesce(observed_prefix_caching::varchar, 'nothing')"
            ) }},
            {{ part(
                'max_running_requests',
                "case
                    when declared_max_running_requests is null then 'not_applicable'
                    when observed_max_running_requests is null then 'unknown'
                    when declared_max_running_requests = observed_max_running_requests
                        then 'pass'
                    else 'fail'
                end",
                'observed_max_running_requests::integer',
                "coalesce(declared_max_running_requests::varchar, 'not declared')",
                'max_running_requests',
                "'declared ' || coalesce(declared_max_running_requests::varchar, 'nothing')
                || ', the engine says '
                || coalesce(observed_max_running_requests::varchar, 'nothing')"
            ) }},
            {{ part(
                'precision',
                "case
                    when claimed_precision is null then 'not_applicable'
                    when kernel_precision is not null
                        and kernel_precision != claimed_precision then 'fail'
                    when true_precision is null then 'unknown'
                    when lower(claimed_precision) = lower(true_precision)
                        then 'pass'
                    else 'fail'
                end",
                'null',
                "coalesce(claimed_precision, 'not declared')",
                'format',
                "'declared ' || coalesce(claimed_precision, 'nothing')
                || ', headers say ' || coalesce(true_precision, 'nothing')
                || coalesce(', kernels say ' || kernel_precision, '')"
            ) }},
            {{ part(
                'gpus',
                "case
                    when gpus is null or node_gpus is null then 'unknown'
                    when gpus <= node_gpus or (node_gpus = 0 and gpus <= 1)
                        then 'pass'
                    else 'fail'
                end",
                'gpus',
                "'<= ' || coalesce(node_gpus::varchar, 'unknown')",
                'devices',
                "'declared ' || coalesce(gpus::varchar, 'nothing')
                || ', the node has '
                || coalesce(node_gpus::varchar, 'not been read')"
            ) }},
            {{ part(
                'clocks',
                "case
                    when node_gpus = 0 then 'not_applicable'
                    else " ~ at_most('throttled_share', threshold('declared_config', 'max_throttled_share')) ~ "
                end",
                'throttled_share',
                "'<= ' || " ~ threshold('declared_config', 'max_throttled_share'),
                'share of samples',
                "coalesce(nullif(throttle_reasons, ''), 'no throttling seen')
                || ' in ' || coalesce(telemetry_samples, 0) || ' samples'"
            ) }},
            {{ part(
                'prompt_length',
                "case
                    when asked_prompt_tokens_mean is null then 'not_applicable'
                    when prompt_tokens_off_mean is null then 'unknown'
                    when abs(prompt_tokens_off_mean) <= greatest(
                        " ~ threshold('declared_config', 'prompt_off_floor_tokens') ~ ",
                        asked_prompt_tokens_mean
                        * " ~ threshold('declared_config', 'max_prompt_off_share') ~ "
                    ) then 'pass'
                    else 'fail'
                end",
                'prompt_tokens_off_mean',
                "'within ' || round(greatest(
                        " ~ threshold('declared_config', 'prompt_off_floor_tokens') ~ ",
                        asked_prompt_tokens_mean
                        * " ~ threshold('declared_config', 'max_prompt_off_share') ~ "
                    ))",
                'tokens',
                "'mean prompt length, off from '
                || coalesce(round(asked_prompt_tokens_mean)::varchar, 'none')
                || ' asked'"
            ) }},
            {{ part(
                'thinking',
                "case
                    when declared_thinking is distinct from false
                        then 'not_applicable'
                    else " ~ at_most('reasoned_share', threshold('declared_config', 'max_reasoned_share')) ~ "
                end",
                'reasoned_share',
                "'<= ' || " ~ threshold('declared_config', 'max_reasoned_share'),
                'share of answers',
                "'answers with reasoning tokens although thinking is off'"
            ) }},
            {{ part(
                'draft_prompts',
                "case
                    when prompt_dataset is null
                        or not (draft_tokens > 0 or coalesce(drafts, 0) > 0)
                        then 'not_applicable'
                    when prompt_dataset like 'random%' then 'fail'
                    else 'pass'
                end",
                'null',
                "'text'",
                'dataset',
                "'speculation measured on '
                || coalesce(prompt_dataset, 'prompts of the workload')"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('declared_config') }}
