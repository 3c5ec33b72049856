"""vllm bench serve: one result, a sweep's run file, a summary list, and TensorRT-LLM's copy of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.importers.reading import Document
from flows.importers.result import (
    LATENCIES,
    STATISTICS,
    RequestRow,
    ResultRow,
    number,
    seconds_to_ms,
    to_ns,
    whole,
)

SIGNATURE = frozenset({"completed", "num_prompts", "model_id"})
REQUIRED = frozenset(
    {"duration", "completed", "num_prompts", "model_id", "total_input_tokens", "total_output_tokens"}
)
TRTLLM_KEYS = {"request_goodput:", "user_throughput", "avg_decoded_tokens_per_iter"}

# What the file calls a statistic, and what it is called here.
_STATISTIC = {"mean": "mean", "median": "p50", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_LATENCY = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e", "e2e_latency": "e2e", "e2e": "e2e"}

# Keys that every version writes; a key outside these that holds a plain value is the sweep's swept setting.
KNOWN = frozenset(
    [
        "date",
        "endpoint_type",
        "backend",
        "label",
        "model_id",
        "tokenizer_id",
        "num_prompts",
        "request_rate",
        "burstiness",
        "max_concurrency",
        "duration",
        "completed",
        "failed",
        "total_input_tokens",
        "total_output_tokens",
        "request_throughput",
        "request_goodput",
        "output_throughput",
        "total_token_throughput",
        "max_output_tokens_per_s",
        "max_concurrent_requests",
        "rtfx",
        "run_number",
        "best_of",
        "use_beam_search",
        "user_throughput",
        "avg_decoded_tokens_per_iter",
        "steady_state_throughput",
        "total_input",
        "input_lens",
        "output_lens",
        "ttfts",
        "itls",
        "generated_texts",
        "errors",
        "start_times",
        "speculate_metrics",
    ]
)
_SERVER_KEYS = frozenset(
    [
        "max_num_seqs",
        "max_num_batched_tokens",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "max_model_len",
        "gpu_memory_utilization",
        "block_size",
        "enable_prefix_caching",
        "no_enable_prefix_caching",
        "quantization",
        "kv_cache_dtype",
        "enforce_eager",
        "enable_chunked_prefill",
        "dtype",
    ]
)


def read(document: Document) -> list[ResultRow]:
    """One row of each result in the file; a list (a sweep's summary) has several."""
    entries = document.data if isinstance(document.data, list) else [document.data]
    return [read_entry(entry, document.path, place) for place, entry in enumerate(entries)]


def read_entry(entry: dict[str, Any], path: Path, place: int = 0) -> ResultRow:
    """One result dict as benchmark_serving writes it."""
    is_trtllm = bool(TRTLLM_KEYS & set(entry))
    row = ResultRow(
        tool="TensorRT-LLM benchmark_serving" if is_trtllm else "vllm bench serve",
        tool_version=None,
        source=path,
        row_in_file=place,
        model=str(entry["model_id"]),
        engine=str(entry.get("backend") or entry.get("endpoint_type") or "unknown"),
        started_at=_instant(entry.get("date")),
        label="vllm_bench",
    )
    row.put("requests_planned", entry["num_prompts"])
    row.put("requests_ok", entry["completed"])
    row.put("requests_failed", entry.get("failed"))
    row.put("duration_s", entry["duration"])
    row.put("prompt_tokens", entry["total_input_tokens"])
    row.put("output_tokens", entry["total_output_tokens"])
    row.put("asked_concurrency", entry.get("max_concurrency"))
    row.put("asked_rps", entry.get("request_rate"))
    row.kind = "closed" if number(entry.get("request_rate")) is None else "poisson"
    put_common(row, entry)
    row.client_settings = {
        key: entry[key]
        for key in ("request_rate", "burstiness", "max_concurrency", "num_prompts", "endpoint_type", "label")
        if entry.get(key) is not None
    }
    _read_settings(row, entry)
    _read_speculation(row, entry)
    row.requests = read_details(entry)
    row.has_instants = any(request.sent_ns is not None for request in row.requests)
    if not row.requests:
        row.missing.append("per-request data (run with --save-detailed)")
    row.missing += ["tool version", "seed and dataset of the prompts", "asked output tokens"]
    row.drop_zeros_of_nothing()
    return row


def put_common(row: ResultRow, entry: dict[str, Any]) -> None:
    """Rates, latencies in ms and means per request, under the names that vllm, SGLang and their copies share."""
    row.put("request_rps", entry.get("request_throughput"))
    row.put("output_tokens_per_s", entry.get("output_throughput"))
    row.put("total_tokens_per_s", entry.get("total_token_throughput", entry.get("total_throughput")))
    for key, value in entry.items():
        found = re.fullmatch(r"(mean|median|p\d+)_(ttft|tpot|itl|e2el|e2e_latency)_ms", key)
        if found and (statistic := _STATISTIC.get(found[1])):
            row.put(f"{_LATENCY[found[2]]}_{statistic}_ms", value)
    completed = row.figure("requests_ok")
    if completed:
        for name in ("prompt_tokens", "output_tokens"):
            if (total := row.figure(name)) is not None:
                row.headline[f"{name}_mean"] = total / completed
    for name in ("max_concurrent_requests", "max_output_tokens_per_s"):
        if entry.get(name) is not None:
            row.evidence.setdefault("never_evidence", {})[name] = entry[name]
            row.notes.append(
                f"{name} reads {entry[name]:g}: a count in one-second buckets, never evidence of load or speed"
                if isinstance(entry[name], (int, float))
                else f"{name} is never evidence"
            )


def read_details(entry: dict[str, Any]) -> list[RequestRow]:
    """Requests of --save-detailed: ttfts and itls in seconds, start_times where the version writes them."""
    lengths = entry.get("output_lens")
    ttfts, itls = entry.get("ttfts"), entry.get("itls")
    if not isinstance(lengths, list) or not isinstance(ttfts, list) or len(ttfts) != len(lengths):
        return []
    prompts = _column(entry.get("input_lens"), len(lengths))
    starts = _column(entry.get("start_times"), len(lengths))
    errors = _column(entry.get("errors"), len(lengths))
    gaps = _column(itls, len(lengths))
    return [_detail(*parts) for parts in zip(prompts, lengths, ttfts, gaps, starts, errors, strict=True)]


def _detail(prompt: Any, length: Any, ttft: Any, gaps: Any, start: Any, error: Any) -> RequestRow:
    row = RequestRow(
        prompt_tokens=whole(prompt),
        output_tokens=whole(length),
        token_source="usage",
        sent_ns=to_ns(start),
    )
    failed = bool(error) or not whole(length)
    if failed:
        row.outcome = "failed"
        row.error_detail = str(error)[:200] if error else "no output tokens"
        row.output_tokens = None
        return row
    sent = row.sent_ns or 0
    first = to_ns(ttft) or 0
    steps = [to_ns(gap) or 0 for gap in gaps] if isinstance(gaps, list) else []
    row.first_token_ns = sent + first
    row.chunk_gap_ns = [first, *steps] if steps or whole(length) == 1 else []
    row.last_token_ns = sent + first + sum(steps) if row.chunk_gap_ns else None
    row.end_ns = row.last_token_ns
    return row


def _column(value: Any, length: int) -> list[Any]:
    return value if isinstance(value, list) and len(value) == length else [None] * length


def _read_settings(row: ResultRow, entry: dict[str, Any]) -> None:
    """A sweep adds run_number and the flags it swept: server flags tell server lifetimes apart."""
    if entry.get("run_number") is not None:
        row.variant = f"run{entry['run_number']}"
        row.evidence["sweep_run"] = entry["run_number"]
        row.notes.append(
            "a run of a sweep: the file does not say whether the prefix cache was reset between its runs"
        )
    for key, value in entry.items():
        if key in KNOWN or key in TRTLLM_KEYS or key.startswith(("spec_decode_", "steady_state_")):
            continue
        if re.fullmatch(r"(mean|median|std|p\d+(_\d+)?)_\w+", key) or not isinstance(
            value, (str, int, float, bool)
        ):
            continue
        name = key.removeprefix("_benchmark_")
        if name.replace("-", "_") in _SERVER_KEYS:
            row.server_settings[name] = value
        else:
            row.client_settings[name] = value


def _read_speculation(row: ResultRow, entry: dict[str, Any]) -> None:
    """spec_decode_acceptance_rate is per cent, the per-position rates are fractions."""
    rate = number(entry.get("spec_decode_acceptance_rate"))
    if rate is None:
        return
    row.server_settings["speculation"] = "on"
    row.headline["acceptance_rate"] = rate / 100.0
    row.put("acceptance_length", entry.get("spec_decode_acceptance_length"))
    row.put("drafts", entry.get("spec_decode_num_drafts"))
    row.put("draft_tokens", entry.get("spec_decode_draft_tokens"))
    row.put("accepted_tokens", entry.get("spec_decode_accepted_tokens"))
    row.evidence["acceptance_per_position"] = entry.get("spec_decode_per_position_acceptance_rates")
    drafted, accepted = row.figure("draft_tokens"), row.figure("accepted_tokens")
    if drafted and accepted is not None:
        row.recomputed["acceptance_rate"] = accepted / drafted
    if drafts := row.figure("drafts"):
        row.recomputed["acceptance_length"] = 1 + (accepted or 0.0) / drafts
    row.notes.append(
        f"speculative decoding with {rate:.1f} % of draft tokens accepted: ITL is per verify step, TPOT per token"
    )
    if rate < 30.0:
        row.notes.append(
            "so low an acceptance is that of random tokens: no speed-up may be read from this row"
        )


def _instant(date: Any) -> str | None:
    """`20261201-000006`, local time without a zone in the file; taken as UTC, which only orders rows."""
    try:
        return (
            datetime.strptime(str(date), "%Y%m%d-%H%M%S")
            .replace(tzinfo=UTC)
            .isoformat()
            .replace("+00:00", "Z")
        )
    except ValueError:
        return None


def put_seconds(row: ResultRow, prefix: str, statistics: dict[str, Any], names: dict[str, str]) -> None:
    """Latency statistics in seconds, put as ms. names: the file's statistic -> ours."""
    for theirs, ours in names.items():
        if (value := seconds_to_ms(statistics.get(theirs))) is not None:
            row.put(f"{prefix}_{ours}_ms", value)


assert set(_LATENCY.values()) == set(LATENCIES) and set(_STATISTIC.values()) == set(STATISTICS)
