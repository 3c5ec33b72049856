"""Recomputes headline figures from per-request data, and says where and why they differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from flows.importers.result import RequestRow, ResultRow

# Figures that agree within this share are the same figure (the bound for a recomputed headline).
TOLERANCE = 0.001
_PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


def recompute(row: ResultRow) -> None:
    """Fill row.recomputed and row.differences from row.requests; nothing happens where there are none."""
    completed = [request for request in row.requests if request.outcome == "ok"]
    if not completed:
        _compare(row)
        return
    for name, values in _latencies(row, completed).items():
        if values:
            row.recomputed[f"{name}_mean_ms"] = float(np.mean(values)) / 1e6
            for label, rank in _PERCENTILES.items():
                row.recomputed[f"{name}_{label}_ms"] = float(np.percentile(values, rank)) / 1e6
    for name in ("prompt_tokens", "output_tokens", "cached_tokens"):
        counts = [value for request in completed if (value := getattr(request, name)) is not None]
        if len(counts) == len(completed):
            row.recomputed[name] = sum(counts)
            row.recomputed[f"{name}_mean"] = sum(counts) / len(counts)
    row.recomputed["requests_ok"] = len(completed)
    row.recomputed["requests_failed"] = sum(request.outcome == "failed" for request in row.requests)
    if (definition := row.evidence.get("itl_definition")) and (
        claimed := row.figure("itl_mean_ms")
    ) is not None:
        ours = row.recomputed.get("tpot_mean_ms")
        row.differences.append(
            {
                "figure": "itl_mean_ms",
                "claimed": claimed,
                "recomputed": ours,
                "relative": None if ours is None else (ours - claimed) / claimed,
                "why": f"{definition}; recomputed here: (last token - first token) / (output tokens - 1)",
            }
        )
    _read_window(row, completed)
    _look_for_impossible(row, completed)
    _compare(row)


def _latencies(row: ResultRow, completed: list[RequestRow]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"ttft": [], "tpot": [], "itl": [], "e2e": []}
    for request in completed:
        start = request.sent_ns or 0
        if request.first_token_ns is not None:
            found["ttft"].append(request.first_token_ns - start)
        if request.end_ns is not None:
            found["e2e"].append(request.end_ns - start)
        tokens = request.output_tokens
        if request.first_token_ns is not None and request.last_token_ns is not None and tokens and tokens > 1:
            found["tpot"].append((request.last_token_ns - request.first_token_ns) / (tokens - 1))
        found["itl"].extend(request.chunk_gap_ns[1:])
    if "itl_definition" in row.evidence:
        found["itl"] = []
    return found


def _read_window(row: ResultRow, completed: list[RequestRow]) -> None:
    """Duration and concurrency, where the requests stand on one clock."""
    if not row.has_instants:
        return
    spans = [
        (request.sent_ns, request.end_ns)
        for request in row.requests
        if request.sent_ns is not None and request.end_ns is not None
    ]
    if not spans:
        return
    duration = (max(end for _, end in spans) - min(start for start, _ in spans)) / 1e9
    if duration <= 0:
        return
    row.recomputed["duration_s"] = duration
    row.recomputed["mean_concurrency"] = sum(end - start for start, end in spans) / 1e9 / duration
    row.recomputed["request_rps"] = len(completed) / duration
    if (tokens := row.recomputed.get("output_tokens")) is not None:
        row.recomputed["output_tokens_per_s"] = tokens / duration


def _look_for_impossible(row: ResultRow, completed: list[RequestRow]) -> None:
    """Instants out of order and gaps below zero are evidence against the clock; counted, never mended."""
    disordered = sum(
        1
        for request in completed
        if (request.first_token_ns is not None and request.first_token_ns < (request.sent_ns or 0))
        or (
            request.first_token_ns is not None
            and request.last_token_ns is not None
            and request.last_token_ns < request.first_token_ns
        )
        or any(gap < 0 for gap in request.chunk_gap_ns)
    )
    row.evidence["disordered_requests"] = disordered
    chunks = sum(len(request.chunk_gap_ns) for request in completed)
    tokens = sum(request.output_tokens or 0 for request in completed if request.chunk_gap_ns)
    if chunks and tokens:
        row.evidence["tokens_per_chunk"] = tokens / chunks
    if any(request.sent_ns is not None and request.planned_ns is not None for request in completed):
        row.evidence["has_planned_instants"] = True


def _compare(row: ResultRow) -> None:
    complete = row.evidence.get("records_found") == row.evidence.get("records_claimed")
    for name, ours in sorted(row.recomputed.items()):
        claimed = row.figure(name)
        if claimed is None or ours is None:
            continue
        relative = (ours - claimed) / claimed if claimed else (0.0 if not ours else float("inf"))
        if abs(relative) <= TOLERANCE:
            continue
        row.differences.append(
            {
                "figure": name,
                "claimed": claimed,
                "recomputed": ours,
                "relative": relative if abs(relative) != float("inf") else None,
                "why": _why(row, name, complete),
            }
        )


def _why(row: ResultRow, name: str, is_complete: bool) -> str:
    if not is_complete:
        return (
            f"{row.evidence.get('records_found')} of {row.evidence.get('records_claimed')} requests have a record: "
            "recomputed from an incomplete file"
        )
    definitions: dict[tuple[str, str], str] = {
        ("GuideLLM", "request_rps"): "GuideLLM averages its rate over the spans between completions",
        ("GuideLLM", "output_tokens_per_s"): "GuideLLM averages its rate over the spans between tokens",
        ("GuideLLM", "mean_concurrency"): "GuideLLM averages concurrency over its own span of requests",
        ("inference-perf", "itl_mean_ms"): "inference-perf counts re-tokenised tokens, not chunks",
    }
    if (known := definitions.get((row.tool, name))) is not None:
        return known
    if row.evidence.get("is_server_side") and name.endswith("tokens_mean"):
        return "the mean is taken of a counter's samples; tokens per second / requests per second is a request's mean"
    if name in ("duration_s", "request_rps", "output_tokens_per_s", "mean_concurrency"):
        return "the tool's window is longer than from the first send to the last end"
    if name in ("tpot_mean_ms", "tpot_p50_ms", "tpot_p90_ms", "tpot_p95_ms", "tpot_p99_ms"):
        return "TPOT here is (last token - first token) / (output tokens - 1)"
    if name.split("_", maxsplit=1)[0] in ("e2e", "ttft", "itl"):
        return "recomputed from the requests as recorded; no known difference in definition"
    return "no known difference in definition"


def difference_free(row: ResultRow) -> bool:
    """Whether every recomputed figure agrees with the headline within the tolerance."""
    return not row.differences


def shown(row: ResultRow) -> dict[str, Any]:
    """Headline figures, filled up with recomputed ones that the tool did not print."""
    return {**{key: value for key, value in row.recomputed.items() if value is not None}, **row.headline}
