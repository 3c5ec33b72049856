"""SGLang bench_serving: one JSON line a run, bare Infinity where the request rate has no limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.importers import vllm
from flows.importers.reading import Document
from flows.importers.result import ResultRow, number, whole

SIGNATURE = frozenset({"backend", "dataset_name", "completed", "total_output_tokens"})
REQUIRED = frozenset({"backend", "completed", "duration", "total_input_tokens", "total_output_tokens"})


def read(document: Document) -> list[ResultRow]:
    """One row a line."""
    entries = document.data if isinstance(document.data, list) else [document.data]
    rows = [_read_entry(entry, document.path, place) for place, entry in enumerate(entries)]
    for row in rows:
        row.notes += document.notes
    return rows


def _read_entry(entry: dict[str, Any], path: Path, place: int) -> ResultRow:
    stated = entry.get("server_info")
    info: dict[str, Any] = stated if isinstance(stated, dict) else {}
    row = ResultRow(
        tool="sglang bench_serving",
        tool_version=info.get("version"),
        source=path,
        row_in_file=place,
        model=str(info.get("model_path") or entry.get("model") or entry.get("model_id") or "unknown"),
        engine=str(entry["backend"]),
        label=f"sglang_{entry.get('dataset_name') or 'bench'}",
    )
    rate = number(entry.get("request_rate"))
    row.kind = "closed" if rate is None and entry.get("max_concurrency") else "poisson" if rate else "closed"
    row.put("requests_ok", entry["completed"])
    row.put("requests_planned", entry.get("num_prompts"))
    row.put("requests_failed", entry.get("failed"))
    row.put("duration_s", entry["duration"])
    row.put("prompt_tokens", entry["total_input_tokens"])
    row.put("output_tokens", entry["total_output_tokens"])
    row.put("asked_concurrency", entry.get("max_concurrency"))
    row.put("asked_rps", rate)
    row.put("mean_concurrency", entry.get("concurrency"))
    row.put("acceptance_length", entry.get("accept_length"))
    row.put("retokenized_output_tokens", entry.get("total_output_tokens_retokenized"))
    vllm.put_common(row, entry)
    if row.figure("request_rps") is None and row.figure("duration_s"):
        row.headline["request_rps"] = (row.figure("requests_ok") or 0.0) / (row.figure("duration_s") or 1.0)
        row.notes.append("requests per second is completed / duration: this version writes no rate")
    _read_lengths(row, entry)
    row.client_settings |= {
        key: value if number(value) is not None or not isinstance(value, float) else str(value)
        for key, value in entry.items()
        if key in ("dataset_name", "request_rate", "max_concurrency", "random_input_len", "random_output_len",
                   "random_range_ratio", "sharegpt_output_len", "seed") and value is not None
    }  # fmt: skip
    for key in (
        "tp_size",
        "dp_size",
        "ep_size",
        "disable_radix_cache",
        "max_running_requests",
        "quantization",
    ):
        if key in info:
            row.server_settings[key] = info[key]
    row.gpus = whole(info.get("tp_size"))
    row.requests = vllm.read_details(entry)
    row.has_instants = any(request.sent_ns is not None for request in row.requests)
    if not row.requests:
        row.missing.append("per-request data (run with --output-details)")
    row.missing += ["seed of the prompts"]
    if "num_prompts" not in entry:
        row.missing.append("requests asked for (the file counts the completed ones only)")
    if row.tool_version is None:
        row.missing.append("tool version")
    row.drop_zeros_of_nothing()
    return row


def _read_lengths(row: ResultRow, entry: dict[str, Any]) -> None:
    """Labelled lengths count for the random dataset only; for others the flags stand there unused."""
    if not str(entry.get("dataset_name", "")).startswith("random"):
        return
    row.asked_prompt_tokens = whole(entry.get("random_input_len"))
    row.asked_output_tokens = whole(entry.get("random_output_len"))
    row.is_fixed_length = number(entry.get("random_range_ratio")) == 1
    for label, asked, figure in (
        ("input", row.asked_prompt_tokens, "prompt_tokens_mean"),
        ("output", row.asked_output_tokens, "output_tokens_mean"),
    ):
        mean = row.figure(figure)
        if asked and mean is not None and abs(mean / asked - 1) > 0.02:
            row.notes.append(
                f"labelled random {label} length {asked}, measured mean {mean:.0f} "
                f"(random_range_ratio {entry.get('random_range_ratio')}): the label is not the load"
            )
    if row.asked_prompt_tokens == 1:
        row.notes.append("input of one token: a decode-only row, its TTFT says nothing of prefill")
