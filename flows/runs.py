"""One execution of a campaign, run by run: what the Prefect tasks call, and what tests call without Prefect.

A run is one bring-up of one recipe. Everything that happens lands in its raw folder in the order in which a reader
needs it: run_start before anything is started, each cell's evidence as its window closes, run_end last. A killed
execution is continued by `resume`: what had landed stands, what was cut off is recorded as interrupted.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contracts.errors import BadInput, WeighbridgeError
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
    Telemetry,
    Window,
)
from flows import __version__, engines, load, node, workloads
from flows.campaign_file import Campaign
from flows.engines.base import BringUpFailed
from flows.landing import RunFolder, read_records, utc_now
from flows.load.plan import WindowSpec
from flows.node import checkpoint, telemetry
from flows.recipe import Recipe
from flows.tokens import token_counter
from flows.workloads import probes
from flows.workloads.base import CellPlan, PlanContext

COUNTER_PERIOD_S = 5.0
Notice = Callable[[str], None]


def new_run_id(recipe: str) -> str:
    """A run id that sorts by time and is never taken twice: `20261009T081500Z-<recipe>-<4 hex>`."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{recipe}-{secrets.token_hex(2)}"


@dataclass
class Execution:
    """One `weighbridge run` of a campaign: its node, its runs, and what an earlier try of it finished."""

    campaign: Campaign
    campaign_sha256: str
    raw: Path
    execution_id: str
    node_facts: dict[str, Any] = field(default_factory=dict)
    earlier: list[EarlierRun] = field(default_factory=list)
    notice: Notice = lambda _: None

    @property
    def folder(self) -> Path:
        return self.raw / self.campaign.name

    def finished(self, recipe: str) -> EarlierRun | None:
        """The run that settled this recipe before the execution was cut off, if one did."""
        return next((run for run in self.earlier if run.recipe == recipe and run.is_settled), None)

    def unfinished(self, recipe: str) -> EarlierRun | None:
        """The last run of this recipe that was cut off."""
        cut = [run for run in self.earlier if run.recipe == recipe and not run.is_settled]
        return cut[-1] if cut else None

    def finished_cells(self, recipe: str) -> set[str]:
        """Cells of this recipe whose windows were completed before the execution was cut off."""
        return {cell for run in self.earlier if run.recipe == recipe for cell in run.complete_cells}


@dataclass(frozen=True)
class EarlierRun:
    """A run of an execution that is being resumed, as raw tells it."""

    run_id: str
    recipe: str
    state: str | None
    failure_class: str | None
    complete_cells: frozenset[str]
    reproduces: str | None

    @property
    def is_settled(self) -> bool:
        return self.state in ("served", "failed", "engine_died") and self.reproduces is None


def open_execution(
    campaign: Campaign, campaign_bytes: bytes, raw: Path, *, is_resumed: bool, notice: Notice
) -> Execution:
    """Start a new execution, or go on with the last one when `is_resumed`.

    Raises BadInput when there is nothing to resume, or the campaign file is not the one that was started.
    """
    digest = hashlib.sha256(campaign_bytes).hexdigest()
    if not is_resumed:
        execution_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        return Execution(campaign, digest, raw, execution_id, notice=notice)
    starts = [
        (path, start)
        for path in sorted((raw / campaign.name).glob("*/run_start.jsonl"))
        for start in read_records(path, RunStart)
        if start.execution_id is not None
    ]
    if not starts:
        raise BadInput(
            f"campaign {campaign.name} has no run to resume",
            evidence=str(raw / campaign.name),
            next_step="weighbridge run CAMPAIGN without --resume",
        )
    last = starts[-1][1]
    assert last.execution_id is not None
    if last.campaign_sha256 != digest:
        raise BadInput(
            f"campaign {campaign.name} has changed since execution {last.execution_id} was started",
            measured=f"sha256 {digest[:12]}",
            required=f"sha256 {(last.campaign_sha256 or 'unknown')[:12]}",
            next_step="restore the file, or run the changed campaign without --resume",
        )
    execution = Execution(campaign, digest, raw, last.execution_id, notice=notice)
    for path, start in starts:
        if start.execution_id == last.execution_id:
            execution.earlier.append(_recover_run(RunFolder(path.parent), start, notice))
    return execution


def _recover_run(run: RunFolder, start: RunStart, notice: Notice) -> EarlierRun:
    """Sweep what a killed run left running, land what it left unlanded, and end it as interrupted."""
    if not run.has_landed("run_end.jsonl"):
        swept = engines.sweep(run)
        if swept:
            notice(f"stopped {len(swept)} processes that {run.run_id} had left")
        interrupted = [
            path.name.removesuffix(".plan") if path.is_dir() else path.stem
            for path in load.left_over_windows(run)
        ]
        for cell_id in interrupted:
            load.recover_window(run, cell_id)
        for name in run.recover():
            notice(f"landed {name} of {run.run_id}")
        for cell_id in _cells_without_record(run):
            _land_interrupted_cell(run, start, cell_id)
        run.land_records(
            "run_end.jsonl",
            [
                RunEnd(
                    campaign=run.campaign,
                    run_id=run.run_id,
                    state="interrupted",
                    ended_at=utc_now(),
                    note="the flow ended before this run did; recovered by the resume",
                )
            ],
        )
    end = read_records(run.path / "run_end.jsonl", RunEnd)[0]
    bring_up_path = run.path / "bring_up.jsonl"
    bring_ups = read_records(bring_up_path, BringUp) if bring_up_path.exists() else []
    cells = [read_records(path, Cell)[0] for path in sorted((run.path / "cells").glob("*.jsonl"))]
    return EarlierRun(
        run_id=run.run_id,
        recipe=start.recipe,
        state=end.state,
        failure_class=bring_ups[0].failure_class if bring_ups else None,
        complete_cells=frozenset(cell.cell_id for cell in cells if cell.window_state == "complete"),
        reproduces=start.reproduces_run_id,
    )


def _cells_without_record(run: RunFolder) -> list[str]:
    seals = run.seals()
    with_requests = {Path(name).stem for name in seals if name.startswith("requests/")}
    return sorted(cell for cell in with_requests if f"cells/{cell}.jsonl" not in seals)


def _land_interrupted_cell(run: RunFolder, start: RunStart, cell_id: str) -> None:
    """The cell's plan was in memory and is gone: what its requests themselves show is written, the rest is null."""
    requests = read_records(run.path / f"requests/{cell_id}.jsonl", Request)
    timed = [request for request in requests if request.phase == "timed"]
    scratch = run.path / ".scratch" / f"{cell_id}.cell.json"
    known: dict[str, Any] = {}
    if scratch.exists():
        import msgspec

        known = msgspec.json.decode(scratch.read_bytes())
    defaults: dict[str, Any] = {
        "workload": "unknown", "concurrency": 0, "seed": 0, "shape": {},
        "planned_requests": len(timed), "warmup_requests": len(requests) - len(timed),
    }  # fmt: skip
    run.land_records(
        f"cells/{cell_id}.jsonl",
        [
            Cell(
                **{
                    **defaults,
                    **known,
                    "campaign": run.campaign,
                    "run_id": run.run_id,
                    "cell_id": cell_id,
                    "window_state": "interrupted",
                    "window_note": "the flow was killed during this window; its completed requests are kept",
                }
            )
        ],
    )


class RecipeRun:
    """One run: bring a recipe up, put cells and probes on it, take it down, seal it. Methods in that order."""

    def __init__(
        self,
        execution: Execution,
        recipe: Recipe,
        *,
        rescue_of: Recipe | None = None,
        rescue_attempt: int | None = None,
        resumes_run_id: str | None = None,
        reproduces_run_id: str | None = None,
    ) -> None:
        self.execution = execution
        self.recipe = recipe
        self.rescue_of = rescue_of
        self.rescue_attempt = rescue_attempt
        self.resumes_run_id = resumes_run_id
        self.reproduces_run_id = reproduces_run_id
        self.run = RunFolder.create(execution.raw, execution.campaign.name, new_run_id(recipe.name))
        self.served: engines.Served | None = None
        self.failure: BringUpFailed | None = None
        self.context: PlanContext | None = None
        self.is_engine_dead = False

    # bring-up

    def start(self) -> None:
        """Land what is known before anything is started: run_start and node."""
        campaign, recipe = self.execution.campaign, self.recipe
        facts = self.execution.node_facts
        change = None
        if self.rescue_of is not None:
            ours, theirs = recipe.settings(), self.rescue_of.settings()
            change = {
                key: {"from": theirs.get(key), "to": ours.get(key)}
                for key in sorted(ours.keys() | theirs.keys())
                if ours.get(key) != theirs.get(key)
            }
        model_path = engines.model_path(recipe)
        self.run.land_records(
            "run_start.jsonl",
            [
                RunStart(
                    campaign=campaign.name,
                    run_id=self.run.run_id,
                    recipe=recipe.name,
                    engine=recipe.engine,
                    model=recipe.model,
                    model_path=None,  # a path of one machine is no evidence; the facts below are
                    node_id=facts["node_id"],
                    gpus=max(1, engines.gpu_count(recipe)),
                    gpu_ids=recipe.gpu_ids,
                    layout=engines.layout(recipe),
                    claimed_precision=recipe.claimed_precision,
                    claimed_context_tokens=recipe.context_tokens,
                    policy=campaign.policy,
                    price=campaign.resolved_price(),
                    recipe_settings=recipe.settings(),
                    rescues=self.rescue_of.name if self.rescue_of else None,
                    rescue_change=change,
                    rescue_attempt=self.rescue_attempt,
                    execution_id=self.execution.execution_id,
                    resumes_run_id=self.resumes_run_id,
                    reproduces_run_id=self.reproduces_run_id,
                    model_facts=checkpoint.model_facts(model_path, recipe.engine) if model_path else None,
                    campaign_sha256=self.execution.campaign_sha256,
                    weighbridge_version=__version__,
                    started_at=utc_now(),
                )
            ],
        )
        self.run.land_records(
            "node.jsonl",
            [
                NodeFacts(
                    campaign=campaign.name,
                    run_id=self.run.run_id,
                    node_id=facts["node_id"],
                    read_at=utc_now(),
                    facts=facts,
                )
            ],
        )

    def bring_up(self) -> bool:
        """Start the engine; True when it serves. A failure lands with its class and evidence and ends the run."""
        try:
            self.served = engines.bring_up(self.recipe, self.run, on_event=self.execution.notice)
        except BringUpFailed as failure:
            self.failure = failure
            self._land_bring_up_failure(failure)
            self._land_logs()
            self._end("failed", log_tail=failure.log_tail)
            return False
        served = self.served
        facts = served.facts
        self.run.land_records(
            "bring_up.jsonl",
            [
                BringUp(
                    campaign=self.run.campaign,
                    run_id=self.run.run_id,
                    state="served",
                    command=served.command,
                    endpoints=served.endpoints,
                    served_model=served.model,
                    engine_version=facts.version,
                    kv_tokens=facts.kv_tokens,
                    max_concurrency=facts.max_concurrency,
                    prefix_caching=facts.prefix_caching,
                    max_running_requests=facts.max_running_requests,
                    max_model_len=facts.max_model_len,
                    weight_bytes=facts.weight_bytes,
                    phases_s=facts.phases_s,
                    load_s=facts.load_s,
                    ready_s=served.ready_s,
                    is_warm_start=facts.extra.get("is_warm_start"),
                    facts=facts.extra,
                    server_started_at=served.started_at,
                    ready_at=served.ready_at,
                )
            ],
        )
        self.context = PlanContext(
            campaign=self.run.campaign,
            run_id=self.run.run_id,
            seed=self.execution.campaign.seed,
            model=served.model,
            server_nonce=secrets.token_hex(4),
            tokens=token_counter(served, engines.model_path(self.recipe)),
            max_context_tokens=facts.max_model_len or self.recipe.context_tokens,
        )
        return True

    def _land_bring_up_failure(self, failure: BringUpFailed) -> None:
        reading = failure.reading.facts
        self.run.land_records(
            "bring_up.jsonl",
            [
                BringUp(
                    campaign=self.run.campaign,
                    run_id=self.run.run_id,
                    state="failed",
                    failure_class=failure.failure_class,
                    failure_summary=failure.summary,
                    evidence=failure.reading.evidence,
                    command=failure.command,
                    engine_version=reading.version,
                    kv_tokens=reading.kv_tokens,
                    max_concurrency=reading.max_concurrency,
                    phases_s=reading.phases_s,
                    load_s=reading.load_s,
                    facts=reading.extra,
                )
            ],
        )

    # windows

    def plans(self) -> list[tuple[workloads.Workload, Any, list[CellPlan]]]:
        """Every cell of every workload that this recipe runs, less those an earlier try completed."""
        assert self.context is not None
        done = self.execution.finished_cells(self.recipe.name)
        planned = []
        for entry in self.execution.campaign.workloads:
            if self.recipe.workloads is not None and entry.name not in self.recipe.workloads:
                continue
            workload = workloads.get(entry.workload)
            if getattr(workload, "is_lifecycle", False):
                continue
            cells = [cell for cell in workload.cells(entry.params, self.context) if cell.cell_id not in done]
            planned.append((workload, entry, cells))
        return planned

    def run_cell(
        self,
        plan: CellPlan,
        grade: Callable[[CellPlan, list[Request], PlanContext], list[Grade]] | None,
        on_progress: Callable[..., None] | None = None,
    ) -> tuple[Cell, Window | None]:
        """Run one window and land everything that it showed. Never raises for what the server did."""
        assert self.served is not None and self.context is not None
        served, run = self.served, self.run
        self._write_scratch(plan)
        spec = WindowSpec(
            campaign=run.campaign,
            run_id=run.run_id,
            cell_id=plan.cell_id,
            endpoints=served.endpoints,
            model=served.model,
            shape=plan.shape,
            deadlines=plan.deadlines,
            processes=self.execution.campaign.load_processes,
            api_key_env=self.recipe.api_key_env,
            keep_text=plan.keep_text,
        )
        watch = _Watch(self, plan.cell_id)
        opened_at, started = utc_now(), time.monotonic()
        state, note, window = "complete", None, None
        prepared_s: list[float] = []

        def requests() -> Iterator[Any]:
            yield from plan.requests()
            prepared_s.append(time.monotonic() - started)

        try:
            with watch:
                window = load.run_window(
                    spec, requests(), run, on_progress=on_progress, should_abort=lambda: not served.is_alive()
                )
        except WeighbridgeError as error:
            state, note = "client_failed", str(error)
        except BaseException:
            state, note = "interrupted", "the flow was stopped during this window"
            load.recover_window(run, plan.cell_id)
            self._land_cell(plan, state, note, opened_at, None)
            raise
        if not served.is_alive():
            self.is_engine_dead = True
            state, note = "engine_died", served.death_summary()
        elif window is not None and plan.deadlines.window_s and window.cancelled + window.unsent > 0:
            state = "deadline"
        if window is None and not run.has_landed(f"requests/{plan.cell_id}.jsonl"):
            load.recover_window(run, plan.cell_id)
        watch.land()
        cell = self._land_cell(plan, state, note, opened_at, prepared_s[0] if prepared_s else None)
        if grade is not None and plan.expected and run.has_landed(f"requests/{plan.cell_id}.jsonl"):
            records = read_records(run.path / f"requests/{plan.cell_id}.jsonl", Request)
            run.land_records(f"grades/{plan.cell_id}.jsonl", grade(plan, records, self.context))
        return cell, window

    def run_probes(
        self, phase: str, count: int, kinds: Iterable[str], during: str | None = None
    ) -> list[Probe]:
        """Run the small pass/fail requests of one phase and land their verdicts. phase: before, after."""
        assert self.context is not None
        plan = probes.plan(self.context, phase=phase, count=count, kinds=list(kinds))
        self.run_cell(plan, None)
        path = self.run.path / f"requests/{plan.cell_id}.jsonl"
        records = read_records(path, Request) if path.exists() else []
        verdicts = probes.judge(plan, records, self.context)
        self.run.land_records(f"probes/{phase}.jsonl", verdicts)
        return verdicts

    def _write_scratch(self, plan: CellPlan) -> None:
        """Leave the cell's key where a resume finds it; scratch is not evidence and is removed at the end."""
        import msgspec

        folder = self.run.path / ".scratch"
        folder.mkdir(exist_ok=True)
        (folder / f"{plan.cell_id}.cell.json").write_bytes(msgspec.json.encode(_cell_fields(plan)))

    def _land_cell(
        self, plan: CellPlan, state: str, note: str | None, opened_at: str, planning_s: float | None
    ) -> Cell:
        assert self.context is not None
        cell = Cell(
            **_cell_fields(plan),
            campaign=self.run.campaign,
            run_id=self.run.run_id,
            prompt_length_source=self.context.tokens.source,
            planning_s=planning_s,
            window_state=state,  # type: ignore[arg-type]
            window_note=note,
            log_tail=self.served.log_tail(20) if state == "engine_died" and self.served else None,
            opened_at=opened_at,
            closed_at=utc_now(),
        )
        self.run.land_records(f"cells/{plan.cell_id}.jsonl", [cell])
        return cell

    # the end

    def finish(self, *, is_interrupted: bool = False) -> RunEnd:
        """Take the server down, land its logs, end and seal the run."""
        assert self.served is not None
        tail = self.served.log_tail(40) if self.is_engine_dead else []
        teardown = self.served.stop()
        self._land_logs()
        state = "interrupted" if is_interrupted else "engine_died" if self.is_engine_dead else "served"
        return self._end(state, tail, teardown.is_clean, teardown.note)

    def _land_logs(self) -> None:
        for part in sorted((self.run.path / "files").glob("*.part")):
            self.run.land(part.relative_to(self.run.path).as_posix().removesuffix(".part"))

    def _end(
        self,
        state: str,
        log_tail: list[str],
        is_clean: bool | None = None,
        note: str | None = None,
    ) -> RunEnd:
        end = RunEnd(
            campaign=self.run.campaign,
            run_id=self.run.run_id,
            state=state,  # type: ignore[arg-type]
            ended_at=utc_now(),
            is_teardown_clean=is_clean,
            teardown_note=note,
            log_tail=log_tail,
        )
        self.run.land_records("run_end.jsonl", [end])
        scratch = self.run.path / ".scratch"
        if scratch.is_dir():
            for path in scratch.iterdir():
                path.unlink()
            scratch.rmdir()
        return end


def _cell_fields(plan: CellPlan) -> dict[str, Any]:
    import msgspec

    return {
        "cell_id": plan.cell_id,
        "workload": plan.workload,
        "variant": plan.variant,
        "concurrency": plan.concurrency,
        "context_tokens": plan.context_tokens,
        "repeat": plan.repeat,
        "seed": plan.seed,
        "users": plan.users,
        "shape": msgspec.to_builtins(plan.shape),
        "asked_prompt_tokens": plan.asked_prompt_tokens,
        "asked_output_tokens": plan.asked_output_tokens,
        "is_fixed_length": plan.is_fixed_length,
        "planned_requests": plan.planned_requests,
        "warmup_requests": plan.warmup_requests,
        "planned_finish_reason": plan.planned_finish_reason,
        "cache_budget_min": plan.cache_budget_min,
        "cache_budget_max": plan.cache_budget_max,
        "declares_sharing": plan.declares_sharing,
        "is_cold_expected": plan.is_cold_expected,
        "needle_depths_pct": plan.needle_depths_pct,
        "objectives": plan.objectives,
        "params": plan.params,
    }


class _Watch:
    """Samples the engine's counters and the GPUs while a window is open, from threads of the flow's process."""

    def __init__(self, owner: RecipeRun, cell_id: str) -> None:
        assert owner.served is not None
        self._served, self._run, self._cell_id = owner.served, owner.run, cell_id
        self._counters: list[Counters] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name=f"counters-{cell_id}", daemon=True)
        self._gpus = telemetry.Sampler(owner.recipe.gpu_ids, period_s=1.0)
        self._samples: list[dict[str, Any]] = []

    def __enter__(self) -> _Watch:
        self._scrape("before")
        self._gpus.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=30)
        self._gpus.__exit__(None, None, None)
        self._samples = list(self._gpus.samples)
        self._scrape("after")

    def land(self) -> None:
        """Land what was sampled; a file without samples is not written."""
        if self._counters:
            self._run.land_records(f"counters/{self._cell_id}.jsonl", self._counters)
        if self._samples:
            self._run.land_records(
                f"telemetry/{self._cell_id}.jsonl",
                [
                    Telemetry(
                        campaign=self._run.campaign, run_id=self._run.run_id, cell_id=self._cell_id, **sample
                    )
                    for sample in self._samples
                ],
            )

    def _sample(self) -> None:
        while not self._stop.wait(COUNTER_PERIOD_S):
            self._scrape("during")

    def _scrape(self, at: str) -> None:
        at_ns, scraped_at = time.monotonic_ns(), utc_now()
        for index, counters in enumerate(self._served.counters()):
            known = {key: value for key, value in counters.items() if key in Counters.__struct_fields__}
            self._counters.append(
                Counters(
                    campaign=self._run.campaign,
                    run_id=self._run.run_id,
                    cell_id=self._cell_id,
                    at=at,  # type: ignore[arg-type]
                    at_ns=at_ns,
                    scraped_at=scraped_at,
                    endpoint=index,
                    **known,
                )
            )


def read_node() -> dict[str, Any]:
    """The machine's facts, once an execution."""
    return node.read_node()
