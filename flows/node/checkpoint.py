"""Model facts for the roofline: parameters, bytes, KV and attention work of one checkpoint, flat and JSON-ready.

Keys, units and formulas: docs/precision.md. Where headers are there they count; else the config's shape does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.node.architecture import Architecture, attention_kind, widest_window
from flows.node.headers import RefusedCheckpoint
from flows.node.precision import Audit, audit, report

KV_ELEMENT_BYTES = 2.0  # bfloat16 or float16, what every engine keeps unless told otherwise


def model_facts(path: str | Path, engine: str | None = None) -> dict[str, Any] | None:
    """The facts of the checkpoint at `path`; null when there is none that can be read (a hub id, another format).

    engine: which engine will serve it; unused but for a note, since KV layouts are the same here.
    """
    try:
        found = audit(Path(path))
    except RefusedCheckpoint:
        return None
    return facts_of(found, engine)


def facts_of(found: Audit, engine: str | None = None) -> dict[str, Any]:
    """Flat facts of an audited checkpoint; null where neither headers nor config say."""
    precision = report(found)
    arch = found.architecture
    kinds: dict[str, dict[str, Any]] = precision["by_kind"]
    active_share = _active_share(arch)
    is_tied = _is_tied(found)
    params_by_kind = {kind: entry["params"] for kind, entry in kinds.items()}
    bytes_by_kind = {kind: entry["bytes"] for kind, entry in kinds.items()}
    if not found.has_tensors and found.reading.weights and arch is not None:
        # An index gives names alone: parameters by kind come from the config.
        params_by_kind, bytes_by_kind = dict(arch.params_by_kind()), {}
    text_kinds = [kind for kind in params_by_kind if kind not in ("vision", "draft")]
    total = precision["params"]
    active = _weighted(params_by_kind, text_kinds, active_share)
    if active is None and arch is not None:
        active = arch.params_active
    read_kinds = [kind for kind in text_kinds if kind != "embed" or is_tied]
    active_bytes = _weighted(bytes_by_kind, read_kinds, active_share)
    if active_bytes is None and active is not None and total and precision["bytes"]:
        untied = 0 if is_tied or arch is None else arch.embedding_params
        active_bytes = round((active - untied) * precision["bytes"] / total)
    return {
        "engine": engine,
        "model_family": arch.family if arch else None,
        "params_total": total,
        "params_active": active,
        "params_embedding": params_by_kind.get("embed") or (arch.embedding_params if arch else None),
        "params_source": precision["size_source"],
        "weight_bytes": precision["bytes"],
        "active_weight_bytes": active_bytes,
        "bytes_per_param": precision["bytes_per_param"],
        "is_embedding_tied": is_tied,
        **_shape_facts(arch, found.claim.kv_cache),
        "storage_dtypes": {dtype: entry["bytes"] for dtype, entry in precision["by_dtype"].items()},
        "precision_label": precision["label"],
        "precision_true": precision["true"],
        "precision_source": precision["true_source"],
        "is_precision_label_true": precision["is_label_true"],
        "compute_precision": compute_precision(precision),
        "revision": precision["revision"],
        "notes": precision["notes"],
    }


def _shape_facts(arch: Architecture | None, kv_cache: str | None) -> dict[str, Any]:
    keys = (
        "n_layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "experts", "experts_per_token", "is_moe",
        "max_position_embeddings", "attention_kind", "n_layers_full_attention", "n_layers_sliding", "n_layers_sparse",
        "n_layers_state", "sliding_window", "sparse_topk", "kv_element_bytes", "kv_bytes_per_token",
        "kv_bytes_per_token_full", "kv_bytes_per_token_sliding", "kv_read_bytes_per_token_full",
        "kv_read_bytes_per_token_sparse", "state_bytes_per_sequence", "attn_flops_per_token_per_key_full",
        "attn_flops_per_token_per_key_sliding", "attn_flops_per_token_per_key_sparse", "state_flops_per_token",
    )  # fmt: skip
    if arch is None:
        return dict.fromkeys(keys)
    element = 1.0 if kv_cache is not None and ("fp8" in kv_cache or "int8" in kv_cache) else KV_ELEMENT_BYTES
    layers = arch.layers
    sparse = [x for x in layers if x.topk]
    dense = [x for x in layers if not x.topk]
    indexed = element * sum(x.indexer_elements for x in layers)
    full_bytes = element * sum(x.kv_elements for x in layers) + indexed
    sliding_bytes = element * sum(x.window_kv_elements for x in layers)
    values = (
        len(layers), arch.hidden, arch.heads, arch.kv_heads, arch.head_dim, arch.vocab, arch.experts,
        arch.experts_per_token, arch.experts is not None, arch.max_position_embeddings, attention_kind(arch),
        sum(1 for x in dense if x.kv_elements), sum(1 for x in layers if x.mixer == "sliding"), len(sparse),
        sum(1 for x in layers if x.state_bytes), widest_window(layers), max((x.topk or 0 for x in sparse), default=None),
        element, _whole(full_bytes + sliding_bytes), _whole(full_bytes), _whole(sliding_bytes),
        _whole(element * sum(x.kv_elements for x in dense) + indexed), _whole(element * sum(x.kv_elements for x in sparse)),
        _whole(sum(x.state_bytes for x in layers)),
        _whole(sum(x.flops_per_key for x in dense) + sum(x.indexer_flops_per_key for x in layers)),
        _whole(sum(x.window_flops_per_key for x in layers)), _whole(sum(x.flops_per_key for x in sparse)),
        _whole(sum(x.state_flops_per_token for x in layers)),
    )  # fmt: skip
    return dict(zip(keys, values, strict=True))


def kv_bytes(facts: dict[str, Any], tokens: int) -> float:
    """Bytes that one sequence of `tokens` tokens holds in the KV cache, recurrent state included.

    Full layers keep every token, windowed layers the last `sliding_window`, state layers a fixed size.
    """
    window = facts["sliding_window"] or 0
    return (
        facts["kv_bytes_per_token_full"] * tokens
        + facts["kv_bytes_per_token_sliding"] * min(tokens, window)
        + facts["state_bytes_per_sequence"]
    )


def kv_read_bytes(facts: dict[str, Any], tokens: int) -> float:
    """Bytes of cache that one decode step of one sequence reads at least: what attention must look at."""
    window, topk = facts["sliding_window"] or 0, facts["sparse_topk"] or 0
    return (
        facts["kv_read_bytes_per_token_full"] * tokens
        + facts["kv_read_bytes_per_token_sparse"] * min(tokens, topk)
        + facts["kv_bytes_per_token_sliding"] * min(tokens, window)
        + facts["state_bytes_per_sequence"]
    )


def attention_flops(facts: dict[str, Any], tokens: int) -> float:
    """Attention FLOPs per prompt token, averaged over a prefill of `tokens` tokens with a causal mask.

    A token at position p looks at p keys: tokens / 2 on average in full layers; in windowed and sparse layers the mean
    of min(p, limit), which is limit * (1 - limit / (2 * tokens)) once the prompt is longer than the limit.
    """
    return (
        facts["attn_flops_per_token_per_key_full"] * tokens / 2
        + facts["attn_flops_per_token_per_key_sliding"] * _mean_keys(tokens, facts["sliding_window"])
        + facts["attn_flops_per_token_per_key_sparse"] * _mean_keys(tokens, facts["sparse_topk"])
        + facts["state_flops_per_token"]
    )


def prefill_flops(facts: dict[str, Any], tokens: int) -> float:
    """FLOPs per prompt token at least: 2 a parameter that is active, and attention at that length."""
    return 2.0 * facts["params_active"] + attention_flops(facts, tokens)


def _mean_keys(tokens: int, limit: int | None) -> float:
    if not limit or tokens <= limit:
        return tokens / 2
    return limit * (1 - limit / (2 * tokens))


def compute_precision(precision: dict[str, Any]) -> str | None:
    """The fastest arithmetic that the weights allow: bf16, fp8, fp4, int8 or fp32. It picks the GPU's peak.

    Weight-only formats (int4, nf4, GGUF blocks, MLX) are widened before the product: 16 bit. Static or dynamic
    activations beside fp8, nvfp4, mxfp4 or int8 weights allow the low peak; where nothing says, the low one is taken,
    so that the ceiling cannot be too low.
    """
    formats = {
        name for name, params in precision["by_format"].items() if params or len(precision["by_format"]) == 1
    }
    if not formats:
        return None
    is_weight_only = precision["activations"] == "weight-only" or precision["label_method"] in ("gguf", "mlx")
    if not is_weight_only:
        for found, peak in (
            ("nvfp4", "fp4"),
            ("mxfp4", "fp4"),
            ("fp4", "fp4"),
            ("fp8", "fp8"),
            ("mxfp8", "fp8"),
            ("int8", "int8"),
        ):
            if found in formats and not (found == "fp4" and precision["label_method"] == "bitsandbytes"):
                return peak
    elif formats & {"fp8", "mxfp8"}:
        return "fp8"
    if formats <= {"fp32", "f32", "int32", "int64", "bool"}:
        return "fp32"
    return "bf16"


def _active_share(arch: Architecture | None) -> float | None:
    if arch is None or not arch.experts or not arch.experts_per_token:
        return None
    return min(1.0, arch.experts_per_token / arch.experts)


def _weighted(by_kind: dict[str, Any], kinds: list[str], share: float | None) -> int | None:
    """Sum over kinds with the experts' share; null when one is not known, or experts have no known share."""
    if not kinds or any(by_kind.get(kind) is None for kind in kinds):
        return None
    if by_kind.get("experts") and share is None:
        return None
    return round(sum(by_kind[kind] * (share or 1.0 if kind == "experts" else 1.0) for kind in kinds))


def _is_tied(found: Audit) -> bool | None:
    """Whether input and output embedding are one: by the tensors where they are listed, else by the config."""
    kinds = {weight.kind for weight in found.reading.weights}
    if "embed" in kinds:
        return "lm_head" not in kinds
    return found.architecture.is_tied if found.architecture else None


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
