"""LLMPerf: the summary, and the individual responses that lie beside it."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from typing import Any

from flows.importers.reading import Document
from flows.importers.result import RequestRow, ResultRow, UnknownResult, number, seconds_to_ms, to_ns, whole

SIGNATURE = frozenset({"results_num_requests_started", "results_num_completed_requests"})
REQUIRED = frozenset({"version", "model", "num_concurrent_requests", *SIGNATURE})
INDIVIDUAL_SIGNATURE = frozenset({"ttft_s", "end_to_end_latency_s", "error_code"})
INDIVIDUAL_REQUIRED = INDIVIDUAL_SIGNATURE | {"number_output_tokens", "number_input_tokens"}
KNOWN_VERSIONS = {"2023-08-31"}

_STATISTIC = {"mean": "mean", "quantiles_p50": "p50", "quantiles_p90": "p90", "quantiles_p95": "p95",
              "quantiles_p99": "p99"}  # fmt: skip
ITL_DEFINITION = "LLMPerf divides a request's whole latency, its first token included, by its output tokens"


def read(document: Document) -> list[ResultRow]:
    """The summary row. Error frequency is a Python dict in a string; min and max counts are strings."""
    entry = document.data
    if entry["version"] not in KNOWN_VERSIONS:
        raise UnknownResult(
            f"{document.path.name} is an LLMPerf summary of the unknown version {entry['version']}",
            required=f"version {', '.join(sorted(KNOWN_VERSIONS))}",
            evidence=str(document.path),
        )
    stamp = number(entry.get("timestamp"))
    row = ResultRow(
        tool="LLMPerf",
        tool_version=str(entry["version"]),
        source=document.path,
        model=str(entry["model"]),
        engine=str(entry.get("framework") or "unknown"),
        started_at=datetime.fromtimestamp(stamp, UTC).isoformat().replace("+00:00", "Z") if stamp else None,
        label="llmperf",
    )
    row.put("requests_planned", entry["results_num_requests_started"])
    row.put("requests_ok", entry["results_num_completed_requests"])
    row.put("requests_failed", entry.get("results_number_errors"))
    row.put("asked_concurrency", entry["num_concurrent_requests"])
    for theirs, ours in (("ttft", "ttft"), ("inter_token_latency", "itl"), ("end_to_end_latency", "e2e")):
        for statistic, name in _STATISTIC.items():
            row.put(f"{ours}_{name}_ms", seconds_to_ms(entry.get(f"results_{theirs}_s_{statistic}")))
    row.put("prompt_tokens_mean", entry.get("results_number_input_tokens_mean"))
    row.put("output_tokens_mean", entry.get("results_number_output_tokens_mean"))
    row.put("output_tokens_per_s", entry.get("results_mean_output_throughput_token_per_s"))
    per_minute, completed = (
        number(entry.get("results_num_completed_requests_per_min")),
        row.figure("requests_ok"),
    )
    if per_minute and completed:
        row.headline["request_rps"] = per_minute / 60.0
        row.headline["duration_s"] = completed * 60.0 / per_minute
        row.notes.append("duration is completed requests / completed per minute: the file holds no duration")
    for name in ("prompt_tokens", "output_tokens"):
        if completed and (mean := row.figure(f"{name}_mean")) is not None:
            row.headline[name] = mean * completed
    row.asked_prompt_tokens = whole(entry.get("mean_input_tokens"))
    row.asked_output_tokens = whole(entry.get("mean_output_tokens"))
    row.is_fixed_length = number(entry.get("stddev_output_tokens")) == 0
    row.evidence["errors"] = _error_frequency(entry.get("results_error_code_frequency"))
    row.evidence["itl_definition"] = ITL_DEFINITION
    if row.figure("requests_failed"):
        row.notes.append(
            f"{entry['results_number_errors']} of {entry['results_num_requests_started']} requests are errors "
            f"({row.evidence['errors']}): latencies are those of the survivors only"
        )
    row.missing += ["per-request data (the individual responses file)", "TPOT", "finish reasons"]
    row.drop_zeros_of_nothing()
    return [row]


def read_individual(document: Document) -> list[ResultRow]:
    """The individual responses: own latencies of each request, no instant on a common clock."""
    entries = document.data if isinstance(document.data, list) else [document.data]
    row = ResultRow(
        tool="LLMPerf", tool_version=None, source=document.path, label="llmperf", part_of="requests"
    )
    row.requests = [_request(entry) for entry in entries]
    ok = sum(request.outcome == "ok" for request in row.requests)
    row.headline = {"requests_planned": len(entries), "requests_ok": ok, "requests_failed": len(entries) - ok}
    row.evidence["itl_definition"] = ITL_DEFINITION
    row.missing += ["when each request was sent", "duration, and so every rate", "model", "asked concurrency"]
    return [row]


def _request(entry: dict[str, Any]) -> RequestRow:
    code = entry.get("error_code")
    if code is not None or not number(entry.get("end_to_end_latency_s")):
        status = whole(code)
        return RequestRow(
            outcome="failed",
            error_detail=f"code {code}: {str(entry.get('error_msg') or '')[:160]}",
            http_status=status if status is not None and 100 <= status < 600 else None,
            prompt_tokens=whole(entry.get("number_input_tokens")),
        )
    first, end = to_ns(entry["ttft_s"]), to_ns(entry["end_to_end_latency_s"])
    return RequestRow(
        first_token_ns=first,
        last_token_ns=end,
        end_ns=end,
        prompt_tokens=whole(entry.get("number_input_tokens")),
        output_tokens=whole(entry.get("number_output_tokens")),
        token_source="counted",
    )


def _error_frequency(text: Any) -> dict[str, int]:
    if isinstance(text, dict):
        return {str(code): int(count) for code, count in text.items()}
    try:
        found = ast.literal_eval(str(text))
    except (ValueError, SyntaxError):
        return {}
    return {
        f"{code:g}" if isinstance(code, float) else str(code): int(count) for code, count in found.items()
    }
