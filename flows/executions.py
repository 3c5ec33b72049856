"""One execution of a campaign: its node, its runs, and what an earlier, killed try of it finished.

What had landed stands; what was cut off is recovered, ended as interrupted, and measured again in a new run.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contracts.errors import BadInput
from contracts.records import BringUp, Cell, Request, RunEnd, RunStart
from flows import engines, load
from flows.campaign_file import Campaign
from flows.landing import RunFolder, read_records, utc_now

SCRATCH = ".scratch"
Notice = Callable[[str], None]


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
        cut = [run for run in self.earlier if run.recipe == recipe and not run.is_ended]
        return cut[-1] if cut else None

    def has_started(self, recipe: str, lifecycle_start: str) -> bool:
        """Whether a start of a lifecycle workload was measured before the execution was cut off."""
        return any(
            run.recipe == recipe
            and run.lifecycle_start == lifecycle_start
            and run.is_start_only
            and run.is_ended
            for run in self.earlier
        )

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
    lifecycle_start: str | None
    is_start_only: bool

    @property
    def is_ended(self) -> bool:
        return self.state in ("served", "failed", "engine_died")

    @property
    def is_settled(self) -> bool:
        """Whether this run settled its recipe; a start of its own and a reproduction do not."""
        return (
            self.is_ended and self.reproduces is None and (not self.is_start_only or self.state == "failed")
        )


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
        swept = engines.sweep(run.path)
        if swept:
            notice(f"ended {len(swept)} processes that {run.run_id} had left")
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
        lifecycle_start=start.lifecycle_start,
        is_start_only=start.is_start_only,
    )


def _cells_without_record(run: RunFolder) -> list[str]:
    seals = run.seals()
    with_requests = {Path(name).stem for name in seals if name.startswith("requests/")}
    return sorted(cell for cell in with_requests if f"cells/{cell}.jsonl" not in seals)


def _land_interrupted_cell(run: RunFolder, start: RunStart, cell_id: str) -> None:
    """The cell's plan was in memory and is gone: what its requests themselves show is written, the rest is null."""
    requests = read_records(run.path / f"requests/{cell_id}.jsonl", Request)
    timed = [request for request in requests if request.phase == "timed"]
    scratch = run.path / SCRATCH / f"{cell_id}.cell.json"
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
