"""Runs scenarios on the reference server through the real client, raw, dbt and contracts, and says what was caught."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb

from contracts.screens import SCREENS
from flows import node, runs
from flows.campaign_file import Campaign, Price, WorkloadEntry
from flows.cheats import edits, matrix, planning
from flows.cheats.disturbance import disturbing
from flows.cheats.lockstep import Lane, Lockstep
from flows.cheats.matrix import Outcome
from flows.cheats.scenario import RECIPE, Scenario
from flows.cheats.witness import Witness
from flows.engines.models import find_gguf
from flows.executions import Execution
from flows.landing import RunFolder
from flows.node import checkpoint
from flows.recipe import Recipe
from flows.workloads import fresh_document, probes
from flows.workloads.base import CellPlan, TokenCounter

CAMPAIGN = "cheats"
STAND_IN = "needle-2.8m"
# So many clean windows are open together. Each keeps a processor busy for a few percent of its time.
CLEAN_LANES = 8
CELLS_PER_RUN = 45
# A clean cell is measured so often at most, until the machine does not disturb it.
TRIES = 3
# The bench prices a CPU hour of the machine that it runs on; what it costs does not decide any screen but its own.
PRICE = Price(usd_per_gpu_hour=0.08, key="cheat-bench-cpu", source="stated for the bench, not a market price",
              as_of=datetime.date(2026, 10, 1))  # fmt: skip
# The reference server's own rule (docs/reference-server.md), so that planning asks it nothing.
WORDS = TokenCounter(lambda text: len(text.split()), "tokenizer")
Notice = Callable[[str], None]


@dataclasses.dataclass
class Measured:
    """A scenario as it was measured: the run it is in, and the cell that is judged. run is None when nothing came up.

    disturbed: cells that were measured before it, while the machine had other work. They stay in raw and are not judged.
    """

    scenario: Scenario
    cell_id: str
    run: RunFolder | None
    note: str = ""
    disturbed: list[str] = dataclasses.field(default_factory=list)

    @property
    def row_id(self) -> str | None:
        return f"{self.run.run_id}/{self.cell_id}" if self.run else None

    @property
    def disturbed_row_ids(self) -> list[str]:
        return [f"{self.run.run_id}/{cell_id}" for cell_id in self.disturbed] if self.run else []


def run_bench(
    scenarios: Sequence[Scenario], folder: Path, *, notice: Notice = lambda _: None, fault_workers: int = 6
) -> list[Outcome]:
    """Measure every scenario under `folder`, build one warehouse over all of it, and read the verdicts.

    Faults run `fault_workers` at a time; their verdicts do not rest on a quiet machine. Clean cells run in CLEAN_LANES
    lanes in step, so that beside an open window nothing else computes; those that the machine disturbed all the same,
    by the word of a witness, are measured again. Scenarios that disturb a process run alone.
    """
    node_facts = node.read_node()
    raw = folder / "raw"
    groups = group(scenarios)
    started = itertools.count(1)

    def run_one(members: list[Item], lane: Lane | None = None) -> list[Measured]:
        more = f" and {len(members) - 1} more" if len(members) > 1 else ""
        notice(f"server {next(started)} of {len(groups)}: {members[0].cell_id()}{more}")
        return run_group(members, folder / "measured", raw, node_facts, lane)

    def run_lane(number: int, dealt: list[list[Item]], step: Lockstep) -> list[Measured]:
        with step.lane(number) as lane:
            return [one for members in dealt for one in run_one(members, lane)]

    measured: list[Measured] = []
    for wanted, workers in (("faults", fault_workers), ("disturbed", 1)):
        with ThreadPoolExecutor(max_workers=workers) as pool:
            for found in pool.map(run_one, [members for members in groups if _stage(members) == wanted]):
                measured += found
    lanes = clean_lanes([members for members in groups if _stage(members) == "clean"])
    if lanes:
        with Witness() as witness, ThreadPoolExecutor(max_workers=len(lanes)) as pool:
            step = Lockstep(len(lanes), witness)
            for found in pool.map(run_lane, range(len(lanes)), lanes, [step] * len(lanes)):
                measured += found
    notice("building the warehouse")
    return judge(measured, raw, folder / "warehouse")


@dataclasses.dataclass(frozen=True)
class Item:
    """One judged cell of a scenario; place tells repeats of a clean one apart."""

    scenario: Scenario
    place: int = 0

    def cell_id(self, attempt: int = 0) -> str:
        return planning.judged_cell_id(self.scenario, self.place, attempt)


def group(scenarios: Sequence[Scenario]) -> list[list[Item]]:
    """Cells that may share a server: same server, claims and probes, and no edit of the whole run's records.

    At most CELLS_PER_RUN of them, and of clean ones no more than a lane's share, so that the lanes end together.
    """
    clean = sum(scenario.times for scenario in scenarios if scenario.kind == "clean")
    most = {"fault": CELLS_PER_RUN, "clean": max(1, min(CELLS_PER_RUN, -(-clean // CLEAN_LANES)))}
    groups: dict[str, list[Item]] = {}
    for scenario in scenarios:
        alone = scenario.disturb or any(edit.is_run_wide for edit in scenario.edit)
        shared = [
            scenario.kind,
            scenario.server,
            scenario.recipe,
            scenario.price.model_dump(),
            scenario.probes_before,
            scenario.probes_after,
            scenario.has_needle,
            scenario.needle_context_tokens,
            scenario.id if alone else "",
        ]
        key = json.dumps(shared, sort_keys=True, default=str)
        groups.setdefault(key, []).extend(Item(scenario, place) for place in range(scenario.times))
    return [
        items[start : start + size]
        for items in groups.values()
        for size in [most[items[0].scenario.kind]]
        for start in range(0, len(items), size)
    ]


def clean_lanes(groups: list[list[Item]]) -> list[list[list[Item]]]:
    """Groups dealt out to at most CLEAN_LANES lanes, those with long windows first: what opens together lasts alike."""
    ordered = sorted(groups, key=lambda members: members[0].scenario.planned_window_s, reverse=True)
    lanes = [ordered[start::CLEAN_LANES] for start in range(CLEAN_LANES)]
    return [lane for lane in lanes if lane]


def _stage(members: list[Item]) -> str:
    head = members[0].scenario
    return "disturbed" if head.disturb else "clean" if head.kind == "clean" else "faults"


def run_group(
    members: list[Item],
    measured_root: Path,
    raw: Path,
    node_facts: dict[str, Any],
    lane: Lane | None = None,
) -> list[Measured]:
    """One server, every window of its cells, and the run resealed into raw with what the scenarios edit.

    lane: opens and closes the windows of the cells in step with others', and says which were disturbed.
    """
    head = members[0].scenario
    recipe = _recipe(head)
    execution = Execution(
        campaign=_campaign(head),
        campaign_sha256=hashlib.sha256(CAMPAIGN.encode()).hexdigest(),
        raw=measured_root,
        execution_id="cheat-bench",
        node_facts=node_facts,
    )
    run = runs.RecipeRun(execution, recipe)
    run.start()
    if not run.bring_up():
        return [Measured(item.scenario, item.cell_id(), None, note=str(run.failure)) for item in members]
    assert run.context is not None
    run.context = dataclasses.replace(run.context, tokens=WORDS)
    needle = None
    tries: list[list[str]] = []
    try:
        run.run_probes("before")
        if head.has_needle:
            needle = _needle_plan(members, run)
            run.run_cell(needle, fresh_document.Plan().grade)
        for item in members:
            tries.append(_run_item(item, run, lane))
        if not run.is_engine_dead:
            run.run_probes("after")
    finally:
        run.finish()
    target = RunFolder.create(raw, CAMPAIGN, run.run.run_id)
    needle_id = needle.cell_id if needle else None
    changes = [(_stand_in(), members[0].cell_id(), needle_id)]
    changes += [(edit, item.cell_id(), needle_id) for item in members for edit in item.scenario.edit]
    edits.reseal(run.run.path, target, changes)
    return [
        Measured(item.scenario, cell_ids[-1], target, disturbed=cell_ids[:-1])
        for item, cell_ids in zip(members, tries, strict=True)
    ]


def _run_item(item: Item, run: runs.RecipeRun, lane: Lane | None) -> list[str]:
    """Measure one scenario's windows; again, in a lane, while the machine disturbs them. The judged cells' ids."""
    assert run.context is not None and run.served is not None
    cell_ids: list[str] = []
    while not cell_ids or (lane is not None and lane.is_disturbed and len(cell_ids) < TRIES):
        for cell in planning.plan_cells(item.scenario, run.context, item.place, len(cell_ids)):
            with disturbing(item.scenario.disturb, run.served):
                run.run_cell(cell, None, lane.follow if lane else None)
        cell_ids.append(cell.cell_id)
    return cell_ids


def judge(measured: list[Measured], raw: Path, warehouse: Path) -> list[Outcome]:
    """Build the warehouse over raw and read each scenario's row. A row that is not there is `absent`."""
    from flows.warehouse import build_warehouse

    build_warehouse(raw, warehouse)
    rows, gated = _read_rows(warehouse / "weighbridge.duckdb")
    outcomes = []
    for one in measured:
        row = rows.get(one.row_id or "")
        outcomes.append(
            Outcome(
                id=one.cell_id,
                family=one.scenario.family,
                kind=one.scenario.kind,
                expect=one.scenario.expect,
                row_id=one.row_id,
                standing=_standing(row),
                screens={name: row[name] for name in SCREENS} if row else {},
                is_gated=one.row_id in gated,
                note=one.note,
                disturbed=len(one.disturbed),
                disturbed_held=sum(
                    _standing(rows.get(row_id)) in matrix.HELD for row_id in one.disturbed_row_ids
                ),
            )
        )
    return outcomes


def _standing(row: dict[str, Any] | None) -> str:
    return row["standing"] if row else "absent"


def _read_rows(database: Path) -> tuple[dict[str, dict[str, Any]], set[str]]:
    connection = duckdb.connect(str(database), read_only=True)
    try:
        relation = connection.sql("select * from marts.measured_rows")
        names = relation.columns
        rows = [dict(zip(names, values, strict=True)) for values in relation.fetchall()]
        gated = {row_id for (row_id,) in connection.sql("select row_id from marts.gated_rows").fetchall()}
    finally:
        connection.close()
    return {row["row_id"]: row for row in rows}, gated


def _campaign(head: Scenario) -> Campaign:
    price = Price.model_validate({**PRICE.model_dump(), **head.price.model_dump(exclude_none=True)})
    return Campaign(
        name=CAMPAIGN,
        policy="strict",
        price=price,
        recipes=[_recipe(head)],
        workloads=[WorkloadEntry(name="sweep", workload="sweep", params=None)],
        probes=probes.Parameters(before=head.probes_before, after=head.probes_after),
        path=Path("cheats"),
        sha256="",
    )


def _recipe(head: Scenario) -> Recipe:
    settings = {
        **RECIPE,
        "name": f"cheat-{head.id}"[:60].rstrip("-"),
        "args": ["--set", json.dumps(head.server, sort_keys=True)],
        **head.recipe,
    }
    return Recipe.model_validate(settings)


@functools.cache
def _model_facts() -> dict[str, Any]:
    facts = checkpoint.model_facts(find_gguf(STAND_IN), "reference")
    assert facts is not None
    return facts


def _stand_in() -> edits.Edit:
    """The reference server computes no model. Its rows stand for one of 2.8M parameters, whose facts are read from its
    header; without such facts no ceiling could be computed and no row could publish."""
    return edits.Edit(record="run_start", set={"model_facts": _model_facts()})


def _needle_plan(members: list[Item], run: runs.RecipeRun) -> CellPlan:
    """A needle cell at the longest context that the group's rows have, so that their needle gate can be read."""
    assert run.context is not None
    longest = max(item.scenario.needle_tokens for item in members)
    parameters = fresh_document.Parameters(context_tokens=[longest])
    return fresh_document.Plan().cells(parameters, run.context)[0]
