"""Reads a /metrics body into canonical counters, for every engine's names, old and new. Absent is None, never 0.

A name with HELP and TYPE but no sample is absent. NaN is absent. Counters of several engines or data-parallel ranks
add up; tensor-parallel ranks repeat each other and count once. A prefix-cache counter in blocks is not a number of
tokens: it is noted, kept under `blocks`, and the token field stays None.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flows.engines.base import EngineFacts

FIELDS = (
    "prompt_tokens", "cached_prompt_tokens", "prefix_queries", "output_tokens", "requests_ok", "requests_running",
    "requests_waiting", "preemptions", "kv_usage", "ttft_sum_s", "ttft_count", "e2e_sum_s", "e2e_count",
    "draft_tokens", "accepted_tokens", "drafts", "server_rss_mb", "process_start_time_s",
)  # fmt: skip
FINISHED_WELL = {"stop", "length", "repetition", "tool_calls"}  # aborts and errors are not answered requests

# Canonical name -> the engine's names, newest first. The first that has a sample is used; they are never added up.
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {
        "prompt_tokens": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
        "cached_prompt_tokens": (
            "vllm:prompt_tokens_cached_total", "vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits",
            "vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits",
        ),
        "prefix_queries": (
            "vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total",
            "vllm:gpu_prefix_cache_queries",
        ),
        "output_tokens": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
        "requests_ok": ("vllm:request_success_total", "vllm:request_success"),
        "requests_running": ("vllm:num_requests_running",),
        "requests_waiting": ("vllm:num_requests_waiting",),
        "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions"),
        "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "vllm:cpu_kv_cache_usage_perc"),
        "ttft_sum_s": ("vllm:time_to_first_token_seconds_sum",),
        "ttft_count": ("vllm:time_to_first_token_seconds_count",),
        "e2e_sum_s": ("vllm:e2e_request_latency_seconds_sum",),
        "e2e_count": ("vllm:e2e_request_latency_seconds_count",),
        "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
        "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
        "drafts": ("vllm:spec_decode_num_drafts_total",),
    },
    "sglang": {
        "prompt_tokens": ("sglang:prompt_tokens_total",),
        "cached_prompt_tokens": ("sglang:cached_tokens_total",),
        "output_tokens": ("sglang:generation_tokens_total",),
        "requests_ok": ("sglang:num_requests_total",),
        "requests_running": ("sglang:num_running_reqs",),
        "requests_waiting": ("sglang:num_queue_reqs",),
        "kv_usage": ("sglang:token_usage", "sglang:full_token_usage"),
        "ttft_sum_s": ("sglang:time_to_first_token_seconds_sum",),
        "ttft_count": ("sglang:time_to_first_token_seconds_count",),
        "e2e_sum_s": ("sglang:e2e_request_latency_seconds_sum",),
        "e2e_count": ("sglang:e2e_request_latency_seconds_count",),
    },
    "llamacpp": {
        "prompt_tokens": ("llamacpp:prompt_tokens_total",),
        "cached_prompt_tokens": ("llamacpp:prompt_tokens_cached_total",),
        "output_tokens": ("llamacpp:tokens_predicted_total",),
        "requests_running": ("llamacpp:requests_processing",),
        "requests_waiting": ("llamacpp:requests_deferred",),
        "kv_usage": ("llamacpp:kv_cache_usage_ratio",),
        "draft_tokens": ("llamacpp:spec_decode_num_draft_tokens_total",),
        "accepted_tokens": ("llamacpp:spec_decode_num_accepted_tokens_total",),
        "drafts": ("llamacpp:spec_decode_num_drafts_total",),
    },
}  # fmt: skip
COMMON = {
    "process_start_time_s": ("process_start_time_seconds",),
    "server_rss_mb": ("process_resident_memory_bytes",),
}
GAUGES_BY_MAX = {"kv_usage", "process_start_time_s"}
# Old vLLM names whose unit changed from blocks to tokens; HELP says which.
UNIT_CHANGED = re.compile(r"^vllm:(gpu_)?prefix_cache_(queries|hits)(_total)?$")


@dataclass(frozen=True)
class Sample:
    """One sample line. value None: NaN or infinite."""

    labels: dict[str, str]
    value: float | None


@dataclass
class Exposition:
    """A parsed /metrics body: samples and HELP text by name. declared: names that HELP or TYPE mention."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    help: dict[str, str] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)


def parse_metrics(text: str) -> Exposition:
    """Parse Prometheus text, OpenMetrics or the JSON subset `{"metrics": [{"series", "value"}]}`.

    Lines that are none of these are skipped: a half-written or garbled body gives what can be read of it.
    """
    body = Exposition()
    if text.lstrip()[:1] == "{" and _read_json(text, body):
        return body
    for line in text.split("\n"):
        line = line.strip()
        if line.startswith("#"):
            _read_comment(line, body)
        elif line:
            _read_sample(line, body)
    return body


def read_counters(text: str, engine: str | None = None) -> dict[str, Any]:
    """Canonical counters of a /metrics body (every field of contracts.records.Counters that an engine gives).

    engine: whose dialect; found from the names when None. Keys besides the counters: `source_names` (canonical to
    the engine's own), `notes` (units and oddities in words), `blocks` (prefix-cache counters counted in blocks).
    """
    body = parse_metrics(text)
    found: dict[str, Any] = dict.fromkeys(FIELDS)
    sources: dict[str, str] = {}
    notes: list[str] = []
    blocks: dict[str, float] = {}
    dialect = engine if engine in NAMES else _dialect(body)
    for canonical, names in {**NAMES.get(dialect or "", {}), **COMMON}.items():
        for name in names:
            value = _combine(canonical, body.samples.get(name, []))
            if value is None:
                continue
            unit = _unit(name, body)
            if unit == "tokens":
                found[canonical] = value
                sources[canonical] = name
            else:
                blocks[canonical] = value
                notes.append(f"{name} counts {unit}: {canonical} in tokens is not observed")
            break
        else:
            for name in (name for name in names if name in body.declared):
                notes.append(f"{name} is declared (in {_unit(name, body)}) without a sample")
    if found["server_rss_mb"] is not None:
        found["server_rss_mb"] /= 1e6
    if dialect == "llamacpp":
        _add_cached_prompt(found, sources, notes)
    for rate in ("sglang:cache_hit_rate", "vllm:gpu_prefix_cache_hit_rate"):
        if body.samples.get(rate):
            notes.append(f"{rate} is a rate (a fraction in some versions, a percentage in others): not used")
    return {**found, "source_names": sources, "notes": notes, "blocks": blocks}


def read_metrics_facts(text: str) -> EngineFacts:
    """What labels and gauges of a /metrics body say of the server: KV tokens, prefix caching, block size."""
    body = parse_metrics(text)
    facts = EngineFacts()
    for sample in body.samples.get("vllm:cache_config_info", [])[:1]:
        labels = sample.labels
        if labels.get("kv_cache_size_tokens", "").isdigit():
            facts.kv_tokens = int(labels["kv_cache_size_tokens"])
        concurrency = _number(labels.get("kv_cache_max_concurrency", ""))
        facts.max_concurrency = concurrency
        if labels.get("enable_prefix_caching") in ("True", "False"):
            facts.prefix_caching = labels["enable_prefix_caching"] == "True"
        facts.extra["cache_config"] = {k: v for k, v in labels.items() if v not in ("None", "")}
    for sample in body.samples.get("sglang:max_total_num_tokens", [])[:1]:
        if sample.value is not None:
            facts.kv_tokens = int(sample.value)
    return facts


def _dialect(body: Exposition) -> str | None:
    for name in (*body.samples, *sorted(body.declared)):
        prefix = name.partition(":")[0]
        if prefix in NAMES:
            return prefix
    return None


def _unit(name: str, body: Exposition) -> str:
    if not UNIT_CHANGED.match(name):
        return "tokens"
    text = body.help.get(name) or body.help.get(name.removesuffix("_total")) or ""
    if "block" in text.lower():
        return "blocks"
    if "token" in text.lower() or "gpu_" not in name:
        return "tokens"
    return "blocks or tokens (it does not say)"


def _combine(canonical: str, samples: Iterable[Sample]) -> float | None:
    kept = [s for s in samples if s.value is not None]
    if canonical == "requests_ok":
        kept = [s for s in kept if s.labels.get("finished_reason", "stop") in FINISHED_WELL]
    kept = _one_tensor_rank(kept)
    values = [s.value for s in kept if s.value is not None]
    if not values:
        return None
    return max(values) if canonical in GAUGES_BY_MAX else math.fsum(values)


def _one_tensor_rank(samples: list[Sample]) -> list[Sample]:
    """Keep one tensor- and pipeline-parallel rank of each engine: the ranks of a group report the same thing."""
    ranks = {(s.labels.get("tp_rank"), s.labels.get("pp_rank")) for s in samples}
    if len(ranks) < 2:
        return samples
    first: dict[str | None, tuple[str, str]] = {}
    for sample in samples:
        rank = (sample.labels.get("tp_rank", ""), sample.labels.get("pp_rank", ""))
        group = sample.labels.get("dp_rank")
        first[group] = min(first.get(group, rank), rank)
    return [
        s
        for s in samples
        if (s.labels.get("tp_rank", ""), s.labels.get("pp_rank", "")) == first[s.labels.get("dp_rank")]
    ]


def _add_cached_prompt(found: dict[str, Any], sources: dict[str, str], notes: list[str]) -> None:
    """llama.cpp counts a prompt's computed tokens; where it also counts the reused ones, both are the prompt."""
    if found["prompt_tokens"] is None:
        return
    if found["cached_prompt_tokens"] is None:
        notes.append(
            "llamacpp:prompt_tokens_total leaves out cached tokens, and this build does not count those"
        )
        return
    found["prompt_tokens"] += found["cached_prompt_tokens"]
    found["prefix_queries"] = found["prompt_tokens"]
    sources["prompt_tokens"] += " + llamacpp:prompt_tokens_cached_total"
    sources["prefix_queries"] = sources["prompt_tokens"]


def _read_comment(line: str, body: Exposition) -> None:
    parts = line.split(None, 3)
    if len(parts) >= 3 and parts[1] in ("HELP", "TYPE"):
        body.declared.add(parts[2])
        if parts[1] == "HELP" and len(parts) == 4:
            body.help[parts[2]] = parts[3]


def _read_sample(line: str, body: Exposition) -> None:
    brace = line.find("{")
    space = line.find(" ")
    labels: dict[str, str] = {}
    if brace >= 0 and (space < 0 or brace < space):
        name = line[:brace]
        parsed = _read_labels(line, brace + 1)
        if parsed is None:
            return
        labels, rest = parsed[0], line[parsed[1] :]
    else:
        name, _, rest = line.partition(" ")
    tokens = rest.split(None, 1)
    if not name or not tokens or not (name[0].isalpha() or name[0] in "_:"):
        return
    try:
        value = float(tokens[0])
    except ValueError:
        return
    body.samples.setdefault(name, []).append(Sample(labels, value if math.isfinite(value) else None))


def _read_labels(line: str, start: int) -> tuple[dict[str, str], int] | None:
    """Labels from just behind `{`, and the place behind `}`. Values may hold braces, commas, escaped quotes."""
    labels: dict[str, str] = {}
    at = start
    while at < len(line):
        if line[at] in ", ":
            at += 1
            continue
        if line[at] == "}":
            return labels, at + 1
        equals = line.find('="', at)
        if equals < 0:
            return None
        name, at = line[at:equals].strip(), equals + 2
        value = []
        while at < len(line) and line[at] != '"':
            if line[at] == "\\" and at + 1 < len(line):
                value.append({"n": "\n", '"': '"', "\\": "\\"}.get(line[at + 1], line[at : at + 2]))
                at += 2
            else:
                value.append(line[at])
                at += 1
        if at >= len(line):
            return None
        labels[name] = "".join(value)
        at += 1
    return None


def _read_json(text: str, body: Exposition) -> bool:
    try:
        data = json.loads(text)
    except ValueError:
        return False
    entries = data.get("metrics") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return False
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("series"), str):
            _read_sample(f"{entry['series']} {entry.get('value')}", body)
    return True


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
