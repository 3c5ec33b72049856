-- grain: one row per configuration, kind of cell and metric
-- The unit that repeats is the server start: rows of one run share its luck.
with

rows_measured as (
    select * from {{ ref('measured_rows') }}
),

configurations as (
    select * from {{ ref('int_configurations') }}
),

standings as (
    select * from {{ ref('standing_order') }}
),

figures as (
    select
        configurations.configuration_id,
        rows_measured.run_id,
        rows_measured.row_id,
        rows_measured.workload,
        rows_measured.variant,
        rows_measured.concurrency,
        rows_measured.users,
        rows_measured.context_tokens,
        rows_measured.asked_prompt_tokens,
        rows_measured.asked_output_tokens,
        rows_measured.standing,
        standings.badness,
        unnest([
            'output_tokens_per_s',
            'decode_tokens_per_s',
            'ttft_ms_p50',
            'tpot_ms_p50'
        ]) as metric,
        unnest([
            rows_measured.output_tokens_per_s,
            rows_measured.decode_tokens_per_s,
            rows_measured.ttft_ms_p50,
            rows_measured.tpot_ms_p50
        ]) as figure,
    from rows_measured
    inner join configurations on rows_measured.run_id = configurations.run_id
    inner join standings on rows_measured.standing = standings.standing
    -- a broken measurement has no figure; it stays in measured_rows
    where rows_measured.standing != 'invalid'
),

starts as (
    select
        * exclude (row_id, standing, badness, figure),
        avg(figure) as figure,
        list(figure) as repeats,
        list(row_id order by row_id) as row_ids,
        arg_max(standing, badness) as standing,
        max(badness) as badness,
    from figures
    where figure is not null
    group by all
),

final as (
    select
        * exclude (run_id, figure, repeats, row_ids, standing, badness),
        count(*) as starts,
        avg(figure) as mean_of_starts,
        var_samp(figure) as variance_of_starts,
        sum(len(repeats))::bigint as repeats,
        flatten(list(repeats)) as figures,
        flatten(list(row_ids order by run_id)) as row_ids,
        arg_max(standing, badness) as standing,
        max(badness) as badness,
    from starts
    group by all
)

select
    *,
    list_avg(figures) as mean_of_repeats,
    list_var_samp(figures) as variance_of_repeats,
from final
