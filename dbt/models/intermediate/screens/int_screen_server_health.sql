-- grain: one row per row_id
-- The server that ends the window is the one that began it, and as well.
with

evidence as (
    select * from {{ ref('int_row_evidence') }}
),

parts as (
    select
        row_id,
        coalesce(
            case
                when probe_share_lost > 0
                    then probes_file || coalesce(':' || probes_failed_line, '')
            end,
            counters_file, cell_file
        ) as evidence,
        [
            {{ part(
                'restart',
                "case
                    when has_restarted then 'fail'
                    when has_both_edges and is_restart_observed then 'pass'
                    else 'unknown'
                end",
                'has_restarted::integer',
                "'0'",
                'restarts',
                "case when has_restarted
                    then 'the server process or its counters began anew'
                    when has_both_edges and is_restart_observed
                    then 'the same process before and after'
                    else 'not scraped before and after the window' end"
            ) }},
            {{ part(
                'preemptions',
                at_most('preemptions_per_request', threshold('server_health', 'max_preemptions_per_request')),
                'preemptions_per_request',
                "'<= ' || " ~ threshold('server_health', 'max_preemptions_per_request'),
                'preemptions/request',
                "'preemptions counted by the engine'"
            ) }},
            {{ part(
                'first_wave',
                "case
                    when first_wave_ratio is null then 'not_applicable'
                    else " ~ at_most('first_wave_ratio', threshold('server_health', 'max_first_wave_ratio')) ~ "
                end",
                'first_wave_ratio',
                "'<= ' || " ~ threshold('server_health', 'max_first_wave_ratio'),
                'first wave / later',
                "'median latency of the first wave over that of the rest'"
            ) }},
            {{ part(
                'probes',
                "case
                    when probe_share_lost > " ~ threshold('server_health', 'max_probe_share_lost') ~ " then 'fail'
                    when kinds_before > 0 and kinds_compared = kinds_before
                        then 'pass'
                    else 'unknown'
                end",
                'probe_share_lost',
                "'<= ' || " ~ threshold('server_health', 'max_probe_share_lost'),
                'share of probes',
                "coalesce(probes_before, 0) || ' probes before load, '
                || coalesce(probes_after, 0) || ' after'
                || coalesce('; ' || probe_failed_why, '')"
            ) }}
        ] as parts,
    from evidence
)

{{ judged('server_health') }}
