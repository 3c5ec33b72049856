-- grain: one row per source, node_id and island
with

-- a node is read at every run: the latest reading stands
nodes as (
    select
        nodes.*,
        runs.source,
    from {{ ref('stg_nodes') }} as nodes
    inner join {{ ref('stg_runs') }} as runs on nodes.run_id = runs.run_id
    qualify
        row_number() over (
            partition by runs.source, nodes.node_id
            order by
                json_array_length(nodes.facts -> 'islands') desc nulls last,
                nodes.read_at desc,
                nodes.run_id asc
        ) = 1
),

islands as (
    select
        *,
        unnest(try_cast(facts -> 'islands' as bigint[][])) as island_gpu_ids,
        generate_subscripts(try_cast(facts -> 'islands' as bigint[][]), 1) - 1
            as island,
    from nodes
),

-- what a pair carries, both ways measured: the slower way counts
matrices as (
    select
        source,
        node_id,
        try_cast(facts -> 'gpu_ids' as bigint[]) as gpu_ids,
        try_cast(
            coalesce(
                nullif(facts -> '$.bandwidth.send_gb_s', 'null'::json),
                facts -> '$.bandwidth.copy_gb_s'
            ) as double[][]
        ) as gb_s,
    from nodes
),

devices as (
    select
        source,
        node_id,
        gpu_ids,
        gb_s,
        unnest(range(1, len(gpu_ids) + 1)) as a,
    from matrices
    where gb_s is not null
),

pairs as (
    select
        firsts.source,
        firsts.node_id,
        firsts.gpu_ids[firsts.a] as first_gpu,
        firsts.gpu_ids[seconds.a] as second_gpu,
        least(
            firsts.gb_s[firsts.a][seconds.a], firsts.gb_s[seconds.a][firsts.a]
        ) as gb_s,
    from devices as firsts
    inner join devices as seconds
        on
            firsts.source = seconds.source
            and firsts.node_id = seconds.node_id
            and firsts.a < seconds.a
),

carried as (
    select
        islands.source,
        islands.node_id,
        islands.island,
        min(pairs.gb_s) filter (
            where list_contains(islands.island_gpu_ids, pairs.first_gpu)
            and list_contains(islands.island_gpu_ids, pairs.second_gpu)
        ) as slowest_inside_gb_s,
        max(pairs.gb_s) filter (
            where list_contains(islands.island_gpu_ids, pairs.first_gpu)
            != list_contains(islands.island_gpu_ids, pairs.second_gpu)
        ) as fastest_across_gb_s,
    from islands
    inner join pairs
        on
            islands.source = pairs.source
            and islands.node_id = pairs.node_id
    group by islands.source, islands.node_id, islands.island
),

published as (
    select
        max(figure) filter (where metric = 'gpu_count')::bigint as gpus,
        max(figure) filter (where metric = 'nvlink_islands')::bigint
            as islands,
        max(figure) filter (where metric = 'gpus_per_island')::bigint
            as gpus_per_island,
        any_value(standing) filter (where metric = 'nvlink_islands')
            as standing,
        any_value(raw_file) as raw_file,
        any_value(raw_line) filter (where metric = 'nvlink_islands')
            as raw_line,
    from {{ ref('int_published_figures') }}
    where subject = 'node'
),

final as (
    select
        islands.source,
        islands.node_id,
        islands.island,
        islands.island_gpu_ids as gpu_ids,
        len(islands.island_gpu_ids) as gpu_count,
        try_cast(islands.facts ->> 'gpus' as bigint) as node_gpus,
        json_array_length(islands.facts -> 'islands')::bigint as node_islands,
        islands.facts ->> 'island_link' as island_link,
        islands.facts ->> 'between' as link_between_islands,
        carried.slowest_inside_gb_s,
        carried.fastest_across_gb_s,
        try_cast(islands.facts ->> 'is_islands_confirmed' as boolean)
            as is_confirmed,
        islands.facts ->> '$.gpu_names[0]' as gpu_name,
        islands.facts ->> 'iommu' as iommu_mode,
        try_cast(islands.facts -> 'warnings' as varchar[]) as warnings,
        islands.source as standing,
        islands.read_at,
        islands.file as raw_file,
        islands.line as raw_line,
    from islands
    left join carried
        on
            islands.source = carried.source
            and islands.node_id = carried.node_id
            and islands.island = carried.island
    -- what cannot be read as device ids is no island
    where islands.island_gpu_ids is not null
    union all by name
    select
        'published' as source,
        'published' as node_id,
        unnest(range(islands)) as island,
        gpus_per_island as gpu_count,
        gpus as node_gpus,
        islands as node_islands,
        standing,
        raw_file,
        raw_line,
    from published
)

select * from final
