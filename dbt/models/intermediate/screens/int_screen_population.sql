-- grain: one row per row_id
-- Every planned request is accounted for, and 99 % of them were served.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(requests_file, cell_file)
        || coalesce(':' || first_bad_line, '') as evidence,
        [
            {{ part(
                'sum',
                "case
                    when planned_requests is null
                        or requests_recorded is null
                        or requests_ok is null then 'unknown'
                    when planned_requests = requests_recorded
                        and planned_requests = requests_ok
                        + coalesce(requests_failed, 0)
                        + coalesce(requests_cancelled, 0)
                        + coalesce(requests_unsent, 0)
                        and is_window_count_right
                        and coalesce(window_planned, planned_requests)
                        = planned_requests
                        then 'pass'
                    else 'fail'
                end",
                "planned_requests - requests_ok
                - coalesce(requests_failed, 0)
                - coalesce(requests_cancelled, 0)
                - coalesce(requests_unsent, 0)",
                "'0'",
                'requests',
                "'planned ' || coalesce(planned_requests::varchar, 'unknown')
                || ', recorded '
                || coalesce(requests_recorded::varchar, 'unknown')
                || ', ok ' || coalesce(requests_ok::varchar, 'unknown')
                || ', failed ' || coalesce(requests_failed::varchar, 'unknown')
                || ', cancelled '
                || coalesce(requests_cancelled::varchar, 'unknown')
                || ', unsent '
                || coalesce(requests_unsent::varchar, 'unknown')
                || case when is_window_count_right then ''
                    else '; the window counted otherwise' end"
            ) }},
            {{ part(
                'served',
                "case
                    when requests_ok = 0 then 'fail'
                    when planned_requests - case when stop_after_s is null
                        then 0 else coalesce(requests_unsent, 0) end = 0
                        then 'fail'
                    else " ~ at_least(
                        "(requests_ok / (planned_requests - case when stop_after_s is null then 0 else coalesce(requests_unsent, 0) end))",
                        threshold('population', 'min_ok_share')
                    ) ~ "
                end",
                "requests_ok / nullif(planned_requests
                - case when stop_after_s is null
                    then 0 else coalesce(requests_unsent, 0) end, 0)",
                "'>= ' || " ~ threshold('population', 'min_ok_share'),
                'ok/planned',
                "coalesce(requests_ok::varchar, 'unknown') || ' of '
                || coalesce(planned_requests::varchar, 'unknown')
                || ' served'
                || coalesce('; commonest error ' || commonest_error, '')"
            ) }},
            {{ part(
                'errors_after_200',
                "case
                    when ok_with_error is null then 'not_applicable'
                    when ok_with_error = 0 then 'pass'
                    else 'fail'
                end",
                'ok_with_error',
                "'0'",
                'requests',
                "'requests counted as served that ended in an error'"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('population') }}
