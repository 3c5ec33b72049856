"""Raw evidence with known answers for the marts: runs laid down record by record, through the real landing.

Everything here is synthetic and says so (`source` is synthetic). Instants are arithmetic: request `i` of stream `s`
starts when the one before it on that stream ended, its first token comes after `ttft_ms` and every later one
`tpot_ms` apart, so that every rate in a mart can be worked out by hand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contracts.records import (
    BringUp,
    Cell,
    Counters,
    Grade,
    NodeFacts,
    Probe,
    Request,
    RunEnd,
    RunStart,
    Window,
)
from flows.landing import RunFolder

MS = 1_000_000
OPENED = 1_000_000_000_000
DAY = datetime(2026, 10, 9, 8, tzinfo=UTC)


def instant(seconds: float) -> str:
    """UTC, `seconds` after the synthetic campaign's morning."""
    return (DAY + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass
class Answer:
    """One request. tokens: answered. start_ms: from the window's opening; null: when the stream's last one ended."""

    ttft_ms: float
    tpot_ms: float
    tokens: int = 20
    prompt_tokens: int = 100
    cached_tokens: int | None = 0
    expected_cached_tokens: int | None = 0
    outcome: str = "ok"
    is_correct: bool | None = None
    depth_pct: float | None = None
    turn: int | None = None
    user: int | None = None
    start_ms: float | None = None
    grader: str = "needle_v1"


@dataclass
class CellEvidence:
    """One cell: its key and its streams, each a list of answers in order."""

    cell_id: str
    workload: str
    streams: Sequence[Sequence[Answer]]
    variant: str = ""
    context_tokens: int | None = None
    repeat: int = 0
    users: int | None = None
    asked_prompt_tokens: int | None = None
    asked_output_tokens: int | None = None
    cache_budget: tuple[float, float] | None = (0.0, 0.01)
    declares_sharing: bool = False
    needle_depths_pct: list[float] | None = None
    window_state: str = "complete"
    params: dict[str, Any] = field(default_factory=dict)
    drafts: tuple[float, float, float] | None = None  # drafts, draft tokens, accepted tokens over the window
    server_rss_mb: tuple[float, ...] = ()
    objectives: dict[str, float] | None = None


@dataclass
class RunEvidence:
    """One run. started_s: after the campaign's morning."""

    run_id: str
    recipe: str
    started_s: float
    settings: dict[str, Any] = field(default_factory=dict)
    cells: list[CellEvidence] = field(default_factory=list)
    probes: list[tuple[str, str, bool, str]] = field(default_factory=list)  # phase, kind, passed, why
    campaign: str = "marts-known"
    engine: str = "reference"
    model: str = "known-8b"
    layout: str | None = "one GPU"
    gpus: int = 1
    node_id: str = "node-known"
    node_facts: dict[str, Any] = field(default_factory=dict)
    engine_version: str | None = "1.0"
    kv_tokens: int | None = 100_000
    max_model_len: int | None = 32_768
    ready_s: float = 10.0
    phases_s: dict[str, float | None] = field(default_factory=dict)
    is_warm_start: bool | None = None
    failure_class: str | None = None
    rescues: str | None = None
    model_facts: dict[str, Any] | None = None
    claimed_precision: str | None = None
    policy: str = "original"


def land(raw: Path, run: RunEvidence) -> RunFolder:
    """Lay one run down under `raw`, sealed file by file."""
    folder = RunFolder.create(raw, run.campaign, run.run_id)
    key: dict[str, Any] = {"campaign": run.campaign, "run_id": run.run_id}
    settings = {
        "engine": run.engine,
        "model": run.model,
        "gpus": run.gpus,
        "tensor_parallel": 1,
        "speculation": None,
    }
    folder.land_records(
        "run_start.jsonl",
        [
            RunStart(
                **key, source="synthetic", recipe=run.recipe, engine=run.engine, model=run.model,
                node_id=run.node_id, gpus=run.gpus, layout=run.layout, policy=run.policy, rescues=run.rescues,
                claimed_precision=run.claimed_precision, model_facts=run.model_facts,
                price={"usd_per_gpu_hour": 3.5, "key": "h200", "source": "synthetic", "as_of": "2026-10-09"},
                recipe_settings=settings | run.settings, weighbridge_version="0.1.0", started_at=instant(run.started_s),
            )
        ],
    )  # fmt: skip
    facts = {"node_id": run.node_id, "gpus": run.gpus, "gpu_names": ["known GPU"] * run.gpus} | run.node_facts
    folder.land_records(
        "node.jsonl", [NodeFacts(**key, node_id=run.node_id, read_at=instant(run.started_s), facts=facts)]
    )
    is_served = run.failure_class is None
    folder.land_records(
        "bring_up.jsonl",
        [
            BringUp(
                **key, state="served" if is_served else "failed", failure_class=run.failure_class, command=[["known"]],
                failure_summary=run.failure_class, engine_version=run.engine_version, phases_s=run.phases_s,
                kv_tokens=run.kv_tokens if is_served else None, max_model_len=run.max_model_len if is_served else None,
                ready_s=run.ready_s if is_served else None, load_s=run.phases_s.get("weights"),
                is_warm_start=run.is_warm_start,
            )
        ],
    )  # fmt: skip
    for cell in run.cells:
        _land_cell(folder, key, run, cell)
    for phase in ("before", "during", "after"):
        probes = [
            Probe(
                **key, probe_id=f"{run.run_id}/{phase}/{index}", phase=phase, kind=kind, is_passed=is_passed, why=why,
                http_status=200 if is_passed else 500, latency_ms=20.0, sent_at=instant(run.started_s),
            )
            for index, (when, kind, is_passed, why) in enumerate(run.probes)
            if when == phase
        ]  # fmt: skip
        if probes:
            folder.land_records(f"probes/{phase}.jsonl", probes)
    folder.land_records(
        "run_end.jsonl",
        [
            RunEnd(
                **key, state="served" if is_served else "failed", ended_at=instant(run.started_s + 600),
                is_teardown_clean=True,
            )
        ],
    )  # fmt: skip
    return folder


def _land_cell(folder: RunFolder, key: dict[str, Any], run: RunEvidence, cell: CellEvidence) -> None:
    requests, grades = _requests(key, run, cell)
    closed = max(request.end_ns for request in requests)  # type: ignore[type-var]
    ok = sum(request.outcome == "ok" for request in requests)
    busy = sum((request.end_ns or 0) - (request.sent_ns or 0) for request in requests)
    folder.land_records(
        f"cells/{cell.cell_id}.jsonl",
        [
            Cell(
                **key, cell_id=cell.cell_id, workload=cell.workload, variant=cell.variant,
                concurrency=len(cell.streams), context_tokens=cell.context_tokens, repeat=cell.repeat, seed=1,
                users=cell.users, shape={"kind": "closed"}, asked_prompt_tokens=cell.asked_prompt_tokens,
                asked_output_tokens=cell.asked_output_tokens, planned_requests=len(requests),
                cache_budget_min=cell.cache_budget and cell.cache_budget[0],
                cache_budget_max=cell.cache_budget and cell.cache_budget[1],
                declares_sharing=cell.declares_sharing, is_cold_expected=not cell.declares_sharing,
                needle_depths_pct=cell.needle_depths_pct, params=cell.params, window_state=cell.window_state,
                objectives=cell.objectives, opened_at=instant(run.started_s + 60), closed_at=instant(run.started_s + 120),
            )
        ],
    )  # fmt: skip
    folder.land_records(f"requests/{cell.cell_id}.jsonl", requests)
    folder.land_records(
        f"windows/{cell.cell_id}.jsonl",
        [
            Window(
                **key, cell_id=cell.cell_id, opened_ns=OPENED, closed_ns=closed, opened_at=instant(run.started_s + 60),
                closed_at=instant(run.started_s + 60 + (closed - OPENED) / 1e9), processes=1,
                asked_concurrency=len(cell.streams), mean_concurrency=busy / (closed - OPENED),
                max_concurrency=len(cell.streams), loop_lag_p99_ms=0.1, send_delay_p99_ms=0.1, drift_ms_per_min=0.0,
                planned=len(requests), ok=ok, failed=len(requests) - ok, cancelled=0, unsent=0,
            )
        ],
    )  # fmt: skip
    folder.land_records(f"counters/{cell.cell_id}.jsonl", _counters(key, run, cell, requests, closed))
    if grades:
        folder.land_records(f"grades/{cell.cell_id}.jsonl", grades)


def _requests(key: dict[str, Any], run: RunEvidence, cell: CellEvidence) -> tuple[list[Request], list[Grade]]:
    requests, grades = [], []
    index = 0
    for stream in cell.streams:
        now = OPENED
        for answer in stream:
            sent = now if answer.start_ms is None else OPENED + round(answer.start_ms * MS)
            first = sent + round(answer.ttft_ms * MS)
            gaps = [first - sent] + [round(answer.tpot_ms * MS)] * (answer.tokens - 1)
            last = sent + sum(gaps)
            is_ok = answer.outcome == "ok"
            name = f"{run.run_id}/{cell.cell_id}/{index}"
            digest = hashlib.sha256(name.encode()).hexdigest()
            requests.append(
                Request(
                    **key, cell_id=cell.cell_id, request_id=name, index=index, outcome=answer.outcome,  # type: ignore[arg-type]
                    session_id=None if answer.user is None else f"{cell.cell_id}.u{answer.user}", turn=answer.turn,
                    user=answer.user, http_status=200 if is_ok else 500, error_class=None if is_ok else "http_5xx",
                    planned_ns=sent, sent_ns=sent, sent_at=instant(run.started_s + 60 + (sent - OPENED) / 1e9),
                    first_byte_ns=first, first_token_ns=first if is_ok else None, last_token_ns=last if is_ok else None,
                    end_ns=last, chunk_gap_ns=gaps if is_ok else [], chunk_count=answer.tokens if is_ok else 0,
                    event_count=answer.tokens if is_ok else 0, prompt_tokens=answer.prompt_tokens if is_ok else None,
                    cached_tokens=answer.cached_tokens if is_ok else None,
                    output_tokens=answer.tokens if is_ok else None, output_token_source="usage" if is_ok else None,
                    finish_reason="length" if is_ok else None, asked_prompt_tokens=cell.asked_prompt_tokens,
                    asked_output_tokens=cell.asked_output_tokens,
                    expected_cached_tokens=answer.expected_cached_tokens, prompt_sha256=digest,
                    first_block_sha256=digest, output_sha256=digest if is_ok else None,
                )
            )  # fmt: skip
            if answer.is_correct is not None or answer.depth_pct is not None:
                grades.append(
                    Grade(
                        **key, cell_id=cell.cell_id, request_id=name, grader=answer.grader, is_correct=answer.is_correct,
                        is_correct_lenient=answer.is_correct, why="found" if answer.is_correct else "not found",
                        depth_pct=answer.depth_pct, turn=answer.turn, user=answer.user,
                    )
                )  # fmt: skip
            now = last
            index += 1
    return requests, grades


def _counters(
    key: dict[str, Any], run: RunEvidence, cell: CellEvidence, requests: list[Request], closed: int
) -> list[Counters]:
    before: dict[str, float] = {
        "prompt_tokens": 1000.0, "cached_prompt_tokens": 0.0, "output_tokens": 500.0, "requests_ok": 10.0,
        "preemptions": 0.0, "process_start_time_s": 1.0,
    }  # fmt: skip
    after = before | {
        "prompt_tokens": 1000.0 + sum(request.prompt_tokens or 0 for request in requests),
        "cached_prompt_tokens": float(sum(request.cached_tokens or 0 for request in requests)),
        "output_tokens": 500.0 + sum(request.output_tokens or 0 for request in requests),
        "requests_ok": 10.0 + sum(request.outcome == "ok" for request in requests),
    }
    if cell.drafts is not None:
        before |= {"drafts": 0.0, "draft_tokens": 0.0, "accepted_tokens": 0.0}
        after |= dict(zip(("drafts", "draft_tokens", "accepted_tokens"), cell.drafts, strict=True))
    scrapes: list[tuple[str, int, dict[str, float]]] = [("before", OPENED, before)]
    for place, memory in enumerate(cell.server_rss_mb):
        share = (place + 0.5) / len(cell.server_rss_mb)
        scrapes.append(
            ("during", OPENED + round((closed - OPENED) * share), before | {"server_rss_mb": memory})
        )
    scrapes.append(("after", closed, after))
    return [
        Counters(
            **key, cell_id=cell.cell_id, at=at, at_ns=at_ns,  # type: ignore[arg-type]
            scraped_at=instant(run.started_s + 60 + (at_ns - OPENED) / 1e9), source_names={}, **values,
        )
        for at, at_ns, values in scrapes
    ]  # fmt: skip


def steady(count: int, ttft_ms: float, tpot_ms: float, **more: Any) -> list[Answer]:
    """`count` equal answers in a row."""
    return [Answer(ttft_ms, tpot_ms, **more) for _ in range(count)]


def sweep(
    tpot_ms: float, *, streams: int = 1, drafts: tuple[float, float, float] | None = None
) -> CellEvidence:
    """A sweep cell of one stream: every request decodes at 1,000 / tpot_ms tokens/s."""
    return CellEvidence(
        f"sweep-c{streams}", "sweep", [steady(4, 50.0, tpot_ms) for _ in range(streams)],
        asked_prompt_tokens=100, asked_output_tokens=20, drafts=drafts,
    )  # fmt: skip


def needles(context_tokens: int, found: Sequence[bool]) -> CellEvidence:
    """A fresh document at the depths 10, 50 and 90 %."""
    depths = [10.0, 50.0, 90.0]
    answers = [
        Answer(4000.0, 10.0, prompt_tokens=context_tokens, is_correct=is_found, depth_pct=depth)
        for depth, is_found in zip(depths, found, strict=True)
    ]
    return CellEvidence(
        f"fresh-{context_tokens}", "fresh_document", [answers], context_tokens=context_tokens,
        asked_prompt_tokens=context_tokens, needle_depths_pct=depths,
    )  # fmt: skip


def ramp(users: int, last_decode_tok_s: float, recalled: Sequence[bool], turns: int = 10) -> CellEvidence:
    """A conversation of ten turns to 32,000 tokens; all turns decode at 100 tokens/s, the last one as given."""
    streams = []
    for user in range(users):
        answers = []
        for turn in range(turns):
            tokens = 3200 * (turn + 1)
            is_last = turn == turns - 1
            answers.append(
                Answer(
                    7000.0 * users if is_last else 500.0, 1000 / (last_decode_tok_s if is_last else 100.0), tokens=21,
                    prompt_tokens=tokens, cached_tokens=tokens - 3200, expected_cached_tokens=tokens - 3200,
                    is_correct=recalled[user * turns + turn], turn=turn, user=user,
                )
            )  # fmt: skip
        streams.append(answers)
    return CellEvidence(
        f"ramp-u{users}", "conversation_ramp", streams, variant=f"{turns} turns", context_tokens=32_000, users=users,
        cache_budget=(0.7, 0.9), declares_sharing=True,
    )  # fmt: skip


def interference(is_beside: bool) -> CellEvidence:
    """A writer at 100 tokens/s; beside it a reader, whose prefill of 500 ms begins 200 ms after the writer's first
    token. The writer's tokens keep their pace here: what a prefill does to a rate is measured, not assumed.
    """
    writer = Answer(100.0, 10.0, tokens=101, user=0)
    reader = Answer(500.0, 10.0, tokens=1, prompt_tokens=5000, user=1, start_ms=300.0)
    return CellEvidence(
        "beside" if is_beside else "alone", "interference", [[writer], [reader]] if is_beside else [[writer]],
        variant="beside" if is_beside else "alone", context_tokens=5000, users=2 if is_beside else 1,
    )  # fmt: skip


def graded(carries: str, tpot_ms: float) -> CellEvidence:
    """Four requests of a graded load, three of them right; `plain` has no question."""
    answers = [
        Answer(100.0, tpot_ms, tokens=11, is_correct=None if carries == "plain" else place < 3)
        for place in range(4)
    ]
    return CellEvidence(
        f"graded-{carries}", "graded_load", [answers], variant=f"codes/{carries}", asked_prompt_tokens=100,
        asked_output_tokens=11,
    )  # fmt: skip


def pool(users: int, kept: int) -> CellEvidence:
    """Two rounds over `users` documents of 1,000 tokens, of which the second finds `kept` in the cache."""
    answers = [
        Answer(
            50.0 if turn and user < kept else 400.0, 10.0, tokens=2, prompt_tokens=1000, user=user, turn=turn,
            cached_tokens=1000 if turn and user < kept else 0, is_correct=True,
        )
        for turn in range(2)
        for user in range(users)
    ]  # fmt: skip
    return CellEvidence(
        f"pool-u{users}", "kv_offload", [answers], variant=f"{users} users", context_tokens=1000, users=users,
        cache_budget=(0.0, 1.0), declares_sharing=True,
    )  # fmt: skip


def quality(asked: int, right: int) -> CellEvidence:
    """`asked` word problems, the first `right` of them solved."""
    answers = [Answer(50.0, 10.0, is_correct=place < right, grader="gsm8k_v1") for place in range(asked)]
    return CellEvidence("quality", "chat_quality", [answers], cache_budget=None)


GOOD_PROBES = [(phase, kind, True, "valid") for phase in ("before", "after") for kind in ("json", "tool")]


def known_campaign() -> list[RunEvidence]:
    """Every situation that the marts must tell apart, once."""
    runs = []
    for start, (tpot, spec_tpot) in enumerate([(10.0, 5.0), (12.5, 6.25), (8.0, 4.0)]):
        runs.append(
            RunEvidence(
                f"r1{start}-base", "base", 1000.0 * start, cells=[sweep(tpot), needles(200, [True] * 3)], probes=GOOD_PROBES,
                settings={"max_running_requests": 64},
            )
        )  # fmt: skip
        runs.append(
            RunEvidence(
                f"r1{start}-spec", "spec", 1000.0 * start + 500, kv_tokens=15_084,
                cells=[sweep(spec_tpot, drafts=(100.0, 300.0, 200.0)), needles(200, [True] * 3)],
                settings={
                    "max_running_requests": 64, "speculation.method": "mtp", "speculation.draft_tokens": 5,
                },
            )
        )  # fmt: skip
    runs.append(
        RunEvidence(
            "r20-spec-eager", "spec-eager", 5000.0, cells=[sweep(5.0)],
            settings={
                "max_running_requests": 64, "cuda_graphs": False, "speculation.method": "mtp",
                "speculation.draft_tokens": 3,
            },
        )
    )  # fmt: skip
    runs.append(
        RunEvidence(
            "r21-tp4", "tp4", 5500.0, layout="TP4", gpus=4, cells=[sweep(4.0)],
            settings={"max_running_requests": 64, "tensor_parallel": 4, "gpu_ids": [0, 1, 2, 3]},
            node_facts={"islands": [[0, 1, 2, 3], [4, 5, 6, 7]], "island_link": "NV18", "between": "SYS"},
        )
    )  # fmt: skip
    runs.append(
        RunEvidence(
            "r22-tp2-elsewhere", "tp2", 6000.0, layout="TP2", gpus=2, cells=[sweep(4.0)], node_id="node-other",
            settings={"max_running_requests": 64, "tensor_parallel": 2},
        )
    )  # fmt: skip
    runs.append(
        RunEvidence(
            "r30-long", "long", 7000.0, model="known-long", max_model_len=40_000,
            cells=[
                needles(32_000, [True, True, True]), ramp(1, 129.0, [turn != 4 for turn in range(10)]),
                ramp(2, 7.0, [True] * 20), quality(20, 15), interference(False), interference(True),
                graded("needle", 40.0), graded("plain", 30.0), pool(4, 1),
            ],
            model_facts={
                "precision_label": "fp8", "precision_true": "fp8, experts fp4", "precision_source": "headers",
                "is_precision_label_true": False, "params_total": 1000, "weight_bytes": 600, "bytes_per_param": 0.6,
            },
            claimed_precision="fp8",
        )
    )  # fmt: skip
    runs.append(RunEvidence("r31-short", "short", 7500.0, model="known-long", cells=[quality(40, 30)]))
    for recipe, tpot, limit, after in (("soak-k3", 10.0, 128, False), ("soak-base", 20.0, 64, True)):
        runs.append(
            RunEvidence(
                f"r40-{recipe}", recipe, 8000.0, model="known-soak",
                cells=[
                    CellEvidence(
                        "soak", "soak", [steady(300, 800.0, tpot, tokens=21) for _ in range(2)], context_tokens=1000,
                        asked_prompt_tokens=100, asked_output_tokens=21, server_rss_mb=(1000.0, 1010.0, 1020.0),
                    )
                ],
                probes=[
                    *GOOD_PROBES[:2], ("after", "tool", True, "valid"),
                    ("after", "json", after, "valid" if after else "HTTP 500"),
                ],
                settings={"max_running_requests": limit, "memory_fraction": 0.9 if after else 0.85}
                | ({} if after else {"speculation.method": "dspark", "speculation.draft_tokens": 3}),
            )
        )  # fmt: skip
    for start, (ready, is_warm) in enumerate([(200.0, False), (60.0, True), (220.0, False), (64.0, True)]):
        runs.append(
            RunEvidence(
                f"r5{start}-start", "startup", 9000.0 + start, model="known-start", ready_s=ready, is_warm_start=is_warm,
                phases_s={"weights": 40.0, "compile": ready - 50.0, "ready": ready}, cells=[sweep(10.0)],
            )
        )  # fmt: skip
    runs.append(RunEvidence("r60-broken", "broken", 9500.0, failure_class="kv_too_small"))
    runs.append(
        RunEvidence(
            "r61-mended",
            "mended",
            9600.0,
            rescues="broken",
            cells=[sweep(10.0)],
            settings={"context_tokens": 8},
        )
    )
    return runs
