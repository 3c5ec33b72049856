"""The reference server's /metrics, in the dialect of a recent vLLM: true, or with the lies of its scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.engines.reference_server import BUCKETS, resident_mb

if TYPE_CHECKING:
    from flows.engines.reference_server import ReferenceServer

# Canonical counter (contracts.records.Counters) -> vLLM's name, type.
NAMES = {
    "prompt_tokens": ("vllm:prompt_tokens_total", "counter"),
    "cached_prompt_tokens": ("vllm:prefix_cache_hits_total", "counter"),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "counter"),
    "output_tokens": ("vllm:generation_tokens_total", "counter"),
    "requests_running": ("vllm:num_requests_running", "gauge"),
    "requests_waiting": ("vllm:num_requests_waiting", "gauge"),
    "preemptions": ("vllm:num_preemptions_total", "counter"),
    "kv_usage": ("vllm:kv_cache_usage_perc", "gauge"),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total", "counter"),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total", "counter"),
    "drafts": ("vllm:spec_decode_num_drafts_total", "counter"),
}


def render(server: ReferenceServer) -> bytes:
    """The exposition, Prometheus text format 0.0.4."""
    scenario, stats, asked = server.scenario, server.stats, server.scenario.metrics
    labels = f'{{engine="0",model_name="{scenario.model}"}}'
    block = scenario.cache.block_tokens
    in_use = sum(stream.prompt_tokens + stream.out_tokens for stream in server.running)
    values: dict[str, float | None] = {
        "prompt_tokens": stats.prompt_tokens,
        "cached_prompt_tokens": stats.cached_tokens,
        "prefix_queries": stats.prompt_tokens if scenario.cache.enabled else 0,
        "output_tokens": stats.output_tokens,
        "requests_running": len(server.running),
        "requests_waiting": len(server.slots_waiting),
        "preemptions": int(stats.preemptions),
        "kv_usage": min(1.0, in_use / max(block, scenario.start.kv_tokens)),
        "draft_tokens": None,
        "accepted_tokens": None,
        "drafts": None,
    }
    if asked.accepts_per_draft is not None:
        # Every step drafts one token less than a chunk carries, and accepts the given share of them.
        per_draft = max(1, scenario.tokens.per_chunk)
        drafts = stats.output_tokens // max(1, per_draft)
        values |= {
            "drafts": drafts,
            "draft_tokens": drafts * per_draft,
            "accepted_tokens": round(drafts * asked.accepts_per_draft),
        }
    lines: list[str] = []
    for name, value in values.items():
        if value is None or name in asked.absent:
            continue
        full, kind = NAMES[name]
        lines += [f"# HELP {full} {name} in tokens or requests.", f"# TYPE {full} {kind}"]
        text = "NaN" if name in asked.nan else f"{value * asked.factors.get(name, 1.0):.10g}"
        lines.append(f"{full}{labels} {text}")
    if "requests_ok" not in asked.absent:
        factor = asked.factors.get("requests_ok", 1.0)
        lines.append("# TYPE vllm:request_success_total counter")
        for reason, count in stats.finished.items():
            told = f'{{engine="0",finished_reason="{reason}",model_name="{scenario.model}"}}'
            lines.append(f"vllm:request_success_total{told} {count * factor:.10g}")
    if "ttft_sum_s" not in asked.absent:
        total, count = stats.ttft_s_sum, stats.ttft_count
        lines += _histogram("vllm:time_to_first_token_seconds", labels, total * asked.ttft_factor, count,
                            stats.ttft_buckets)  # fmt: skip
    if "e2e_sum_s" not in asked.absent:
        total, count = stats.e2e_s_sum, stats.e2e_count
        name = "vllm:e2e_request_latency_seconds"
        lines += [
            f"# TYPE {name} histogram",
            f"{name}_count{labels} {count}",
            f"{name}_sum{labels} {total:.9g}",
        ]
    lines.append("# TYPE vllm:cache_config_info gauge")
    facts = f'block_size="{block}",enable_prefix_caching="{scenario.cache.enabled}",engine="0"'
    lines.append(f"vllm:cache_config_info{{{facts}}} 1")
    if "process_start_time_s" not in asked.absent:
        lines += [
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {stats.started_at:.3f}",
        ]
    if "server_rss_mb" not in asked.absent:
        told_mb = resident_mb() * asked.factors.get("server_rss_mb", 1.0)
        lines += [
            "# TYPE process_resident_memory_bytes gauge",
            f"process_resident_memory_bytes {told_mb * 1e6:.0f}",
        ]
    return ("\n".join(lines) + "\n").encode()


def _histogram(name: str, labels: str, total: float, count: int, buckets: list[int]) -> list[str]:
    inner = labels[1:-1]
    lines = [f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{{inner},le="{bound}"}} {buckets[at]}' for at, bound in enumerate(BUCKETS)]
    lines += [f'{name}_bucket{{{inner},le="+Inf"}} {count}', f"{name}_count{labels} {count}"]
    lines.append(f"{name}_sum{labels} {total:.9g}")
    return lines
