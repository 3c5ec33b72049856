"""One run: one bring-up of one recipe. What the Prefect tasks call, and what tests call without Prefect.

Everything that happens lands in the run's raw folder in the order in which a reader needs it: run_start before
anything is started, each cell's evidence as its window closes, run_end last.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from contracts.errors import WeighbridgeError
from contracts.records import (
    BringUp,
    Cell,
    Grade,
    NodeFacts,
    Probe,
    Request,
    RunEnd,
    RunStart,
    Window,
    WindowState,
)
from flows import __version__, engines, lifecycle, load, node, rehearsal, workloads
from flows.campaign_file import Campaign, WorkloadEntry
from flows.engines.base import BringUpFailed
from flows.engines.served import Served
from flows.engines.vllm import PYTHON_VARIABLE
from flows.executions import SCRATCH, Execution
from flows.landing import RunFolder, read_records, utc_now
from flows.load.plan import WindowSpec
from flows.node import checkpoint
from flows.recipe import Recipe
from flows.tokens import measure_overhead, token_counter
from flows.watch import Watch
from flows.workloads import probes
from flows.workloads.base import CellOutcome, CellPlan, PlanContext
from flows.workloads.cold_start import Start


def new_run_id(recipe: str) -> str:
    """A run id that sorts by time and is never taken twice: `20261009T081500Z-<recipe>-<4 hex>`."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{recipe}-{secrets.token_hex(2)}"


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
        lifecycle_start: Start | None = None,
        is_start_only: bool = False,
    ) -> None:
        self.execution = execution
        self.recipe = recipe
        self.rescue_of = rescue_of
        self.rescue_attempt = rescue_attempt
        self.resumes_run_id = resumes_run_id
        self.reproduces_run_id = reproduces_run_id
        self.lifecycle_start = lifecycle_start
        self.is_start_only = is_start_only
        self.run = RunFolder.create(execution.raw, execution.campaign.name, new_run_id(recipe.name))
        self.served: Served | None = None
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
                    # Where no engine was, nothing of an engine was measured.
                    source="synthetic" if recipe.engine == "reference" else "measured",
                    recipe=recipe.name,
                    engine=recipe.engine,
                    model=recipe.model,
                    model_path=None,  # a path of one machine is no evidence; the facts below are
                    node_id=facts["node_id"],
                    gpus=max(1, recipe.gpu_count),
                    gpu_ids=recipe.gpu_ids,
                    layout=recipe.layout,
                    claimed_precision=recipe.claimed_precision,
                    claimed_context_tokens=recipe.context_tokens,
                    policy=campaign.policy,
                    price=campaign.price.model_dump(mode="json"),
                    recipe_settings=recipe.settings(),
                    rescues=self.rescue_of.name if self.rescue_of else None,
                    rescue_change=change,
                    rescue_attempt=self.rescue_attempt,
                    execution_id=self.execution.execution_id,
                    resumes_run_id=self.resumes_run_id,
                    reproduces_run_id=self.reproduces_run_id,
                    lifecycle_start=self.lifecycle_start.name if self.lifecycle_start else None,
                    is_start_only=self.is_start_only,
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
        self._warn_of_islands()
        is_warm = lifecycle.prepare(self.recipe, self.lifecycle_start) if self.lifecycle_start else None
        try:
            self.served = engines.bring_up(self.recipe, self.run, on_event=self._on_event)
        except BringUpFailed as failure:
            self.failure = failure
            self._land_bring_up_failure(failure)
            self._land_logs()
            self._end("failed", log_tail=failure.log_tail)
            return False
        try:
            self._land_served(self.served, is_warm)
        except BaseException:
            self.finish(is_interrupted=True)
            raise
        return True

    def _land_served(self, served: Served, is_warm: bool | None) -> None:
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
                    is_warm_start=facts.extra.get("is_warm_start", is_warm),
                    facts=facts.extra,
                    server_started_at=served.started_at,
                    ready_at=served.ready_at,
                )
            ],
        )
        counter = token_counter(served, engines.model_path(self.recipe))
        overhead = measure_overhead(served, counter)
        self.context = PlanContext(
            campaign=self.run.campaign,
            run_id=self.run.run_id,
            seed=self.execution.campaign.seed,
            model=served.model,
            server_nonce=secrets.token_hex(4),
            tokens=counter,
            chat_overhead_tokens=overhead.chat_tokens,
            exchange_overhead_tokens=overhead.exchange_tokens,
            max_context_tokens=facts.max_model_len or self.recipe.context_tokens,
        )

    def _warn_of_islands(self) -> None:
        """Say before the start that a tensor-parallel group does not lie inside one island of linked GPUs."""
        recipe, facts = self.recipe, self.execution.node_facts
        if recipe.tensor_parallel < 2 or not facts.get("gpus"):
            return
        gpu_ids = recipe.gpu_ids or list(range(recipe.gpu_count))
        warning = node.tensor_parallel_warning(facts["islands"], gpu_ids, recipe.tensor_parallel)
        if warning is not None:
            self.execution.notice(f"{recipe.name}: {warning}")

    def _on_event(self, name: str, facts: dict[str, Any]) -> None:
        self.execution.notice(
            f"{self.recipe.name}: {name.replace('_', ' ')} {facts.get('name', '')}".rstrip()
        )

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

    def cells(self, entry: WorkloadEntry) -> Iterator[CellPlan]:
        """The cells of one entry of the campaign, less those that an earlier try completed.

        An adaptive workload's next cell is planned once the one before it has been measured and landed, so this is
        consumed one cell at a time; a cell that an earlier try completed is read back instead of measured again.
        """
        assert self.context is not None
        workload = workloads.get(entry.workload)
        # A start's cell is measured in every start's run, so what an earlier run completed does not stand for it.
        done = (
            set()
            if workloads.is_lifecycle(entry.workload)
            else self.execution.finished_cells(self.recipe.name)
        )
        if not getattr(workload, "is_adaptive", False):
            plans = workloads.plan_cells(entry.name, entry.workload, entry.params, self.context)
            yield from (plan for plan in plans if plan.cell_id not in done)
            return
        context = replace(self.context, entry=entry.name)
        outcomes: list[CellOutcome] = []
        while (plan := workload.next_cell(entry.params, context, outcomes)) is not None:
            plan = workloads.named(entry.name, plan)
            if plan.cell_id not in done:
                yield plan
            outcomes.append(CellOutcome(plan, self._landed_requests(plan.cell_id)))

    def _landed_requests(self, cell_id: str) -> list[Request]:
        """A cell's records, from this run or from the earlier one that completed it."""
        name = f"requests/{cell_id}.jsonl"
        folders = [self.run.path, *(self.execution.folder / run.run_id for run in self.execution.earlier)]
        for folder in folders:
            if (folder / name).exists():
                return read_records(folder / name, Request)
        return []

    def run_cell(
        self,
        plan: CellPlan,
        grade: Callable[[CellPlan, list[Request], PlanContext], list[Grade]] | None,
        on_progress: Callable[[load.Progress], None] | None = None,
    ) -> tuple[Cell, Window | None]:
        """Run one window and land everything that it showed. Never raises for what the server did."""
        assert self.served is not None and self.context is not None
        served, run = self.served, self.run
        self._write_scratch(plan)
        watch = Watch(served, run, plan.cell_id, self.recipe.gpu_ids)
        opened_at, started = utc_now(), time.monotonic()
        state: WindowState = "complete"
        note, window = None, None
        prepared_s: list[float] = []
        private: dict[str, tuple[str | None, str | None]] = {}

        def requests() -> Iterator[Any]:
            yield from plan.requests()
            prepared_s.append(time.monotonic() - started)

        def follow(progress: load.Progress) -> None:
            if on_progress is not None:
                on_progress(progress)
            watch.follow(progress)

        try:
            with watch, self._probing_beside(plan):
                window = load.run_window(
                    self._spec(plan),
                    requests(),
                    run,
                    on_progress=follow,
                    should_abort=self._is_engine_gone,
                    on_text=lambda name, text, thought: private.__setitem__(name, (text, thought)),
                )
        except WeighbridgeError as error:
            state, note = "client_failed", str(error)
        except BaseException:
            state, note = "interrupted", "the flow was stopped during this window"
            load.recover_window(run, plan.cell_id)
            self._land_cell(plan, state, note, opened_at, None)
            raise
        if window is not None and plan.shape.stop_after_s is not None:
            # A window that the clock ends was planned to last, not to hold a number of requests: what was prepared
            # beyond its end was never due, and the load writes no record of it.
            plan.planned_requests = window.planned
        if not served.is_alive():
            self.is_engine_dead = True
            death = served.death()
            state, note = "engine_died", death.summary if death else "the engine is gone"
        elif window is not None and plan.deadlines.window_s and window.cancelled + window.unsent > 0:
            state = "deadline"
        if window is None and not run.has_landed(f"requests/{plan.cell_id}.jsonl"):
            load.recover_window(run, plan.cell_id)
        watch.land()
        cell = self._land_cell(plan, state, note, opened_at, prepared_s[0] if prepared_s else None)
        if grade is not None and plan.expected and run.has_landed(f"requests/{plan.cell_id}.jsonl"):
            records = read_records(run.path / f"requests/{plan.cell_id}.jsonl", Request)
            for record in records:
                # A user's own problems are graded here, from memory; their answers are in no file.
                record.output_text, record.reasoning_text = private.get(
                    record.request_id, (record.output_text, record.reasoning_text)
                )
            run.land_records(f"grades/{plan.cell_id}.jsonl", grade(plan, records, self.context))
        return cell, window

    def run_probes(self, phase: Literal["before", "after"]) -> list[Probe]:
        """Run the small pass/fail requests of one phase and land their verdicts; none when none are asked for."""
        assert self.context is not None
        plan = probes.plan(self.execution.campaign.probes, self.context, phase)
        if plan is None:
            return []
        self.run_cell(plan, None)
        path = self.run.path / f"requests/{plan.cell_id}.jsonl"
        records = read_records(path, Request) if path.exists() else []
        verdicts = probes.judge(plan, records, self.context, phase)
        self.run.land_records(f"probes/{phase}.jsonl", verdicts)
        return verdicts

    @contextmanager
    def _probing_beside(self, plan: CellPlan) -> Iterator[None]:
        """Probes from a thread while a window is open, where the plan allows it and the campaign asks for them."""
        if not plan.probe_during or self.execution.campaign.probes.count("during") == 0:
            yield
            return
        thread = threading.Thread(target=self._probe_beside, args=(plan.cell_id,), daemon=True)
        thread.start()
        yield
        thread.join()

    def _probe_beside(self, cell_id: str) -> None:
        """Probes of phase `during`, beside a cell that is under load; from a thread of the flow's process."""
        assert self.served is not None and self.context is not None
        plan = probes.plan(self.execution.campaign.probes, self.context, "during", beside_cell=cell_id)
        if plan is None:
            return
        opened_at = utc_now()
        state: WindowState = "complete"
        try:
            load.run_window(self._spec(plan), plan.requests(), self.run, should_abort=self._is_engine_gone)
        except WeighbridgeError:
            state = "client_failed"
        self._land_cell(plan, state, None, opened_at, None)
        path = self.run.path / f"requests/{plan.cell_id}.jsonl"
        records = read_records(path, Request) if path.exists() else []
        self.run.land_records(
            f"probes/during_{cell_id}.jsonl", probes.judge(plan, records, self.context, "during")
        )

    def _is_engine_gone(self) -> bool:
        return self.served is None or not self.served.is_alive()

    def _spec(self, plan: CellPlan) -> WindowSpec:
        assert self.served is not None
        return WindowSpec(
            campaign=self.run.campaign,
            run_id=self.run.run_id,
            cell_id=plan.cell_id,
            endpoints=self.served.endpoints,
            model=self.served.model,
            shape=plan.shape,
            deadlines=plan.deadlines,
            api_key_env=self.recipe.api_key_env,
            keep_text=plan.keep_text,
            is_text_private=not plan.keep_text and bool(plan.expected),
        )

    def _write_scratch(self, plan: CellPlan) -> None:
        """Leave the cell's key where a resume finds it; scratch is not evidence and is removed at the end."""
        folder = self.run.path / SCRATCH
        folder.mkdir(exist_ok=True)
        (folder / f"{plan.cell_id}.cell.json").write_bytes(msgspec.json.encode(_cell_fields(plan)))

    def _land_cell(
        self, plan: CellPlan, state: WindowState, note: str | None, opened_at: str, planning_s: float | None
    ) -> Cell:
        assert self.context is not None
        cell = Cell(
            **_cell_fields(plan),
            campaign=self.run.campaign,
            run_id=self.run.run_id,
            prompt_length_source=self.context.tokens.source,
            planning_s=planning_s,
            window_state=state,
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
        scratch = self.run.path / SCRATCH
        if scratch.is_dir():
            for path in scratch.iterdir():
                path.unlink()
            scratch.rmdir()
        return end


def _cell_fields(plan: CellPlan) -> dict[str, Any]:
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


def read_node(campaign: Campaign) -> dict[str, Any]:
    """The machine's facts, once an execution; a rehearsal's with the devices that it plays."""
    if campaign.rehearsal is not None:
        return rehearsal.played_node(node.read_node(), campaign.rehearsal, campaign.path.parent)
    # Links are measured with torch, which comes with vLLM and not with this project.
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    return node.read_node(measures_links=campaign.measures_links, torch_python=python)
