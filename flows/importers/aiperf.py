"""AIPerf and its elder genai-perf: summary JSON and CSV, per-request JSONL, raw profile, GPU telemetry."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.importers.reading import Document
from flows.importers.result import RefusedResult, RequestRow, ResultRow, UnknownResult, number, whole

SIGNATURE = frozenset({"request_throughput", "request_latency"})
REQUIRED = SIGNATURE
CSV_SIGNATURE = frozenset({"Metric"})
RECORDS_SIGNATURE = frozenset({"metadata", "metrics"})
TELEMETRY_SIGNATURE = frozenset({"timestamp_ns", "telemetry_data"})
PROFILE_SIGNATURE = frozenset({"experiments"})
KNOWN_SCHEMA_MAJOR = {"1", None}

_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}
_STATISTIC = {"avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_LATENCY = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",  # (latency - TTFT) / (tokens - 1) of each request: TPOT by its definition
    "inter_chunk_latency": "itl",
    "request_latency": "e2e",
}


def read(document: Document) -> list[ResultRow]:
    """The summary JSON of AIPerf (profile_export_aiperf.json) or genai-perf (profile_export_genai_perf.json)."""
    entry = document.data
    is_aiperf = "aiperf_version" in entry or "benchmark_duration" in entry or "input_sequence_length" in entry
    config = entry.get("input_config") if isinstance(entry.get("input_config"), dict) else {}
    if "input_config" in config:
        config = config["input_config"]
    if any(
        key in config for key in ("perf_analyzer", "endpoint_type", "formatted_model_name", "model_names")
    ):
        is_aiperf = "aiperf_version" in entry or "benchmark_duration" in entry
    if is_aiperf and (major := _major(entry.get("schema_version"))) not in KNOWN_SCHEMA_MAJOR:
        raise UnknownResult(
            f"{document.path.name} is an AIPerf summary of the unknown schema version {entry['schema_version']}",
            required=f"schema version 1.x, this is {major}.x",
            evidence=str(document.path),
        )
    row = ResultRow(
        tool="AIPerf" if is_aiperf else "genai-perf",
        tool_version=entry.get("aiperf_version") or entry.get("genai_perf_version"),
        source=document.path,
        model=_model(config),
        engine=_engine(config),
        started_at=_utc(entry.get("start_time")),
        label="aiperf" if is_aiperf else "genai_perf",
    )
    for name, value in entry.items():
        if isinstance(value, dict) and "unit" in value:
            _put(row, name, value.get("unit"), value, document.path)
    _finish(row, entry, config)
    return [row]


def read_csv(document: Document) -> list[ResultRow]:
    """The summary CSV: a block of `Metric,avg,min,...` and a block of `Metric,Value`, units in brackets."""
    head, columns = _header(document)
    is_aiperf = any(
        row and row[0].startswith(("Time to Second", "Benchmark Duration", "Total ISL")) for row in head
    )
    row = ResultRow(
        tool="AIPerf" if is_aiperf else "genai-perf",
        tool_version=None,
        source=document.path,
        label="aiperf" if is_aiperf else "genai_perf",
    )
    for cells in head:
        if not cells or cells[0] == "Metric":
            columns = [cell.lower() for cell in cells] or columns
            continue
        found = re.fullmatch(r"(.+?)(?: \(([^)]*)\))?", cells[0].strip())
        if found is None or len(cells) < 2:
            continue
        name = found[1].lower().replace(" ", "_")
        values = dict(zip(columns[1:], cells[1:], strict=False))
        if "value" in values:
            values["avg"] = values["value"]
        _put(row, name, found[2], values, document.path)
    row.missing += ["model, concurrency and how the load was asked for"]
    _finish(row, {}, {})
    return [row]


def read_records(document: Document) -> list[ResultRow]:
    """profile_export.jsonl: one request a line, every value as {"value", "unit"}, instants in wall-clock ns."""
    entries = document.data
    row = ResultRow(
        tool="AIPerf", tool_version=None, source=document.path, label="aiperf", part_of="requests"
    )
    row.requests = [
        _record(entry, f"{document.path}:{line}")
        for line, entry in enumerate(entries, start=1)
        if entry.get("metadata", {}).get("benchmark_phase", "profiling") in ("profiling", None)
    ]
    row.has_instants = all(request.sent_ns is not None for request in row.requests)
    ok = sum(request.outcome == "ok" for request in row.requests)
    row.headline = {"requests_ok": ok, "requests_failed": sum(r.outcome == "failed" for r in row.requests)}
    row.notes.append("instants are the tool's wall clock in ns, put on the monotonic axis as they stand")
    row.missing += ["requests asked for, model and asked concurrency (the summary file)"]
    return [row]


def read_telemetry(document: Document) -> list[ResultRow]:
    """gpu_telemetry_export.jsonl: one sample of one GPU a line. A GPU is told by its endpoint and index."""
    row = ResultRow(
        tool="AIPerf", tool_version=None, source=document.path, label="aiperf", part_of="telemetry"
    )
    places: dict[tuple[str, int], int] = {}
    for line, entry in enumerate(document.data, start=1):
        data = entry.get("telemetry_data")
        if not isinstance(data, dict) or whole(entry.get("timestamp_ns")) is None:
            raise RefusedResult(
                "a telemetry line has no data or no instant", evidence=f"{document.path}:{line}"
            )
        place = (str(entry.get("dcgm_url")), whole(entry.get("gpu_index")) or 0)
        memory, energy = number(data.get("gpu_memory_used")), number(data.get("energy_consumption"))
        row.telemetry.append(
            {
                "at_ns": whole(entry["timestamp_ns"]),
                "gpu": places.setdefault(place, len(places)),
                "power_w": number(data.get("gpu_power_usage")),
                "sm_clock_mhz": number(data.get("sm_clock_frequency")),
                "mem_clock_mhz": number(data.get("memory_clock_frequency")),
                "temperature_c": number(data.get("gpu_temperature")),
                "utilization_pct": number(data.get("gpu_utilization")),
                # AIPerf gives GB and MJ; the record's units are MB and mJ.
                "memory_used_mb": None if memory is None else memory * 1e3,
                "energy_mj": None if energy is None else energy * 1e9,
            }
        )
    row.evidence["telemetry_gpus"] = {f"{url} gpu {index}": gpu for (url, index), gpu in places.items()}
    row.gpus = len(places)
    row.missing.append("a result: this file holds GPU telemetry only")
    return [row]


def read_profile(document: Document) -> list[ResultRow]:
    """genai-perf's raw profile_export.json: experiments of requests with response instants in ns."""
    rows = []
    for place, experiment in enumerate(document.data["experiments"]):
        mode = experiment.get("experiment", {})
        row = ResultRow(
            tool="genai-perf",
            tool_version=document.data.get("version"),
            source=document.path,
            row_in_file=place,
            engine=str(document.data.get("service_kind") or "unknown"),
            label="genai_perf",
        )
        if mode.get("mode") == "concurrency":
            row.put("asked_concurrency", mode.get("value"))
        elif mode.get("mode") == "request_rate":
            row.put("asked_rps", mode.get("value"))
            row.kind = "constant"
        row.requests = [_profiled(entry) for entry in experiment.get("requests", [])]
        row.has_instants = bool(row.requests)
        ok = sum(request.outcome == "ok" for request in row.requests)
        row.headline |= {"requests_ok": ok, "requests_failed": len(row.requests) - ok}
        row.notes.append("tokens are not counted in this file: chunks are, and a chunk is not a token")
        row.missing += ["token counts", "model", "requests asked for"]
        rows.append(row)
    return rows


def _put(row: ResultRow, name: str, unit: str | None, values: dict[str, Any], path: Path) -> None:
    if name in _LATENCY:
        scale = _MS.get((unit or "").strip().lower())
        if scale is None:
            raise RefusedResult(
                f"{path.name} gives {name} in the unknown unit {unit!r}",
                required=f"one of {', '.join(_MS)}",
                evidence=str(path),
            )
        for statistic, ours in _STATISTIC.items():
            if (value := number(values.get(statistic))) is not None:
                row.put(f"{_LATENCY[name]}_{ours}_ms", value * scale)
        return
    average = values.get("avg")
    if (target := _PLAIN.get(name)) is not None:
        row.put(target, average)
    elif name in ("min_request_timestamp", "max_response_timestamp"):
        row.evidence[name] = whole(average)


_PLAIN = {
    "request_throughput": "request_rps",
    "output_token_throughput": "output_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s",
    "request_count": "requests_ok",
    "error_request_count": "requests_failed",
    "benchmark_duration": "duration_s",
    "total_osl": "output_tokens",
    "total_output_tokens": "output_tokens",
    "total_isl": "prompt_tokens",
    "output_sequence_length": "output_tokens_mean",
    "num_output_token": "output_tokens_mean",
    "input_sequence_length": "prompt_tokens_mean",
    "num_input_token": "prompt_tokens_mean",
    "effective_concurrency": "mean_concurrency",
    "usage_prompt_cache_read_tokens": "cached_tokens_mean",
}


def _finish(row: ResultRow, entry: dict[str, Any], config: dict[str, Any]) -> None:
    ok, failed = row.figure("requests_ok"), row.figure("requests_failed")
    asked = _deep(config, "request_count", "num_requests")
    row.put("requests_planned", asked)
    if row.figure("requests_planned") is None:
        row.missing.append("requests asked for")
    row.put("asked_concurrency", _deep(config, "concurrency"))
    row.put("asked_rps", _deep(config, "request_rate"))
    if row.figure("asked_rps") is not None and row.figure("asked_concurrency") is None:
        row.kind = "poisson"
    row.asked_prompt_tokens = whole(_deep(config, "synthetic_input_tokens_mean", "isl"))
    row.asked_output_tokens = whole(_deep(config, "output_tokens_mean", "osl"))
    spread = number(_deep(config, "output_tokens_stddev"))
    row.is_fixed_length = row.asked_output_tokens is not None and spread == 0
    for name in ("prompt_tokens", "output_tokens"):
        if row.figure(name) is None and ok and (mean := row.figure(f"{name}_mean")) is not None:
            row.headline[name] = mean * ok
    if entry.get("was_cancelled"):
        row.evidence["was_cancelled"] = True
        row.notes.append("the run was cancelled before its end")
    if ok is not None and failed:
        row.notes.append(
            f"{failed:g} requests failed beside {ok:g}: latencies are those of the survivors only"
        )
    if row.figure("ttft_mean_ms") is None:
        row.missing.append("time to first token (not streamed)")
    row.missing.append("per-request data (the profile export beside it)")
    row.drop_zeros_of_nothing()


def _record(entry: dict[str, Any], where: str) -> RequestRow:
    metadata, metrics = entry.get("metadata"), entry.get("metrics")
    if not isinstance(metadata, dict) or not isinstance(metrics, dict):
        raise RefusedResult("a record has no metadata or no metrics", evidence=where)
    sent, end = whole(metadata.get("request_start_ns")), whole(metadata.get("request_end_ns"))
    if sent is None:
        raise RefusedResult("a record has no request_start_ns", evidence=where)
    row = RequestRow(
        sent_ns=sent,
        end_ns=end,
        sent_at=_utc_ns(sent),
        planned_ns=whole(metadata.get("credit_issued_ns")),
        session_id=metadata.get("x_correlation_id") if metadata.get("conversation_id") else None,
        turn=whole(metadata.get("turn_index")) if metadata.get("conversation_id") else None,
        prompt_tokens=whole(_value(metrics, "input_sequence_length")),
        output_tokens=whole(_value(metrics, "output_sequence_length")),
        reasoning_tokens=whole(_value(metrics, "reasoning_token_count")),
        cached_tokens=whole(_value(metrics, "usage_prompt_cache_read_tokens")),
        token_source="usage" if "usage_completion_tokens" in metrics else "counted",
    )
    error = entry.get("error")
    if metadata.get("was_cancelled"):
        row.outcome, row.output_tokens = "cancelled", None
        return row
    if error:
        row.outcome = "failed"
        row.http_status = whole(error.get("code")) if isinstance(error, dict) else None
        row.error_detail = str(error.get("message") if isinstance(error, dict) else error)[:200]
        return row
    ttft = _milliseconds(metrics, "time_to_first_token")
    if ttft is not None:
        row.first_token_ns = sent + round(ttft * 1e6)
    gaps = metrics.get("inter_chunk_latency", {})
    if isinstance(gaps, dict) and isinstance(gaps.get("value"), list) and ttft is not None:
        scale = _MS.get(str(gaps.get("unit")), 1.0) * 1e6
        row.chunk_gap_ns = [round(ttft * 1e6), *(round(float(gap) * scale) for gap in gaps["value"])]
        row.last_token_ns = sent + sum(row.chunk_gap_ns)
    latency = _milliseconds(metrics, "request_latency")
    if latency is not None:
        row.end_ns = sent + round(latency * 1e6)
        row.last_token_ns = row.last_token_ns or row.end_ns
    return row


def _profiled(entry: dict[str, Any]) -> RequestRow:
    sent = whole(entry.get("timestamp"))
    instants = [
        stamp for stamp in (whole(s) for s in entry.get("response_timestamps", [])) if stamp is not None
    ]
    row = RequestRow(sent_ns=sent)
    if sent is None or not instants:
        row.outcome, row.error_detail = "failed", "no response"
        return row
    row.first_token_ns, row.last_token_ns, row.end_ns = instants[0], instants[-1], instants[-1]
    row.chunk_gap_ns = [later - earlier for earlier, later in zip([sent, *instants], instants, strict=False)]
    return row


def _value(metrics: dict[str, Any], name: str) -> Any:
    value = metrics.get(name)
    return value.get("value") if isinstance(value, dict) else value


def _milliseconds(metrics: dict[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    found = number(_value(metrics, name))
    unit = value.get("unit", "ms") if isinstance(value, dict) else "ms"
    return None if found is None else found * _MS.get(unit, 1.0)


def _header(document: Document) -> tuple[list[list[str]], list[str]]:
    if document.data[0][0] != "Metric":
        raise UnknownResult(
            f"{document.path.name} is a CSV of no known tool",
            required="the summary of AIPerf or genai-perf, whose first cell is Metric",
            evidence=f"{document.path}:1",
        )
    return document.data, []


def _major(version: Any) -> str | None:
    return None if version is None else str(version).split(".")[0]


def _model(config: dict[str, Any]) -> str:
    names = _deep(config, "model_names", "model", "models", "formatted_model_name")
    if isinstance(names, list) and names:
        return str(names[0])
    return str(names) if isinstance(names, str) else "unknown"


def _engine(config: dict[str, Any]) -> str:
    backend = _deep(config, "backend", "service_kind")
    return str(backend) if isinstance(backend, str) else "unknown"


def _deep(config: Any, *names: str) -> Any:
    """The first value under one of these names, however deep; the configuration's nesting changed often."""
    for name in names:
        queue: list[Any] = [config]
        while queue:
            value = queue.pop(0)
            if isinstance(value, dict):
                if value.get(name) not in (None, {}, []):
                    return value[name]
                queue += value.values()
    return None


def _utc(text: Any) -> str | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC).isoformat().replace("+00:00", "Z")


def _utc_ns(instant: int) -> str:
    return (
        datetime.fromtimestamp(instant / 1e9, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )


Reader = Callable[[Document], list[ResultRow]]
