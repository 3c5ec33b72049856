"""Synthetic runs, each with one thing wrong, and the database that one build makes of all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from contracts.records import Request
from flows.synthetic import SyntheticCell, SyntheticRun, needle_cell, write_run

change = msgspec.structs.replace
SWEEP = SyntheticCell()
NEEDLES = needle_cell()


def _run(name: str, cell: SyntheticCell = SWEEP, **fields: Any) -> SyntheticRun:
    return SyntheticRun(name, recipe=name, policy="strict", cells=(cell, NEEDLES), **fields)


def _edited(edit: Any, **fields: Any) -> SyntheticCell:
    return replace(SWEEP, edit=edit, **fields)


def _same_prompt(request: Request) -> Request:
    return change(request, first_block_sha256="a" * 64, prompt_sha256="a" * 64)


def _four_tokens_a_chunk(request: Request) -> Request:
    gaps = request.chunk_gap_ns
    merged = [gaps[0]] + [sum(gaps[i : i + 4]) for i in range(1, len(gaps), 4)]
    return change(request, chunk_gap_ns=merged, chunk_count=len(merged))


def _at_once(request: Request) -> Request:
    """The whole answer in one chunk at its end, as a parser that buffers sends it."""
    assert request.last_token_ns
    assert request.sent_ns is not None
    whole = request.last_token_ns - request.sent_ns
    return change(request, chunk_gap_ns=[whole], chunk_count=1, first_token_ns=request.last_token_ns)


def _negative_gap(request: Request) -> Request:
    if request.index != 5:
        return request
    gaps = list(request.chunk_gap_ns)
    gaps[3], gaps[4] = -1_000_000, gaps[3] + gaps[4] + 1_000_000
    return change(request, chunk_gap_ns=gaps)


def _reasoning(request: Request) -> Request:
    return change(request, reasoning_tokens=40)


def _cut_short(request: Request) -> Request:
    return change(request, finish_reason="length" if request.index % 10 == 0 else "stop")


def _counted(request: Request) -> Request:
    return change(request, output_token_source="counted")


def _usage_without_cache(request: Request) -> Request:
    return change(request, cached_tokens=None)


def _waited(request: Request) -> Request:
    """The client's own semaphore held the request back for a second after it was due."""
    assert request.sent_ns is not None
    return change(request, planned_ns=request.sent_ns - 1_000_000_000)


def _slow_first_wave(request: Request) -> Request:
    """The first request of every stream met a compiler: eight times as long until its first token."""
    if request.index >= 4:
        return request
    wait = 2_000_000_000
    gaps = [request.chunk_gap_ns[0] + wait, *request.chunk_gap_ns[1:]]
    moved = {
        name: getattr(request, name) + wait
        for name in ("first_byte_ns", "first_token_ns", "last_token_ns", "end_ns")
    }
    return change(request, chunk_gap_ns=gaps, **moved)


def _late_sends(request: Request) -> Request:
    """Due every 100 ms, sent every 145 ms."""
    planned = 100_000_000_000 + request.index * 100_000_000
    late = 100_000_000_000 + request.index * 145_000_000
    assert request.sent_ns is not None
    shift = late - request.sent_ns
    moved = {
        name: getattr(request, name) + shift
        for name in ("sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "end_ns")
    }
    return change(request, planned_ns=planned, **moved)


def _half_prompt(request: Request) -> Request:
    return change(request, prompt_tokens=256)


def _slowing(request: Request) -> Request:
    """Every request takes a little longer than the one before."""
    factor = 1 + request.index / 64 * 0.2
    gaps = [round(gap * factor) for gap in request.chunk_gap_ns]
    assert request.sent_ns is not None
    last = request.sent_ns + sum(gaps)
    return change(
        request, chunk_gap_ns=gaps, first_token_ns=request.sent_ns + gaps[0], last_token_ns=last, end_ns=last
    )


def _all_failed(request: Request) -> Request:
    return change(
        request,
        outcome="failed",
        error_class="http_5xx",
        first_token_ns=None,
        last_token_ns=None,
        first_byte_ns=None,
        chunk_gap_ns=[],
        chunk_count=0,
        prompt_tokens=None,
        cached_tokens=None,
        output_tokens=None,
        output_token_source=None,
        finish_reason=None,
        output_sha256=None,
    )


def _error_in_a_200(request: Request) -> Request:
    return change(request, error_class="error_in_stream") if request.index == 7 else request


FREE = {
    "is_fixed_length": False,
    "asked_output_tokens": None,
    "planned_finish_reason": "stop",
    "workload": "chat_quality",
}
WINDOW_FAILED = {"ok": 0, "failed": 64}

SCENARIOS: tuple[SyntheticRun, ...] = (
    _run("clean"),
    SyntheticRun("no-needles", policy="strict", cells=(SWEEP,)),
    SyntheticRun("missed-needle", policy="strict", cells=(SWEEP, needle_cell(missed=1))),
    SyntheticRun("short-needles", policy="strict", cells=(replace(SWEEP, context_tokens=8192), NEEDLES)),
    _run("hits-by-counters", _edited(_usage_without_cache, counters={"cached_prompt_tokens": 6554.0})),
    _run("hits-93-percent", _edited(_usage_without_cache, counters={"cached_prompt_tokens": 30441.0})),
    _run("hits-by-usage", replace(SWEEP, cached_tokens=256)),
    _run(
        "no-witness",
        _edited(_usage_without_cache, counters={"cached_prompt_tokens": None, "prefix_queries": None}),
    ),
    SyntheticRun(
        "same-seed",
        policy="strict",
        cells=(
            _edited(_same_prompt, requests=1, concurrency=1),
            _edited(_same_prompt, cell_id="sweep-again"),
            NEEDLES,
        ),
    ),
    _run("one-prompt", _edited(_same_prompt)),
    _run("prefix-only", _edited(_half_prompt)),
    _run("chunks-of-four", _edited(_four_tokens_a_chunk)),
    _run(
        "speculating",
        _edited(_four_tokens_a_chunk),
        start={"recipe_settings": {"speculation.draft_tokens": 3}},
    ),
    _run(
        "random-drafts",
        replace(SWEEP, cell={"params": {"dataset_name": "random"}}),
        start={"recipe_settings": {"speculation.draft_tokens": 1}},
    ),
    _run("buffered", _edited(_at_once)),
    _run("negative-gap", _edited(_negative_gap)),
    _run("counted-tokens", _edited(_counted)),
    _run("slow-client", replace(SWEEP, counters={"ttft_sum_s": 0.2, "ttft_count": 68.0}, ttft_ms=400.0)),
    _run("laggy-loop", replace(SWEEP, window={"loop_lag_p99_ms": 30.0})),
    _run("half-the-load", replace(SWEEP, cell={"concurrency": 8})),
    _run(
        "late-sends",
        _edited(_late_sends, cell={"shape": {"kind": "constant", "rate_rps": 10.0}}),
    ),
    _run("waited", _edited(_waited)),
    _run("compiled-inside", _edited(_slow_first_wave)),
    _run("all-failed", _edited(_all_failed, window=WINDOW_FAILED)),
    _run("third-failed", replace(SWEEP, failed=21)),
    _run("error-in-a-200", _edited(_error_in_a_200)),
    _run("peak-of-six", replace(SWEEP, concurrency=2, window={"max_concurrency": 6})),
    _run("cache-off", bring_up={"prefix_caching": False}),
    _run(
        "wrong-kernel", start={"claimed_precision": "w4a4"}, bring_up={"facts": {"kernel_precision": "w4a16"}}
    ),
    _run("slot-limited", replace(SWEEP, counters={"requests_waiting": 12.0, "kv_usage": 0.35})),
    _run("length-stops", _edited(_cut_short, cell=FREE)),
    _run("still-thinking", _edited(_reasoning, cell={"params": {"thinking": False}})),
    _run(
        "strict-zero",
        replace(
            SWEEP,
            cell=FREE | {"planned_finish_reason": None},
            grades=({"is_correct": False, "is_correct_lenient": True},),
        ),
    ),
    _run("slowing", _edited(_slowing)),
    _run("few", replace(SWEEP, requests=8)),
    _run("probe-lost", probes_after=(False, True)),
    _run("restarted", replace(SWEEP, counters={"process_start_time_s": 900.0})),
    _run("storm", replace(SWEEP, counters={"preemptions": 30.0})),
    _run("drifting", replace(SWEEP, window={"drift_ms_per_min": -4.0})),
    _run("throttled", replace(SWEEP, telemetry={"throttle_reasons": ["sw_thermal_slowdown"]})),
    _run("too-fast", replace(SWEEP, prompt_tokens=512, ttft_ms=0.1, itl_ms=0.01, output_tokens=64)),
    _run("no-model-facts", start={"model_facts": None}),
    _run("drafts-in-words", start={"recipe_settings": {"speculation.draft_tokens": "three"}}),
    _run("drafts-without-end", start={"recipe_settings": {"speculation.draft_tokens": "NaN"}}),
    _run("caching-perhaps", start={"recipe_settings": {"prefix_caching": "perhaps"}}),
    _run("slots-in-words", start={"recipe_settings": {"max_running_requests": "many"}}),
    _run("sized-in-words", start={"model_facts": {"params_active": "8B"}}),
    _run("node-in-words", node={"cpu_gflops": "fast"}),
    _run("thinking-a-little", replace(SWEEP, cell={"params": {"thinking": "a little"}})),
    _run("ramp-in-words", replace(SWEEP, cell={"shape": {"kind": "closed", "ramp_up_s": "soon"}})),
    _run("engine-died", replace(SWEEP, cell={"window_state": "engine_died", "window_note": "exit 137"})),
    _run("counter-lies", replace(SWEEP, counters={"output_tokens": 100.0 + 64 * 64 * 1.1})),
    SyntheticRun("original", recipe="original", policy="original"),
    SyntheticRun("no-such-policy", recipe="no-such-policy", policy="lenient"),
    SyntheticRun("broken", recipe="broken", failure_class="kv_too_small"),
    SyntheticRun("mended", recipe="mended", rescues="broken", policy="original"),
)

LLAMA_8B: dict[str, Any] = {
    "params_total": 8_030_261_248,
    "params_active": 8_030_261_248,
    "weight_bytes": 16_060_522_496,
    "active_weight_bytes": 15_009_849_344,
    "kv_bytes_per_token_full": 131_072,
    "kv_read_bytes_per_token_full": 131_072,
    "attn_flops_per_token_per_key_full": 524_288,
    "compute_precision": "bf16",
    "precision_true": "bf16",
}


def _roof(name: str, facts: dict[str, Any], prompt_tokens: int = 1024, **fields: Any) -> SyntheticRun:
    start = {"model_facts": facts, "gpus": fields.pop("gpus", 1)} | fields.pop("start", {})
    cell = SyntheticCell(
        cell_id="roof",
        concurrency=1,
        requests=2,
        warmup_requests=0,
        prompt_tokens=prompt_tokens,
        output_tokens=16,
    )
    node = {"gpus": 8, "gpu_names": [fields.pop("gpu", "NVIDIA H200")] * 8} | fields.pop("node", {})
    return SyntheticRun(name, recipe=name, policy="strict", cells=(cell,), start=start, node=node, **fields)


ROOFS: tuple[SyntheticRun, ...] = (
    _roof("roof-8b-1k", LLAMA_8B),
    _roof("roof-8b-1m", LLAMA_8B, 1_000_000),
    _roof("roof-8b-two", LLAMA_8B, gpus=2),
    _roof("roof-8b-nvl", LLAMA_8B, gpu="NVIDIA H200 NVL"),
    _roof("roof-8b-a100", LLAMA_8B | {"compute_precision": "fp8"}, gpu="NVIDIA A100-SXM4-80GB"),
    _roof(
        "roof-half-b-1k",
        {
            "params_active": 494_032_768,
            "active_weight_bytes": 988_065_536,
            "kv_read_bytes_per_token_full": 12_288,
            "attn_flops_per_token_per_key_full": 86_016,
            "compute_precision": "bf16",
        },
    ),
    # of 235B parameters 22B are used by a token, in FP8
    _roof(
        "roof-moe",
        {
            "params_total": 235_000_000_000,
            "params_active": 22_000_000_000,
            "active_weight_bytes": 22_000_000_000,
            "kv_read_bytes_per_token_full": 192_512,
            "attn_flops_per_token_per_key_full": 3_080_192,
            "compute_precision": "fp8",
        },
        gpus=4,
    ),
    # compressed keys and values: 61 layers of 576 elements in two bytes
    _roof(
        "roof-mla-100k",
        {
            "params_active": 37_000_000_000,
            "active_weight_bytes": 37_000_000_000,
            "kv_read_bytes_per_token_full": 70_272,
            "attn_flops_per_token_per_key_full": 4_997_120,
            "compute_precision": "fp8",
        },
        100_000,
        gpus=8,
    ),
    # half of the layers look back over 1,024 tokens only
    _roof(
        "roof-sliding-1m",
        LLAMA_8B
        | {
            "attn_flops_per_token_per_key_full": 262_144,
            "attn_flops_per_token_per_key_sliding": 262_144,
            "kv_read_bytes_per_token_full": 65_536,
            "kv_bytes_per_token_sliding": 65_536,
            "sliding_window": 1024,
        },
        1_000_000,
    ),
    # one layer in four attends, the others keep a state of fixed size
    _roof(
        "roof-hybrid-1m",
        LLAMA_8B
        | {
            "attn_flops_per_token_per_key_full": 131_072,
            "kv_read_bytes_per_token_full": 32_768,
            "state_flops_per_token": 500_000_000,
            "state_bytes_per_sequence": 50_000_000,
        },
        1_000_000,
    ),
    _roof(
        "roof-cpu",
        LLAMA_8B,
        node={
            "gpus": 0,
            "gpu_names": [],
            "cpu_bandwidth_gb_s": 20.0,
            "cpu_cache_bandwidth_gb_s": 200.0,
            "cpu_gflops": 100.0,
            "cpu_gflops_low_precision": 200.0,
        },
    ),
    _roof("roof-unknown-gpu", LLAMA_8B, gpu="Some Other Device"),
)


def write_scenarios(raw: Path) -> None:
    """Write every scenario under `raw`."""
    for run in (*SCENARIOS, *ROOFS):
        write_run(raw, run)
