"""Which columns of a mart a reader sees, in which order and by which name: one layout for the page and the terminal."""

from __future__ import annotations

import json
from typing import Any

from flows.report.blocks import Field, share_of, with_interval
from flows.report.marts import Row
from flows.report.words import label_of, say_number, say_share, say_tokens

TABLE_ORDER = (
    "campaign", "recipe", "subject", "base_recipe", "changed_recipe", "workload", "variant", "context_tokens", "users",
    "turn", "concurrency", "repeat", "metric", "node_id", "island",
)  # fmt: skip

# What a table without a layout does not show: keys and lists that scripts read from the mart.
UNSHOWN = (
    "source", "run_id", "cell_id", "row_id", "row_ids", "base_row_ids", "changed_row_ids", "alone_row_ids", "raw_file",
    "raw_line", "comparison_id", "interference_id", "configuration_id", "table_id", "policy", "price_source",
    "price_as_of", "price_key",
)  # fmt: skip

FIELDS: dict[str, list[Field]] = {
    "rescue_comparisons": [
        Field("rescues", "failed"), Field("original_failure_class", "with"),
        Field("reproductions", "failed again", "", lambda row: say_share(row.get("reproduced_failures"), row.get("reproductions"))),
        Field("recipe", "tried instead"), Field("rescue_attempt", "attempt"), Field("rescue_change", "change", value=lambda row: _change(row)),
        Field("state", "outcome", value=lambda row: " ".join(filter(None, (say_words(row.get("state")), row.get("failure_class"))))),
        Field("probes_passed", "probes", "passed", share_of("probes_passed", "probes_asked")),
        Field("requests_ok", "served", "requests"), Field("best_output_tokens_per_s", "best output", "tokens/s"),
        Field("kv_tokens", "KV capacity", "tokens"), Field("confounders", "also differed", value=lambda row: say_words(row.get("confounders"))),
    ],
    "cost_per_token": [
        Field("standing"), Field("recipe"), Field("workload"), Field("concurrency", "c", ""),
        Field("context_tokens", "context", value=lambda row: say_tokens(row.get("context_tokens"))),
        Field("input_cost_usd_per_mtok", "input", "USD/M tokens"), Field("output_cost_usd_per_mtok", "output", "USD/M tokens"),
        Field("total_cost_usd_per_mtok", "both", "USD/M tokens"),
        Field("input_cost_with_load_usd_per_mtok", "input", "with load time"),
        Field("output_cost_with_load_usd_per_mtok", "output", "with load time"),
        Field("total_cost_with_load_usd_per_mtok", "both", "with load time"),
    ],
    "roofline_shares": [
        Field("standing"), Field("row_id", "row", value=lambda row: str(row.get("row_id") or "").rsplit("/", 1)[-1]),
        Field("device"), Field("compute_precision", "precision"),
        Field("prefill_tokens_per_s", "prefill", "tokens/s"), Field("prefill_ceiling_tokens_per_s", "ceiling", "tokens/s"),
        Field("prefill_share", "share"), Field("output_tokens_per_s", "decode", "tokens/s"),
        Field("decode_ceiling_tokens_per_s", "ceiling", "tokens/s"), Field("decode_share", "share"),
        Field("mfu", "MFU", "share"), Field("mbu", "MBU", "share"),
    ],
    "probe_results": [
        Field("is_passed", "passed"), Field("recipe"), Field("kind", "probe"), Field("phase"), Field("why"),
        Field("http_status", "HTTP"), Field("latency_ms", "latency"), Field("probe_id", "probe id"),
    ],
    "ramp_turns": [
        Field("standing"), Field("recipe"), Field("users", unit=""), Field("user"),
        Field("turn", value=lambda row: "" if row.get("turn") is None else str(row["turn"] + 1)),
        Field("is_recalled", "recalled"), Field("prompt_tokens", "prompt"), Field("new_tokens", "new"),
        Field("cached_tokens", "cached"), Field("ttft_ms", "TTFT"), Field("decode_tokens_per_s", "decode"),
        Field("outcome"), Field("recall_reason", "why"),
    ],
    "campaign_summary": [
        Field("campaign"), Field("source"), Field("policy"), Field("runs"), Field("runs_failed", "failed", "runs"),
        Field("models"), Field("variants"), Field("row_count", "rows"), Field("rows_passing", "publishable", "rows"),
        Field("rows_provisional", "provisional", "rows"), Field("rows_held", "held", "rows"),
        Field("rows_invalid", "invalid", "rows"), Field("rows_passing_strict", "strict", "rows"),
    ],
    "million_token_table": [
        Field("subject"),
        Field("model", value=lambda row: short_name(row["model"]) if row.get("model") else ""),
        Field("gpus", "GPUs", ""),
        Field("configured_tokens", "ceiling", value=lambda row: say_tokens(row.get("configured_tokens")), unit="tokens"),
        Field("capacity_tokens", "fits", value=lambda row: say_tokens(row.get("capacity_tokens")), unit="tokens",
              standing="capacity_standing"),
        Field("fresh_found", "found", "fresh document", lambda row: _fresh(row), "fresh_standing"),
        Field("fresh_ttft_ms", "TTFT", "ms, fresh document", standing="fresh_standing"),
        Field("ramp_1_recalled", "recalled", "ramp, 1 user", share_of("ramp_1_recalled", "ramp_1_asked"), "ramp_1_standing"),
        Field("ramp_2_recalled", "recalled", "ramp, 2 users", share_of("ramp_2_recalled", "ramp_2_asked"), "ramp_2_standing"),
        Field("last_turn_1_ttft_ms", "last turn TTFT", "ms, 1 user", standing="last_turn_1_standing"),
        Field("last_turn_2_ttft_ms", "last turn TTFT", "ms, 2 users", standing="last_turn_2_standing"),
        Field("last_turn_1_decode_tokens_per_s", "last turn decode", "tokens/s, 1 user", standing="last_turn_1_standing"),
        Field("last_turn_2_decode_tokens_per_s", "last turn decode", "tokens/s, 2 users", standing="last_turn_2_standing"),
        Field("ramp_1_usd_per_mtok", "cost", "USD/M tokens, 1 user", standing="ramp_1_cost_standing"),
        Field("ramp_2_usd_per_mtok", "cost", "USD/M tokens, 2 users", standing="ramp_2_cost_standing"),
        Field("quality_score", "quality", "95 % interval", with_interval("quality_score", "quality_score_low",
              "quality_score_high"), "quality_standing"),
        Field("quality_asked", "of", "answers", standing="quality_standing"),
    ],
    "interference": [
        Field("standing"), Field("subject"), Field("layout"), Field("users", unit=""), Field("turn", value=lambda row: "" if row.get("turn") is None else str(row["turn"] + 1)),
        Field("context_tokens", "context", value=lambda row: say_tokens(row.get("context_tokens"))),
        Field("decode_tokens_per_s_alone", "decode alone", "tokens/s"),
        Field("decode_tokens_per_s_slowest", "slowest with others", "tokens/s"),
        Field("decode_slowdown", "slowdown", "times"),
        Field("ttft_ms_alone", "TTFT alone", "ms"), Field("ttft_ms_slowest", "TTFT with others", "ms"),
        Field("others_prefill_share", "time others prefilled", "share"),
    ],
    "quality_scores": [
        Field("standing"), Field("recipe"), Field("workload"), Field("variant"), Field("concurrency", "c", ""),
        Field("context_tokens", "context", value=lambda row: say_tokens(row.get("context_tokens"))), Field("grader"),
        Field("correct", "right", "", share_of("correct", "graded")),
        Field("score", "score", "95 % interval", with_interval("score", "score_low", "score_high")),
        Field("score_lenient", "lenient", "score"), Field("is_grader_suspect", "grader suspect"),
    ],
    "graded_load_costs": [
        Field("standing"), Field("recipe"), Field("carries", "requests carry"), Field("concurrency", "c", ""),
        Field("plain_output_tokens_per_s", "output, plain", "tokens/s"),
        Field("graded_output_tokens_per_s", "output, graded", "tokens/s"),
        Field("throughput_cost_share", "cost", "share of throughput"),
        Field("correct", "right", "", share_of("correct", "graded")),
        Field("score", "score", "95 % interval", with_interval("score", "score_low", "score_high")),
    ],
    "soak_verdicts": [
        Field("verdict"), Field("verdict_reason", "because"), Field("subject"), Field("standing"),
        Field("concurrency", "c", ""), Field("hours", unit="h"), Field("completed_requests", "served", "requests"),
        Field("failed_requests", "failed", "requests"), Field("output_tokens_per_s", "output"),
        Field("output_drift_share_per_hour", "output drift", "share/h"),
        Field("ttft_drift_share_per_hour", "TTFT drift", "share/h"),
        Field("server_memory_drift_mb_per_hour", "memory drift", "MB/h"),
        Field("before_probes", "probes before", "", share_of("before_probes_passed", "before_probes")),
        Field("during_probes", "during", "", share_of("during_probes_passed", "during_probes")),
        Field("after_probes", "after", "", share_of("after_probes_passed", "after_probes")),
        Field("compared_with"), Field("throughput_ratio", "throughput", "ratio"),
        Field("comparison_verdict", "comparison"), Field("confounders"),
    ],
    "cold_starts": [
        Field("recipe"), Field("engine"), Field("cold_starts", "cold", "starts"), Field("warm_starts", "warm", "starts"),
        Field("cold_ready_s", "ready, cold", "s"), Field("warm_ready_s", "ready, warm", "s"),
        Field("saved_s", "saved", "s", with_interval("saved_s", "saved_s_low", "saved_s_high")),
        *(Field(f"{kind}_{phase}_s", f"{phase.replace('_', ' ')}, {kind}", "s")
          for phase in ("process", "weights", "compile", "graph_capture", "kv") for kind in ("cold", "warm")),
        Field("cold_first_request_ttft_ms", "first TTFT, cold", "ms"),
        Field("warm_first_request_ttft_ms", "first TTFT, warm", "ms"),
    ],
    "speculation_comparisons": [
        Field("verdict"), Field("standing"), Field("subject"), Field("base_recipe", "without"),
        Field("changed_recipe", "with"), Field("workload"), Field("concurrency", "c", ""),
        Field("base_decode_tokens_per_s", "decode without", "tokens/s"),
        Field("changed_decode_tokens_per_s", "decode with", "tokens/s"),
        Field("decode_ratio", "times", "95 % interval", with_interval("decode_ratio", "decode_ratio_low", "decode_ratio_high")),
        Field("output_ratio", "output", "times"), Field("acceptance_length_tokens", "accepted", "tokens a step"),
        Field("base_kv_tokens", "KV without", "tokens"), Field("changed_kv_tokens", "KV with", "tokens"),
        Field("kv_ratio", "KV", "times"), Field("base_n", "n", "", lambda row: _pair(row, "base_n", "changed_n")),
        Field("confounders", "also differed"), Field("verdict_reason", "why"),
    ],
    "layout_comparisons": [
        Field("verdict"), Field("standing"), Field("base_recipe", "one"), Field("changed_recipe", "other"),
        Field("under_test", "under test"), Field("workload"), Field("concurrency", "c", ""), Field("metric", value=lambda row: label_of(str(row.get("metric") or ""))),
        Field("base_figure", "one"), Field("changed_figure", "other"),
        Field("ratio", "times", "95 % interval", with_interval("ratio", "ratio_low", "ratio_high")),
        Field("ratio_per_gpu", "a GPU", "times"), Field("base_n", "n", "", lambda row: _pair(row, "base_n", "changed_n")),
        Field("confounders", "also differed"), Field("verdict_reason", "why"),
    ],
    "precision_audit": [
        Field("verdict"), Field("model", value=lambda row: short_name(row.get("model"))),
        Field("claimed_precision", "claimed"), Field("precision_label", "label"), Field("precision_true", "true"),
        Field("compute_precision", "computed in"), Field("params", "parameters", ""), Field("weight_bytes", "weights"),
        Field("bytes_per_param", "a parameter", "bytes"), Field("storage_dtypes", "stored as", "bytes", lambda row: _dtypes(row.get("storage_dtypes"))),
    ],
    "node_islands": [
        Field("node_id", "node"), Field("gpu_name", "GPU"), Field("island"), Field("gpu_ids", "GPUs"),
        Field("island_link", "linked by"), Field("link_between_islands", "between islands"),
        Field("iommu_mode", "IOMMU"), Field("warnings"),
    ],
    "claims": [Field("sentence", "may be said"), Field("standing"), Field("row_ids", "rows", "", lambda row: _count(row.get("row_ids")))],
}  # fmt: skip

PUBLISHED_CLAIM = [
    Field("sentence", "published"), Field("standing", "as published"), Field("condition"),
    Field("document", "document", "", lambda row: " ".join(filter(None, (row.get("document"), _part(row))))),
]  # fmt: skip


def say_source(source: Any) -> str:
    """` (synthetic)`: what was not measured here says so wherever it is drawn."""
    return "" if source in (None, "measured") else f" ({source})"


def say_words(value: Any) -> str:
    return str(value or "").replace("_", " ")


def _change(row: Row) -> str:
    """What a rescue changed, as `setting: from → to`, however the mart holds it."""
    held = row.get("rescue_change")
    try:
        change = json.loads(held) if isinstance(held, str) else held
    except ValueError:
        return str(held)
    if not isinstance(change, dict):
        return "" if change is None else str(change)
    if set(change) >= {"setting", "from", "to"}:
        change = {change["setting"]: [change["from"], change["to"]]}
    said = []
    for setting, value in change.items():
        if isinstance(value, dict):
            value = list(value.values())
        values = value if isinstance(value, list) else [value]
        said.append(f"{say_words(setting)}: {' → '.join(map(_setting, values))}")
    return "; ".join(said)


def _fresh(row: Row) -> str:
    """Facts found of facts asked; where a source only says that it passed, that."""
    passed = {True: "passed", False: "failed", None: ""}
    return say_share(row.get("fresh_found"), row.get("fresh_asked")) or passed[row.get("is_fresh_passed")]


def _dtypes(held: Any) -> str:
    try:
        found = json.loads(held) if isinstance(held, str) else held
    except ValueError:
        return str(held)
    return (
        ", ".join(f"{name} {say_number(size)}" for name, size in found.items())
        if isinstance(found, dict)
        else ""
    )


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return say_number(value) or "unset"


def _pair(row: Row, one: str, other: str) -> str:
    return "" if row.get(one) is None else f"{row[one]} and {row.get(other)}"


def _count(values: Any) -> str:
    return str(len(values)) if isinstance(values, list) else ""


def _part(row: Row) -> str:
    return (
        f"(part {row['part']})"
        if str(row.get("part") or "").isdigit()
        else f"({row['part']})"
        if row.get("part")
        else ""
    )


def short_name(model: Any) -> str:
    """A model's name without its folders."""
    return str(model or "unnamed model").rstrip("/").rsplit("/", 1)[-1]
