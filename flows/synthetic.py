"""Writes raw evidence of runs that never happened, for tests and for size: always of source `synthetic`.

A synthetic run is a closed loop whose every instant follows from its settings, so that a test knows what the marts
must say. The warehouse never lets synthetic rows stand beside measured ones.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from contracts.records import (
    BringUp,
    Cell,
    Counters,
    Grade,
    NodeFacts,
    Probe,
    Record,
    Request,
    RunEnd,
    RunStart,
    Telemetry,
    Window,
)
from flows.landing import RunFolder

DAY = datetime(2026, 1, 1, tzinfo=UTC)
# A dense model of 135M parameters in BF16, small enough that a synthetic rate stays below every ceiling.
MODEL_FACTS: dict[str, Any] = {
    "params_total": 135_000_000,
    "params_active": 135_000_000,
    "active_weight_bytes": 270_000_000,
    "weight_bytes": 270_000_000,
    "kv_bytes_per_token_full": 23_040,
    "kv_read_bytes_per_token_full": 23_040,
    "attn_flops_per_token_per_key_full": 69_120,
    "compute_precision": "bf16",
    "precision_label": "bf16",
    "precision_true": "bf16",
    "is_precision_label_true": True,
    "attention_kind": "gqa",
}


@dataclass(frozen=True)
class SyntheticCell:
    """One cell. Times in ms; a stream sends its next request the moment the one before ended.

    cached_tokens: of every prompt, by usage and by counters. jitter: share by which a request's gaps vary.
    needle_depths_pct: grades one needle a request at these depths in turn; needles_missed of them are wrong.
    failed: this many requests end in an HTTP 500. edit: the last word on every request, None drops it.
    cell, window, counters, telemetry: fields of those records to set; counters apply to the scrape after the window.
    grades: given out in turn to the requests of a cell without needles.
    """

    cell_id: str = "sweep-c4"
    workload: str = "sweep"
    concurrency: int = 4
    requests: int = 64
    warmup_requests: int = 4
    prompt_tokens: int = 512
    cached_tokens: int = 0
    output_tokens: int = 64
    ttft_ms: float = 40.0
    itl_ms: float = 5.0
    jitter: float = 0.01
    failed: int = 0
    needle_depths_pct: tuple[float, ...] | None = None
    needles_missed: int = 0
    context_tokens: int | None = None
    repeat: int = 0
    variant: str = ""
    seed: int = 7
    has_usage: bool = True
    edit: Callable[[Request], Request | None] | None = None
    cell: dict[str, Any] = field(default_factory=dict)
    window: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, Any] = field(default_factory=dict)
    telemetry: dict[str, Any] = field(default_factory=dict)
    grades: tuple[dict[str, Any], ...] = ()


def needle_cell(context_tokens: int = 4096, missed: int = 0) -> SyntheticCell:
    """A fresh document with three needles at 10, 50 and 90 %, four times over."""
    return SyntheticCell(
        cell_id=f"fresh-{context_tokens}",
        workload="fresh_document",
        concurrency=1,
        requests=12,
        warmup_requests=0,
        prompt_tokens=context_tokens - 64,
        output_tokens=12,
        ttft_ms=max(40.0, context_tokens / 20),
        needle_depths_pct=(10.0, 50.0, 90.0),
        needles_missed=missed,
        context_tokens=context_tokens,
        cell={"is_fixed_length": False, "asked_output_tokens": None, "planned_finish_reason": None},
    )


@dataclass(frozen=True)
class SyntheticRun:
    """One run. failure_class set: the bring-up failed and there are no cells. Dicts set fields of those records."""

    run_id: str
    campaign: str = "synthetic"
    recipe: str = "demo"
    policy: str = "original"
    cells: tuple[SyntheticCell, ...] = (SyntheticCell(), needle_cell())
    failure_class: Any = None
    rescues: str | None = None
    probes_before: tuple[bool, ...] = (True, True)
    probes_after: tuple[bool, ...] = (True, True)
    start: dict[str, Any] = field(default_factory=dict)
    bring_up: dict[str, Any] = field(default_factory=dict)
    node: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)


NODE: dict[str, Any] = {
    "node_id": "synthetic-node",
    "gpus": 1,
    "gpu_names": ["NVIDIA H200"],
    "cpu_bandwidth_gb_s": None,
    "cpu_gflops": None,
}


def write_run(raw: Path, run: SyntheticRun) -> RunFolder:
    """Write and seal one run. Raises FileExistsError when the run id is taken."""
    folder = RunFolder.create(raw, run.campaign, run.run_id)
    common: dict[str, Any] = {"campaign": run.campaign, "run_id": run.run_id}
    folder.land_records("run_start.jsonl", [_run_start(run, common)])
    facts = NODE | run.node
    folder.land_records(
        "node.jsonl", [NodeFacts(**common, node_id=facts["node_id"], read_at=_at(0), facts=facts)]
    )
    folder.land_records("bring_up.jsonl", [_bring_up(run, common)])
    if run.failure_class is None:
        _land_probes(folder, run, common, "before", run.probes_before)
        for number, cell in enumerate(run.cells):
            _land_cell(folder, cell, common, number)
        _land_probes(folder, run, common, "after", run.probes_after)
    state = "served" if run.failure_class is None else "failed"
    end: dict[str, Any] = {"state": state, "ended_at": _at(3600), "is_teardown_clean": True} | run.end
    folder.land_records("run_end.jsonl", [RunEnd(**common, **end)])
    return folder


def _run_start(run: SyntheticRun, common: dict[str, Any]) -> RunStart:
    fields: dict[str, Any] = {
        "source": "synthetic",
        "recipe": run.recipe,
        "engine": "reference",
        "model": "demo-135m",
        "node_id": "synthetic-node",
        "gpus": 1,
        "layout": "1 GPU",
        "claimed_precision": "bf16",
        "policy": run.policy,
        "price": {"usd_per_gpu_hour": 3.5, "key": "h200", "source": "synthetic", "as_of": "2026-01-01"},
        "recipe_settings": {"engine": "reference", "prefix_caching": True, "max_running_requests": 256},
        "rescues": run.rescues,
        "model_facts": MODEL_FACTS,
        "weighbridge_version": "0.0.0",
        "started_at": _at(0),
    }
    if run.rescues is not None:
        fields |= {
            "rescue_change": {"setting": "prefix_caching", "before": False, "after": True},
            "rescue_attempt": 1,
        }
    return RunStart(**common, **(fields | run.start))


def _bring_up(run: SyntheticRun, common: dict[str, Any]) -> BringUp:
    fields: dict[str, Any] = {"state": "served", "command": [["reference"]]}
    if run.failure_class is None:
        fields |= {
            "engine_version": "1.0.0",
            "kv_tokens": 400_000,
            "max_concurrency": 97.0,
            "prefix_caching": True,
            "max_running_requests": 256,
            "load_s": 2.0,
            "ready_s": 3.0,
            "ready_at": _at(3),
            "endpoints": ["http://127.0.0.1:1"],
        }
    else:
        fields |= {
            "state": "failed",
            "failure_class": run.failure_class,
            "failure_summary": f"synthetic {run.failure_class}",
            "evidence": [{"file": "files/server.log", "line": 1, "text": "synthetic"}],
        }
    return BringUp(**common, **(fields | run.bring_up))


def _land_probes(
    folder: RunFolder, run: SyntheticRun, common: dict[str, Any], phase: Any, passed: tuple[bool, ...]
) -> None:
    if passed:
        folder.land_records(
            f"probes/{phase}.jsonl",
            [
                Probe(
                    **common, probe_id=f"{phase}-{number}", phase=phase, kind="json" if number % 2 == 0 else "tool",
                    is_passed=is_passed, why="valid" if is_passed else "HTTP 500", sent_at=_at(5),
                    http_status=200 if is_passed else 500, latency_ms=20.0,
                )
                for number, is_passed in enumerate(passed)
            ],
        )  # fmt: skip


def plan_requests(cell: SyntheticCell, run_id: str, opened_ns: int) -> Iterator[Request]:
    """The requests of a cell as they were served: warm-up first, then the closed loop's."""
    chance = random.Random(f"{run_id}/{cell.cell_id}/{cell.seed}")
    free_at = [opened_ns] * cell.concurrency
    for number in range(-cell.warmup_requests, cell.requests):
        is_timed = number >= 0
        stream = min(range(cell.concurrency), key=free_at.__getitem__) if is_timed else 0
        sent = free_at[stream] if is_timed else opened_ns - 2_000_000_000
        request = _request(cell, run_id, number, sent, chance)
        if is_timed:
            free_at[stream] = request.end_ns or sent
        edited = cell.edit(request) if cell.edit and is_timed else request
        if edited is not None:
            yield edited


def _request(cell: SyntheticCell, run_id: str, number: int, sent: int, chance: random.Random) -> Request:
    name = f"{run_id}/{cell.cell_id}/{number}"
    block = hashlib.sha256(name.encode()).hexdigest()
    is_failed = 0 <= number < cell.failed
    scale = 1.0 + chance.uniform(-cell.jitter, cell.jitter)
    gaps = [round(cell.ttft_ms * scale * 1e6)]
    gaps += [round(cell.itl_ms * scale * 1e6)] * (cell.output_tokens - 1)
    common: dict[str, Any] = {
        "campaign": "", "run_id": run_id, "cell_id": cell.cell_id, "request_id": name,
        "phase": "timed" if number >= 0 else "warmup", "index": max(number, 0) if number >= 0 else -number - 1,
        "planned_ns": sent, "sent_ns": sent, "sent_at": _at(sent / 1e9), "asked_prompt_tokens": cell.prompt_tokens,
        "asked_output_tokens": cell.output_tokens, "prompt_sha256": block, "first_block_sha256": block,
    }  # fmt: skip
    if is_failed:
        return Request(
            **common, outcome="failed", error_class="http_5xx", http_status=500,
            end_ns=sent + 5_000_000,
        )  # fmt: skip
    last = sent + sum(gaps)
    usage: dict[str, Any] = {
        "prompt_tokens": cell.prompt_tokens,
        "cached_tokens": cell.cached_tokens,
        "output_tokens": cell.output_tokens,
        "output_token_source": "usage",
    }
    return Request(
        **common, outcome="ok", http_status=200, first_byte_ns=sent + gaps[0], first_token_ns=sent + gaps[0],
        last_token_ns=last, end_ns=last + 100_000, chunk_gap_ns=gaps, chunk_count=len(gaps), event_count=len(gaps) + 2,
        finish_reason="length" if cell.needle_depths_pct is None else "stop", output_sha256=block,
        **(usage if cell.has_usage else {}),
    )  # fmt: skip


def _land_cell(folder: RunFolder, cell: SyntheticCell, common: dict[str, Any], number: int) -> None:
    opened = (100 + 400 * number) * 1_000_000_000
    requests = [
        msgspec.structs.replace(request, campaign=common["campaign"])
        for request in plan_requests(cell, common["run_id"], opened)
    ]
    timed = [request for request in requests if request.phase == "timed"]
    closed = max((request.end_ns or opened for request in timed), default=opened)
    span = max(closed - opened, 1)
    outcomes = {
        name: sum(r.outcome == name for r in timed) for name in ("ok", "failed", "cancelled", "unsent")
    }
    busy = sum((r.end_ns or 0) - (r.sent_ns or 0) for r in timed)
    name = cell.cell_id
    folder.land_records(f"requests/{name}.jsonl", requests)
    window: dict[str, Any] = {
        "opened_ns": opened, "closed_ns": closed, "opened_at": _at(opened / 1e9), "closed_at": _at(closed / 1e9),
        "processes": 1, "asked_concurrency": cell.concurrency, "mean_concurrency": busy / span,
        "max_concurrency": cell.concurrency, "loop_lag_p50_ms": 0.01, "loop_lag_p99_ms": 0.05, "loop_lag_max_ms": 0.2,
        "send_delay_p50_ms": 0.01, "send_delay_p99_ms": 0.05, "cpu_share": 0.1, "drift_ms_per_min": 0.01,
        "planned": cell.requests, **outcomes,
    }  # fmt: skip
    folder.land_records(f"windows/{name}.jsonl", [Window(**common, cell_id=name, **(window | cell.window))])
    folder.land_records(f"counters/{name}.jsonl", _counters(cell, timed, common, opened, closed))
    telemetry = [
        Telemetry(
            **common, cell_id=name, at_ns=at_ns, gpu=0, power_w=400.0, sm_clock_mhz=1980.0, **({"throttle_reasons": []} | cell.telemetry),
        )
        for at_ns in range(opened, closed, max(span // 10, 1))
    ]  # fmt: skip
    if telemetry:
        folder.land_records(f"telemetry/{name}.jsonl", telemetry)
    if cell.needle_depths_pct or cell.grades:
        folder.land_records(f"grades/{name}.jsonl", _grades(cell, timed, common))
    fields: dict[str, Any] = {
        "workload": cell.workload, "variant": cell.variant, "concurrency": cell.concurrency,
        "context_tokens": cell.context_tokens, "repeat": cell.repeat, "seed": cell.seed,
        "shape": {"kind": "closed", "concurrency": cell.concurrency}, "asked_prompt_tokens": cell.prompt_tokens,
        "asked_output_tokens": cell.output_tokens, "is_fixed_length": True, "planned_requests": cell.requests,
        "warmup_requests": cell.warmup_requests, "planned_finish_reason": "length", "cache_budget_min": 0.0,
        "cache_budget_max": 0.01, "needle_depths_pct": list(cell.needle_depths_pct) if cell.needle_depths_pct else None,
        "prompt_length_source": "synthetic", "window_state": "complete", "opened_at": _at(opened / 1e9),
        "closed_at": _at(closed / 1e9),
    }  # fmt: skip
    folder.land_records(f"cells/{name}.jsonl", [Cell(**common, cell_id=name, **(fields | cell.cell))])


def _counters(
    cell: SyntheticCell, timed: list[Request], common: dict[str, Any], opened: int, closed: int
) -> list[Record]:
    base = {
        "prompt_tokens": 1000.0,
        "output_tokens": 100.0,
        "cached_prompt_tokens": 0.0,
        "prefix_queries": 1000.0,
    }
    served = [request for request in timed if request.outcome == "ok"]
    count = len(served)
    after: dict[str, Any] = {
        "prompt_tokens": base["prompt_tokens"] + cell.prompt_tokens * count,
        "prefix_queries": base["prefix_queries"] + cell.prompt_tokens * count,
        "cached_prompt_tokens": float(cell.cached_tokens * count),
        "output_tokens": base["output_tokens"] + cell.output_tokens * count,
        "requests_ok": 4.0 + count,
        "ttft_sum_s": 0.1 + 0.98 * sum((r.first_token_ns or 0) - (r.sent_ns or 0) for r in served) / 1e9,
        "ttft_count": 4.0 + count,
    }
    before = base | {"requests_ok": 4.0, "ttft_sum_s": 0.1, "ttft_count": 4.0}
    steady: dict[str, Any] = {
        "preemptions": 0.0,
        "process_start_time_s": 1.0,
        "requests_waiting": 0.0,
        "kv_usage": 0.2,
    }
    scrapes: tuple[tuple[Any, int, dict[str, Any]], ...] = (
        ("before", opened - 1_000_000, before),
        ("during", (opened + closed) // 2, {}),
        ("after", closed + 1_000_000, after | cell.counters),
    )
    return [
        Counters(
            **common, cell_id=cell.cell_id, at=at, at_ns=at_ns, scraped_at=_at(at_ns / 1e9), **(steady | values)
        )
        for at, at_ns, values in scrapes
    ]  # fmt: skip


def _grades(cell: SyntheticCell, timed: list[Request], common: dict[str, Any]) -> list[Record]:
    depths = cell.needle_depths_pct or ()
    if not depths:
        return [
            Grade(
                **common, cell_id=cell.cell_id, request_id=request.request_id, grader="arithmetic", expected="4",
                why="synthetic", **cell.grades[number % len(cell.grades)],
            )
            for number, request in enumerate(timed)
        ]  # fmt: skip
    return [
        Grade(
            **common, cell_id=cell.cell_id, request_id=request.request_id, grader="needle",
            is_correct=None if request.outcome != "ok" else number >= cell.needles_missed,
            expected="73944", found="73944" if number >= cell.needles_missed else "11111",
            why="the code stands in the answer" if number >= cell.needles_missed else "another code",
            depth_pct=depths[number % len(depths)],
        )
        for number, request in enumerate(timed)
    ]  # fmt: skip


def _at(seconds: float) -> str:
    return (DAY + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def write_bulk(raw: Path, runs: int, requests: int, tokens: int = 200, first: int = 0) -> int:
    """Write many like runs for size: `requests` of `tokens` gaps each, fast; the bytes of request lines written.

    Every run has one sweep cell and a small needle cell. The gaps of a request are one of 512 texts, so that
    writing is not the slow part; ids, instants and hashes differ.
    """
    chance = random.Random(20260101)
    pool = []
    for _ in range(512):
        gaps = [40_000_000 + chance.randrange(2_000_000)]
        gaps += [5_000_000 + chance.randrange(400_000) for _ in range(tokens - 1)]
        pool.append((sum(gaps), gaps[0], ",".join(map(str, gaps))))
    written = 0
    for number in range(first, first + runs):
        run_id = f"bulk-{number:06d}"
        shell = SyntheticCell(
            cell_id="sweep-c8", concurrency=8, requests=8, warmup_requests=0, output_tokens=tokens
        )
        run = SyntheticRun(run_id, campaign="bulk", cells=(needle_cell(2048),))
        folder = write_run(raw, run)
        written += _land_bulk_cell(folder, replace(shell, requests=requests), pool, chance)
    return written


def _land_bulk_cell(
    folder: RunFolder, cell: SyntheticCell, pool: list[tuple[int, int, str]], chance: random.Random
) -> int:
    common: dict[str, Any] = {"campaign": folder.campaign, "run_id": folder.run_id}
    opened = 10_000_000_000_000
    free_at = [opened] * cell.concurrency
    counts: dict[str, Any] = {"ok": cell.requests, "failed": 0, "cancelled": 0, "unsent": 0}
    busy = size = 0
    with folder.writing(f"requests/{cell.cell_id}.jsonl") as stream:
        for number in range(cell.requests):
            lane = number % cell.concurrency
            sent = free_at[lane]
            total, first, text = pool[chance.randrange(len(pool))]
            last = sent + total
            free_at[lane] = last + 50_000
            busy += total + 50_000
            name = f"{folder.run_id}/{cell.cell_id}/{number}"
            block = hashlib.sha256(name.encode()).hexdigest()
            line = (
                f'{{"record":"request","schema_version":1,"campaign":"{folder.campaign}","run_id":"{folder.run_id}",'
                f'"cell_id":"{cell.cell_id}","request_id":"{name}","phase":"timed","index":{number},"endpoint":0,'
                f'"process":0,"outcome":"ok","http_status":200,"planned_ns":{sent},"sent_ns":{sent},'
                f'"sent_at":"{_at(sent / 1e9)}","first_byte_ns":{sent + first},"first_token_ns":{sent + first},'
                f'"last_token_ns":{last},"end_ns":{last + 50_000},"chunk_gap_ns":[{text}],'
                f'"chunk_count":{cell.output_tokens},"event_count":{cell.output_tokens + 2},"coalesced_chunks":0,'
                f'"prompt_tokens":{cell.prompt_tokens},"cached_tokens":0,"output_tokens":{cell.output_tokens},'
                f'"output_token_source":"usage","finish_reason":"length","asked_prompt_tokens":{cell.prompt_tokens},'
                f'"asked_output_tokens":{cell.output_tokens},"prompt_sha256":"{block}","first_block_sha256":"{block}",'
                f'"output_sha256":"{block}"}}\n'
            ).encode()
            size += len(line)
            stream.write(line)
    closed = max(free_at)
    fields: dict[str, Any] = {
        "workload": "sweep", "concurrency": cell.concurrency, "seed": 7,
        "shape": {"kind": "closed", "concurrency": cell.concurrency}, "asked_prompt_tokens": cell.prompt_tokens,
        "asked_output_tokens": cell.output_tokens, "is_fixed_length": True, "planned_requests": cell.requests,
        "planned_finish_reason": "length", "cache_budget_min": 0.0, "cache_budget_max": 0.01,
        "window_state": "complete", "opened_at": _at(opened / 1e9), "closed_at": _at(closed / 1e9),
    }  # fmt: skip
    window = Window(
        **common, cell_id=cell.cell_id, opened_ns=opened, closed_ns=closed, opened_at=_at(opened / 1e9),
        closed_at=_at(closed / 1e9), processes=1, asked_concurrency=cell.concurrency,
        mean_concurrency=busy / (closed - opened), max_concurrency=cell.concurrency, planned=cell.requests,
        loop_lag_p99_ms=0.05, send_delay_p99_ms=0.05, drift_ms_per_min=0.01, **counts,
    )  # fmt: skip
    folder.land_records(f"windows/{cell.cell_id}.jsonl", [window])
    folder.land_records(f"cells/{cell.cell_id}.jsonl", [Cell(**common, cell_id=cell.cell_id, **fields)])
    return size
