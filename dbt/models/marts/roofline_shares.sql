-- grain: one row per row_id
with

measured as (
    select * from {{ ref('measured_rows') }}
),

ceilings as (
    select * from {{ ref('int_row_ceilings') }}
),

final as (
    select
        measured.row_id,
        measured.source,
        measured.campaign,
        measured.run_id,
        measured.model,
        measured.gpus,
        ceilings.gpu as device,
        ceilings.is_cpu,
        ceilings.compute_precision,
        measured.workload,
        measured.concurrency,
        ceilings.prefill_tokens as prefill_length_tokens,
        ceilings.prefill_tokens_per_s,
        ceilings.prefill_ceiling_tokens_per_s,
        ceilings.prefill_tokens_per_s
        / nullif(ceilings.prefill_ceiling_tokens_per_s, 0) as prefill_share,
        ceilings.output_tokens_per_s,
        ceilings.decode_ceiling_tokens_per_s,
        ceilings.output_tokens_per_s
        / nullif(ceilings.decode_ceiling_tokens_per_s, 0) as decode_share,
        ceilings.decode_rate_max as single_decode_tokens_per_s,
        ceilings.single_ceiling_tokens_per_s,
        ceilings.mfu,
        ceilings.mbu,
        measured.roofline,
        measured.standing,
    from measured
    inner join ceilings on measured.row_id = ceilings.row_id
)

select * from final
