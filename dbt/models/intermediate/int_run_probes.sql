-- grain: one row per run_id
with

probes as (
    select * from {{ ref('stg_probes') }}
),

kinds as (
    select
        run_id,
        kind,
        count(*) filter (where phase = 'before') as before_count,
        count(*) filter (where phase = 'after') as after_count,
        avg(is_passed::integer) filter (where phase = 'before')
            as before_share,
        avg(is_passed::integer) filter (where phase = 'after') as after_share,
        count(*) filter (where phase = 'during') as during_count,
        min(file) filter (where phase = 'after') as after_file,
        min(line) filter (where phase = 'after' and not is_passed)
            as first_failed_line,
        min(why) filter (where phase = 'after' and not is_passed)
            as first_failed_why,
    from probes
    group by run_id, kind
),

final as (
    select
        run_id,
        sum(before_count)::bigint as probes_before,
        sum(after_count)::bigint as probes_after,
        sum(during_count)::bigint as probes_during,
        -- kinds that were asked before and again after
        count(*) filter (where before_count > 0) as kinds_before,
        count(*) filter (where before_count > 0 and after_count > 0)
            as kinds_compared,
        max(before_share - after_share) as worst_share_lost,
        min(after_file) as after_file,
        min(first_failed_line) as first_failed_line,
        min(first_failed_why) as first_failed_why,
    from kinds
    group by run_id
)

select * from final
