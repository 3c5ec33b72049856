-- grain: one row per soak of the published documents
with

soaks as (
    select * from {{ ref('published_soaks') }}
),

figures as (
    select * from {{ ref('int_published_figures') }}
),

pairs as (
    select * from {{ ref('int_published_comparisons') }}
),

final as (
    select
        soaks.soak as soak_id,
        'published' as source,
        rate.subject,
        rate.engine,
        rate.layout,
        rate.gpus,
        rate.concurrency,
        soaks.hours::double as hours,
        requests.figure::bigint as completed_requests,
        soaks.failed_requests::bigint as failed_requests,
        rate.figure as output_tokens_per_s,
        case
            when 'failed' in (soaks.before_probes, soaks.after_probes)
                then coalesce(probes.condition, 'a probe failed')
            when (soaks.before_probes is distinct from 'good')
                then 'probes before the load are not stated as good'
            when (soaks.after_probes is distinct from 'good')
                then 'probes after the load are not stated as good'
        end as against_handoff,
        soaks.compared_with,
        pairs.comparison as throughput_ratio,
        pairs.verdict as comparison_verdict,
        rate.confounders,
        pairs.comparison_standing,
        rate.standing,
        [soaks.requests_claim_id, soaks.rate_claim_id] as row_ids,
        rate.raw_file,
        rate.raw_line,
    from soaks
    inner join figures as rate on soaks.rate_claim_id = rate.claim_id
    inner join figures as requests
        on soaks.requests_claim_id = requests.claim_id
    inner join figures as probes on soaks.probes_claim_id = probes.claim_id
    left join pairs on soaks.rate_claim_id = pairs.claim_id
)

select * from final
