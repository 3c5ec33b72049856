"""InferenceX (InferenceMAX): agg files, seconds without a suffix, and benchmark_serving results with tp, ep, conc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.importers import vllm
from flows.importers.reading import Document
from flows.importers.result import ResultRow, number, seconds_to_ms, whole

SIGNATURE = frozenset({"conc", "model", "framework", "precision"})
REQUIRED = frozenset({"conc", "model", "framework"})
RAW_SIGNATURE = vllm.SIGNATURE | {"conc"}

_STATISTIC = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_LATENCY = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}
_SETTINGS = (
    "hw", "hardware", "device", "tp", "ep", "dp_attention", "mtp", "spec_decoding", "spec_method", "disagg",
    "is_multinode", "precision", "framework", "image", "prefill_tp", "prefill_ep", "decode_tp", "decode_ep",
    "num_prefill_gpu", "num_decode_gpu", "prefill_num_workers", "decode_num_workers",
)  # fmt: skip


def read(document: Document) -> list[ResultRow]:
    """One row of each entry: a single agg file, or a list as the site's API and artefacts give it."""
    entries = document.data if isinstance(document.data, list) else [document.data]
    return [_read_entry(entry, document.path, place) for place, entry in enumerate(entries)]


def read_raw(document: Document) -> list[ResultRow]:
    """benchmark_serving's own result with the matrix keys (tp, ep, conc) beside it."""
    rows = vllm.read(document)
    entries = document.data if isinstance(document.data, list) else [document.data]
    for row, entry in zip(rows, entries, strict=True):
        row.tool = "InferenceX benchmark_serving"
        _put_settings(row, entry)
    return rows


def _read_entry(entry: dict[str, Any], path: Path, place: int) -> ResultRow:
    figures = entry["metrics"] if isinstance(entry.get("metrics"), dict) else entry
    row = ResultRow(
        tool="InferenceX",
        tool_version=None,
        source=path,
        row_in_file=place,
        model=str(entry["model"]),
        engine=str(entry["framework"]),
        started_at=str(entry["date"]) if entry.get("date") else None,
        label="inferencex",
    )
    row.put("asked_concurrency", entry["conc"])
    _put_settings(row, entry)
    for statistic, ours in _STATISTIC.items():
        for theirs, name in _LATENCY.items():
            if (value := seconds_to_ms(figures.get(f"{statistic}_{theirs}"))) is not None:
                row.put(f"{name}_{ours}_ms", value)
    row.notes.append("latencies stand in seconds without a suffix in this format; given here in ms")
    for theirs, ours in (
        ("tput_per_gpu", "total_tokens_per_s_per_gpu"),
        ("output_tput_per_gpu", "output_tokens_per_s_per_gpu"),
        ("input_tput_per_gpu", "prompt_tokens_per_s_per_gpu"),
    ):
        row.put(ours, figures.get(theirs))
    if row.gpus and not entry.get("disagg"):
        for name in ("total_tokens_per_s", "output_tokens_per_s"):
            if (rate := row.figure(f"{name}_per_gpu")) is not None:
                row.headline[name] = rate * row.gpus
                row.notes.append(f"{name} is the figure per GPU times {row.gpus} GPUs")
    row.asked_prompt_tokens, row.asked_output_tokens = whole(entry.get("isl")), whole(entry.get("osl"))
    _check_interactivity(row, figures)
    row.missing += [
        "request counts, failures and duration", "per-request data", "tool version",
        "measured token lengths (isl and osl are labels, drawn with a range ratio of 0.8)",
    ]  # fmt: skip
    return row


def _put_settings(row: ResultRow, entry: dict[str, Any]) -> None:
    row.server_settings |= {key: entry[key] for key in _SETTINGS if entry.get(key) is not None}
    prefill, decode = number(entry.get("num_prefill_gpu")), number(entry.get("num_decode_gpu"))
    if entry.get("disagg") and prefill is not None and decode is not None:
        row.gpus = int(prefill + decode)
    else:
        row.gpus = whole(entry.get("tp")) or whole(decode)
    row.put("asked_concurrency", entry.get("conc"))


def _check_interactivity(row: ResultRow, figures: dict[str, Any]) -> None:
    """intvty is 1 / TPOT: a row whose two disagree was edited or mixes units."""
    for statistic, ours in _STATISTIC.items():
        interactivity, tpot = number(figures.get(f"{statistic}_intvty")), row.figure(f"tpot_{ours}_ms")
        if interactivity and tpot and abs(interactivity * tpot / 1e3 - 1) > 0.01:
            row.differences.append(
                {
                    "figure": f"{statistic}_intvty", "claimed": interactivity, "recomputed": 1e3 / tpot,
                    "relative": interactivity * tpot / 1e3 - 1, "why": "interactivity is 1 / TPOT in this format",
                }
            )  # fmt: skip
