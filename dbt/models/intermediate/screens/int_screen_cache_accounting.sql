-- grain: one row per row_id
-- Two witnesses, usage and counters: either may fail the row, one is enough to
-- pass it. A counter that is absent is null, never 0.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(
            case
                when cached_share_counters > coalesce(cached_share_usage, 0)
                    then counters_file
            end,
            requests_file, cell_file
        ) as evidence,
        [
            {{ part(
                'usage',
                "case
                    when cached_share_usage is null then
                        case when cached_share_counters is null
                            then 'unknown' else 'not_applicable' end
                    when coalesce(
                            cache_budget_max,
                            case when is_cold_expected then " ~ threshold('cache_accounting', 'cold_max_share') ~ " end
                        ) is null then 'unknown'
                    when isfinite(cached_share_usage::double)
                        and cached_share_usage
                        between coalesce(cache_budget_min, 0) and coalesce(
                            cache_budget_max,
                            case when is_cold_expected then " ~ threshold('cache_accounting', 'cold_max_share') ~ " end
                        )
                        then 'pass'
                    else 'fail'
                end",
                'cached_share_usage',
                "coalesce(cache_budget_min, 0) || ' to ' || coalesce(
                            cache_budget_max,
                            case when is_cold_expected then " ~ threshold('cache_accounting', 'cold_max_share') ~ " end
                        )",
                'share of prompt tokens',
                "case
                    when cached_share_usage is null
                        then 'usage does not say how many tokens were cached'
                    when cache_budget_max is null
                        and is_cold_expected is not true
                        then 'the workload declares no cache budget'
                    else round(100 * cached_share_usage, 2)
                        || ' % of prompt tokens cached, by usage'
                end"
            ) }},
            {{ part(
                'counters',
                "case
                    when cached_share_counters is null then
                        case when cached_share_usage is null
                            then 'unknown' else 'not_applicable' end
                    when coalesce(
                            cache_budget_max,
                            case when is_cold_expected then " ~ threshold('cache_accounting', 'cold_max_share') ~ " end
                        ) is null then 'unknown'
                    when isfinite(cached_share_counters::double)
                        and cached_share_counters
                        between coalesce(cache_budget_min, 0) and coalesce(
                            cache_budget_max,
                            case when is_cold_expected then " ~ threshold('cache_accounting', 'cold_max_share') ~ " end
                        )
                        then 'pass'
                    else 'fail'
                end",
                'cached_share_counters',
                "coalesce(cache_budget_min, 0) || ' to ' || coalesce(
                            cache_budget_max,
                            case when is_cold_expected then " ~ threshold('cache_accounting', 'cold_max_share') ~ " end
                        )",
                'share of prompt tokens',
                "case
                    when cached_share_counters is null
                        then 'the counters do not say how many tokens were cached'
                    when cache_budget_max is null
                        and is_cold_expected is not true
                        then 'the workload declares no cache budget'
                    else round(100 * cached_share_counters, 2)
                        || ' % of prompt tokens cached, by the counters'
                end"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('cache_accounting') }}
