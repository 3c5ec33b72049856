-- grain: one row per soak_id: a soak of one run, or one of the published pair
with

soaks as (
    select * from {{ ref('int_soaks') }}
),

pairs as (
    select * from {{ ref('int_soak_pairs') }}
),

published as (
    select * from {{ ref('int_published_soaks') }}
),

measured as (
    select
        concat_ws(
            '/', soaks.run_id, nullif(soaks.variant, ''), soaks.concurrency
        ) as soak_id,
        soaks.source,
        soaks.campaign,
        soaks.run_id,
        soaks.recipe as subject,
        soaks.engine,
        soaks.model,
        soaks.layout,
        soaks.gpus,
        soaks.concurrency,
        soaks.hours,
        soaks.completed_requests,
        soaks.failed_requests,
        soaks.worst_minute_failed,
        soaks.output_tokens_per_s,
        soaks.minutes,
        soaks.output_drift_share_per_hour,
        soaks.ttft_drift_share_per_hour,
        soaks.server_memory_drift_mb_per_hour,
        soaks.before_probes,
        soaks.before_probes_passed,
        soaks.during_probes,
        soaks.during_probes_passed,
        soaks.after_probes,
        soaks.after_probes_passed,
        case
            when soaks.is_any_invalid then 'the measurement broke off'
            when soaks.probes_failed is not null then soaks.probes_failed
            when coalesce(soaks.before_probes, 0) = 0
                then 'not probed before the load'
            when coalesce(soaks.after_probes, 0) = 0
                then 'not probed after the load'
            when soaks.is_population_failed then 'too many requests failed'
            when soaks.is_health_failed then 'the server did not stay healthy'
        end as against_handoff,
        pairs.base_recipe as compared_with,
        pairs.ratio as throughput_ratio,
        pairs.verdict as comparison_verdict,
        pairs.under_test,
        pairs.not_comparable_why,
        pairs.confounders,
        pairs.standing as comparison_standing,
        soaks.standing,
        soaks.row_ids,
        soaks.raw_file,
        soaks.raw_line,
    from soaks
    left join pairs
        on
            soaks.run_id = pairs.run_id
            and soaks.variant = pairs.variant
            and soaks.concurrency = pairs.concurrency
),

final as (
    select * from measured
    union all by name
    select * from published
)

select
    *,
    case when against_handoff is null then 'handoff' else 'no handoff' end
        as verdict,
    coalesce(
        against_handoff, 'all probes before and after the load were good'
    ) as verdict_reason,
from final
