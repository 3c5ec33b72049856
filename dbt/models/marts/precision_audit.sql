-- grain: one row per source, campaign, model, claimed precision and what the
-- checkpoint's header and config said (two checkpoints may share a name)
with

runs as (
    select
        *,
        model_facts ->> 'precision_label' as precision_label,
        model_facts ->> 'precision_true' as precision_true,
        model_facts ->> 'precision_source' as precision_source,
        {{ nested('model_facts', 'is_precision_label_true') }}
            as is_label_true,
        try_cast(model_facts ->> 'params_total' as bigint) as params,
        try_cast(model_facts ->> 'weight_bytes' as bigint) as weight_bytes,
        try_cast(model_facts ->> 'bytes_per_param' as double)
            as bytes_per_param,
        model_facts ->> 'compute_precision' as compute_precision,
        (model_facts -> 'storage_dtypes')::varchar as storage_dtypes,
        model_facts ->> 'revision' as revision,
    from {{ ref('stg_runs') }}
),

final as (
    select
        md5(
            concat_ws(
                '|', source, campaign, model, coalesce(claimed_precision, ''),
                coalesce(precision_true, ''), coalesce(revision, ''),
                coalesce(precision_label, ''), coalesce(precision_source, ''),
                coalesce(compute_precision, ''), coalesce(storage_dtypes, ''),
                coalesce(params, -1), coalesce(weight_bytes, -1),
                coalesce(bytes_per_param, -1),
                coalesce(is_label_true::varchar, '')
            )
        ) as audit_id,
        source,
        campaign,
        model,
        claimed_precision,
        precision_label,
        precision_true,
        precision_source,
        compute_precision,
        storage_dtypes,
        params,
        weight_bytes,
        bytes_per_param,
        revision,
        case
            when precision_true is null then 'unknown'
            when not is_label_true then 'mislabelled'
            when
                claimed_precision is not null
                and lower(claimed_precision) != lower(precision_true)
                then 'claimed otherwise'
            when is_label_true is null then 'unknown'
            else 'as labelled'
        end as verdict,
        count(*) as runs,
        list(run_id order by run_id) as run_ids,
        min(file) as raw_file,
        min(line) as raw_line,
    from runs
    group by all
)

select * from final
