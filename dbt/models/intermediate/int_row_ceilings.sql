-- grain: one row per row_id
-- The physics of a row: what its devices and its model allow at most.
-- prefill: peak / (2 x active parameters + attention at that length); decode:
-- bandwidth x batch / (active weight bytes + batch x cache bytes read), and no
-- more than the arithmetic allows. Speculation verifies several tokens with one
-- read, so it multiplies the decode ceiling by 1 + draft tokens.
{{ config(materialized='table') }}
with

figures as (
    select * from {{ ref('int_row_figures') }}
),

peaks as (
    select * from {{ ref('int_run_peaks') }}
),

lengths as (
    select
        figures.row_id,
        peaks.*,
        figures.output_tokens_per_s,
        figures.uncached_tokens_per_s,
        figures.prefill_rate_max,
        figures.decode_rate_max,
        figures.batch,
        coalesce(
            figures.prefill_rate_prompt_tokens, figures.prompt_tokens_mean
        )::double as prefill_tokens,
        figures.prompt_tokens_mean::double as mean_prompt_tokens,
        (
            figures.prompt_tokens_mean
            + coalesce(figures.output_tokens_mean, 0) / 2
        )::double as decode_tokens,
    from figures
    inner join peaks using (run_id)
),

ceilings as (
    select
        *,
        greatest(prefill_rate_max, uncached_tokens_per_s)
            as prefill_tokens_per_s,
        case
            when prefill_tokens > 0
                then
                    peak_flops / {{ flops_per_token('prefill_tokens') }}
        end as prefill_ceiling_tokens_per_s,
        (1 + draft_tokens) * least(
            peak_bytes_per_s * batch / (
                active_weight_bytes
                + batch * {{ kv_read_bytes('decode_tokens') }}
            ),
            peak_flops / (2 * params_active)
        ) as decode_ceiling_tokens_per_s,
        (1 + draft_tokens) * peak_bytes_per_s / (
            active_weight_bytes + {{ kv_read_bytes('decode_tokens') }}
        ) as single_ceiling_tokens_per_s,
        (
            coalesce(uncached_tokens_per_s, 0)
            * {{ flops_per_token('mean_prompt_tokens') }}
            + coalesce(output_tokens_per_s, 0) * 2 * params_active
        ) / nullif(peak_flops, 0) as mfu,
        output_tokens_per_s / (1 + draft_tokens) * (
            active_weight_bytes / nullif(batch, 0)
            + {{ kv_read_bytes('decode_tokens') }}
        ) / nullif(peak_bytes_per_s, 0) as mbu,
    from lengths
)

select
    row_id,
    run_id,
    gpu,
    is_cpu,
    compute_precision,
    peak_flops,
    peak_bytes_per_s,
    prefill_tokens,
    decode_tokens,
    batch,
    draft_tokens,
    prefill_tokens_per_s,
    prefill_ceiling_tokens_per_s,
    output_tokens_per_s,
    decode_ceiling_tokens_per_s,
    decode_rate_max,
    single_ceiling_tokens_per_s,
    mfu,
    mbu,
from ceilings
