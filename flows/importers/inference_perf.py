"""inference-perf: lifecycle reports (client), prometheus reports (server), per-request lifecycle metrics."""

from __future__ import annotations

import re
from typing import Any

from flows.importers.reading import Document
from flows.importers.result import RequestRow, ResultRow, number, seconds_to_ms, to_ns, whole

SIGNATURE = frozenset({"load_summary", "successes", "failures"})
REQUIRED = SIGNATURE
REQUESTS_SIGNATURE = frozenset({"start_time", "end_time", "info"})

_STATISTIC = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_LATENCY = {
    "request_latency": "e2e",
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
}


def read(document: Document) -> list[ResultRow]:
    """A lifecycle report, or a prometheus report where the latencies stand beside the counts."""
    entry = document.data
    row = ResultRow(tool="inference-perf", tool_version=None, source=document.path, label="inference_perf")
    row.kind = "constant"
    stage = re.search(r"stage_(-?\d+)", document.path.name)
    row.variant = f"stage{stage[1]}" if stage else ""
    successes = entry["successes"]
    if "latency" in successes or "throughput" in successes:
        _read_lifecycle(row, entry, successes)
    else:
        _read_prometheus(row, successes)
    row.missing += ["model, tool version and how the load was asked for (config.yaml)", "per-request data"]
    row.drop_zeros_of_nothing()
    return [row]


def read_requests(document: Document) -> list[ResultRow]:
    """per_request_lifecycle_metrics.json: instants in seconds of one monotonic clock."""
    row = ResultRow(
        tool="inference-perf",
        tool_version=None,
        source=document.path,
        label="inference_perf",
        part_of="requests",
    )
    row.requests = [_request(entry) for entry in document.data]
    row.has_instants = True
    ok = sum(request.outcome == "ok" for request in row.requests)
    row.headline = {
        "requests_planned": len(row.requests),
        "requests_ok": ok,
        "requests_failed": len(row.requests) - ok,
    }
    row.missing += ["model, asked rate and tool version"]
    return [row]


def _read_lifecycle(row: ResultRow, entry: dict[str, Any], successes: dict[str, Any]) -> None:
    load, failures = entry["load_summary"] or {}, entry["failures"] or {}
    row.put("requests_planned", load.get("count"))
    row.put("requests_ok", successes.get("count"))
    row.put("requests_failed", failures.get("count"))
    row.put("asked_rps", load.get("requested_rate"))
    row.put("sent_rps", load.get("achieved_rate"))
    if load.get("concurrency") is not None:
        row.put("asked_concurrency", load["concurrency"])
        row.kind = "closed"
        row.headline.pop(
            "asked_rps", None
        )  # a closed stage's rate is a device of the scheduler, not asked of it
        row.headline.pop("sent_rps", None)
    delay = load.get("schedule_delay") or {}
    row.put("send_delay_p50_ms", seconds_to_ms(delay.get("median")))
    row.put("send_delay_p99_ms", seconds_to_ms(delay.get("p99")))
    throughput = successes.get("throughput") or {}
    row.put("request_rps", throughput.get("requests_per_sec"))
    row.put("output_tokens_per_s", throughput.get("output_tokens_per_sec"))
    row.put("total_tokens_per_s", throughput.get("total_tokens_per_sec"))
    _put_latencies(row, successes.get("latency") or {})
    for name, keys in (
        ("prompt_tokens", ("prompt_tokens", "prompt_len")),
        ("output_tokens", ("output_tokens", "output_len")),
    ):
        found: dict[str, Any] = next(
            (successes[key] for key in keys if isinstance(successes.get(key), dict)), {}
        )
        row.put(f"{name}_mean", found.get("mean"))
        row.put(name, found.get("total"))
        if row.figure(name) is None and row.figure("requests_ok") and row.figure(f"{name}_mean") is not None:
            row.headline[name] = (row.figure(f"{name}_mean") or 0.0) * (row.figure("requests_ok") or 0.0)
    cached = (
        (successes.get("prompt_tokens") or {}).get("cached")
        if isinstance(successes.get("prompt_tokens"), dict)
        else None
    )
    if cached:  # 0 stands for "the server never said" too, so that only a count above 0 is evidence
        row.put("cached_tokens", cached)
    row.put("duration_s", entry.get("benchmark_time_seconds"))
    rate, ok = row.figure("request_rps"), row.figure("requests_ok")
    if not row.figure("duration_s") and rate and ok:
        row.headline["duration_s"] = ok / rate
    asked, sent = row.figure("asked_rps"), row.figure("sent_rps")
    if asked and sent and sent / asked < 0.95:
        row.notes.append(
            f"overload: {sent:.1f} of {asked:.1f} requests/s were sent; not a point at that rate"
        )
        row.evidence["is_overload"] = True


def _read_prometheus(row: ResultRow, successes: dict[str, Any]) -> None:
    row.label = "inference_perf_prometheus"
    row.put("requests_ok", successes.get("count"))
    row.put("request_rps", successes.get("rate"))
    _put_latencies(row, successes)
    for name, key in (("prompt_tokens", "prompt_len"), ("output_tokens", "output_len")):
        found = successes.get(key) or {}
        rate, requests = number(found.get("rate")), row.figure("request_rps")
        row.put(f"{name}_mean", found.get("mean"))
        if rate is not None:
            row.put(f"{name}_per_s", rate)
        if rate and requests:
            row.recomputed[f"{name}_mean"] = rate / requests
    if (rate := row.figure("output_tokens_per_s")) is not None and (
        prompt := row.figure("prompt_tokens_per_s")
    ):
        row.headline["total_tokens_per_s"] = rate + prompt
    row.put("queue_mean", (successes.get("queue_len") or {}).get("mean"))
    usage = successes.get("kv_cache_usage_percentage") or {}
    busy = (row.figure("requests_ok") or 0) > 0
    if busy and not any(number(usage.get(name)) for name in ("mean", "median", "p90", "p99")):
        row.missing.append(
            "KV cache usage: 0 in every statistic while requests ran is a missing metric, not 0 %"
        )
    else:
        for name, ours in _STATISTIC.items():
            row.put(f"kv_usage_{ours}", usage.get(name))
    hits = number((successes.get("prefix_cache_hit_percent") or {}).get("mean"))
    if hits:
        row.headline["cached_share"] = hits / 100.0
    else:
        row.missing.append("prefix cache hits: this report writes 0 when the metric is missing too")
    row.missing += ["failures (a server counts no failed requests)", "asked and sent rate"]
    row.notes.append("a server's own counters: its latencies end at the engine, not at a client")
    row.evidence["is_server_side"] = True


def _put_latencies(row: ResultRow, latencies: dict[str, Any]) -> None:
    for theirs, ours in _LATENCY.items():
        statistics = latencies.get(theirs)
        if isinstance(statistics, dict):
            for statistic, name in _STATISTIC.items():
                row.put(f"{ours}_{name}_ms", seconds_to_ms(statistics.get(statistic)))


def _request(entry: dict[str, Any]) -> RequestRow:
    info = entry.get("info") or {}
    response = info.get("response_metrics") or info
    usage = response.get("server_usage") or {}
    instants = [
        stamp for stamp in (to_ns(s) for s in response.get("output_token_times") or []) if stamp is not None
    ]
    sent = to_ns(entry.get("start_time"))
    prompts = info.get("request_metrics", {}).get("text", {}).get("input_tokens", info.get("input_tokens"))
    row = RequestRow(
        sent_ns=sent,
        planned_ns=to_ns(entry.get("scheduled_time")),
        end_ns=to_ns(entry.get("end_time")),
        prompt_tokens=whole(usage.get("prompt_tokens", prompts)),
        cached_tokens=whole((usage.get("prompt_tokens_details") or {}).get("cached_tokens")),
        output_tokens=whole(usage.get("completion_tokens", response.get("output_tokens"))),
        token_source="usage" if usage.get("completion_tokens") is not None else "counted",
        session_id=entry.get("session_id"),
    )
    if entry.get("error"):
        row.outcome, row.output_tokens = "failed", None
        row.error_detail = str(entry["error"])[:200]
        return row
    if sent is not None and instants:
        row.first_token_ns, row.last_token_ns = instants[0], instants[-1]
        row.chunk_gap_ns = [
            later - earlier for earlier, later in zip([sent, *instants], instants, strict=False)
        ]
    return row
