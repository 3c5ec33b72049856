"""GuideLLM: `benchmarks[]` of 0.2 to 0.5, and the report of version 2 (0.6 and later)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.importers.reading import Document
from flows.importers.result import RefusedResult, RequestRow, ResultRow, UnknownResult, number, to_ns, whole

SIGNATURE = frozenset({"benchmarks"})
REQUIRED = SIGNATURE
KNOWN_REPORTS = {1, 2}

_STATISTIC = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
# GuideLLM's time_per_output_token is latency / tokens; its inter_token_latency is (last - first) / (tokens - 1).
_LATENCY = {"time_to_first_token_ms": "ttft", "inter_token_latency_ms": "tpot", "request_latency": "e2e"}
_PLAIN = {"prompt_token_count": "prompt_tokens_mean", "output_token_count": "output_tokens_mean"}


def read(document: Document) -> list[ResultRow]:
    """One row of each benchmark in the report."""
    metadata = document.data.get("metadata") or {}
    version = metadata.get("version", 1)
    if version not in KNOWN_REPORTS:
        raise UnknownResult(
            f"{document.path.name} is a GuideLLM report of the unknown version {version}",
            required=f"report version {' or '.join(map(str, sorted(KNOWN_REPORTS)))}",
            evidence=str(document.path),
        )
    benchmarks = document.data["benchmarks"]
    if not isinstance(benchmarks, list) or not benchmarks:
        raise RefusedResult(f"{document.path.name} holds no benchmark", evidence=str(document.path))
    tool_version = metadata.get("guidellm_version") or ("0.2" if "metadata" not in document.data else None)
    spec = (document.data.get("config") or {}).get("spec") or document.data.get("args") or {}
    return [
        _read_one(entry, document.path, place, tool_version, spec) for place, entry in enumerate(benchmarks)
    ]


def _read_one(
    entry: dict[str, Any], path: Path, place: int, version: str | None, spec: dict[str, Any]
) -> ResultRow:
    missing = sorted({"metrics", "start_time", "end_time"} - set(entry))
    if missing:
        raise RefusedResult(
            f"benchmark {place} of {path.name} is not complete",
            measured=f"no {', '.join(missing)}",
            evidence=str(path),
        )
    config = entry.get("config") or entry.get("args") or {}
    backend = config.get("backend") or entry.get("worker") or spec.get("backend") or {}
    if not isinstance(backend, dict):
        backend = {}
    row = ResultRow(
        tool="GuideLLM",
        tool_version=version,
        source=path,
        row_in_file=place,
        model=str(backend.get("model") or backend.get("backend_model") or spec.get("model") or "unknown"),
        engine=str(backend.get("kind") or backend.get("backend_type") or "unknown"),
        started_at=_utc(entry["start_time"]),
        label="guidellm",
    )
    target = backend.get("target") or backend.get("backend_target")
    if target:
        row.client_settings["target"] = str(target)
    _read_strategy(row, config.get("strategy") or {}, config.get("constraints") or config)
    _read_totals(row, entry)
    for name, metric in entry["metrics"].items():
        _put_metric(row, name, metric)
    row.put("duration_s", entry.get("duration"))
    if row.figure("duration_s") is None:
        row.put("duration_s", (number(entry["end_time"]) or 0.0) - (number(entry["start_time"]) or 0.0))
    _read_requests(row, entry.get("requests"))
    _read_asked_lengths(row, config, entry, spec)
    row.drop_zeros_of_nothing()
    return row


def _read_strategy(row: ResultRow, strategy: dict[str, Any], constraints: dict[str, Any]) -> None:
    kind = strategy.get("type_") or strategy.get("kind")
    row.client_settings["strategy"] = kind
    if kind in ("synchronous",):
        row.headline["asked_concurrency"] = 1
    elif kind in ("concurrent",):
        row.put("asked_concurrency", strategy.get("streams"))
    elif kind in ("constant", "poisson", "async"):
        row.kind = "poisson" if kind == "poisson" else "constant"
        row.put("asked_rps", strategy.get("rate"))
    row.variant = (
        f"{kind}-{strategy['rate']:g}" if number(strategy.get("rate")) is not None else str(kind or "")
    )
    limit = constraints.get("max_requests") if isinstance(constraints.get("max_requests"), dict) else None
    if limit is not None:
        args = limit.get("args") if isinstance(limit.get("args"), dict) else limit
        row.put("requests_planned", args.get("count", args.get("max_num")))


def _read_totals(row: ResultRow, entry: dict[str, Any]) -> None:
    totals = entry.get("request_totals") or entry["metrics"].get("request_totals") or {}
    row.put("requests_ok", totals.get("successful"))
    row.put("requests_failed", totals.get("errored"))
    row.put("requests_cancelled", totals.get("incomplete"))
    if row.figure("requests_planned") is None:
        row.put("requests_planned", totals.get("total"))
    made = (entry.get("run_stats") or {}).get("requests_made") or {}
    if made and made.get("successful") != totals.get("successful"):
        row.notes.append(
            f"run_stats counts {made.get('successful')} successful requests, request_totals {totals.get('successful')}"
        )
        row.evidence["counts_disagree"] = True


def _put_metric(row: ResultRow, name: str, metric: Any) -> None:
    figures = metric.get("successful") if isinstance(metric, dict) else None
    if not isinstance(figures, dict) or not number(figures.get("count", 1)):
        return
    values = {**figures, **(figures.get("percentiles") or {})}
    if name in _LATENCY:
        scale = 1.0 if name.endswith("_ms") else 1e3
        for statistic, ours in _STATISTIC.items():
            if (value := number(values.get(statistic))) is not None:
                row.put(f"{_LATENCY[name]}_{ours}_ms", value * scale)
    elif name == "time_per_output_token_ms":
        row.put("normalized_tpot_mean_ms", values.get("mean"))
    elif name in _PLAIN:
        row.put(_PLAIN[name], values.get("mean"))
        row.put(_PLAIN[name].removesuffix("_mean"), values.get("total_sum"))
    elif name == "requests_per_second":
        row.put("request_rps", values.get("mean"))
    elif name == "request_concurrency":
        row.put("mean_concurrency", values.get("mean"))
    elif name == "output_tokens_per_second":
        row.put("output_tokens_per_s", values.get("mean"))
    elif name == "tokens_per_second":
        row.put("total_tokens_per_s", values.get("mean"))


def _read_requests(row: ResultRow, requests: Any) -> None:
    if not isinstance(requests, dict):
        row.missing.append("per-request data")
        return
    for group, outcome in (("successful", "ok"), ("errored", "failed"), ("incomplete", "cancelled")):
        row.requests += [_request(entry, outcome) for entry in requests.get(group) or []]
    if not row.requests:
        row.missing.append("per-request data (stripped from the report)")
        return
    row.has_instants = all(request.sent_ns is not None for request in row.requests)
    row.notes.append("instants are the tool's wall clock in seconds, put on the monotonic axis as they stand")


def _request(entry: dict[str, Any], outcome: str) -> RequestRow:
    info = entry.get("info") or {}
    timings = info.get("timings") or entry.get("scheduler_info") or {}
    sent = entry.get("start_time") or entry.get("request_start_time") or timings.get("request_start")
    end = entry.get("end_time") or entry.get("request_end_time") or timings.get("request_end")
    first = (
        entry.get("first_token_time")
        or timings.get("first_token_iteration")
        or timings.get("first_iteration")
    )
    last = (
        entry.get("last_token_time") or timings.get("last_token_iteration") or timings.get("last_iteration")
    )
    error = entry.get("error") or info.get("error")
    row = RequestRow(
        outcome=outcome,
        sent_ns=to_ns(sent),
        planned_ns=to_ns(timings.get("targeted_start")),
        first_token_ns=to_ns(first),
        last_token_ns=to_ns(last),
        end_ns=to_ns(end),
        sent_at=_utc(sent),
        prompt_tokens=whole(_tokens(entry, "prompt_tokens", "input_metrics")),
        output_tokens=whole(_tokens(entry, "output_tokens", "output_metrics")),
        token_source="usage",
    )
    if outcome != "ok":
        row.error_detail = str(error)[:200] if error else None
    return row


def _tokens(entry: dict[str, Any], name: str, group: str) -> Any:
    if entry.get(name) is not None:
        return entry[name]
    metrics = entry.get(group) or {}
    return metrics.get("total_tokens", metrics.get("text_tokens"))


def _read_asked_lengths(
    row: ResultRow, config: dict[str, Any], entry: dict[str, Any], spec: dict[str, Any]
) -> None:
    data = (entry.get("request_loader") or {}).get("data") or spec.get("data")
    if isinstance(data, list):
        data = data[0] if data else None
    if isinstance(data, str) and "prompt_tokens=" in data:
        data = dict(part.split("=", 1) for part in data.split(",") if "=" in part)
    if isinstance(data, dict):
        row.asked_prompt_tokens = whole(data.get("prompt_tokens"))
        row.asked_output_tokens = whole(data.get("output_tokens"))
        row.is_fixed_length = row.asked_output_tokens is not None and not number(
            data.get("output_tokens_stdev")
        )


def _utc(seconds: Any) -> str | None:
    found = number(seconds)
    if found is None:
        return None
    return datetime.fromtimestamp(found, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
