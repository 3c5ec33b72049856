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
        source,
        node_id,
        island,
        island_gpu_ids as gpu_ids,
        len(island_gpu_ids) as gpu_count,
        try_cast(facts ->> 'gpus' as bigint) as node_gpus,
        json_array_length(facts -> 'islands')::bigint as node_islands,
        facts ->> 'island_link' as island_link,
        facts ->> 'between' as link_between_islands,
        facts ->> '$.gpu_names[0]' as gpu_name,
        facts ->> 'iommu' as iommu_mode,
        try_cast(facts -> 'warnings' as varchar[]) as warnings,
        'measured' as standing,
        read_at,
        file as raw_file,
        line as raw_line,
    from islands
    -- what cannot be read as device ids is no island
    where island_gpu_ids is not null
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
