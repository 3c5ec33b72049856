"""The Prefect tasks: one per thing that can fail on its own. Thin; the work is in flows.runs and flows.warehouse.

Nothing is retried and nothing is cached: a repeat that comes back from a cache is not a measurement, and a retry
would hide a failure that the evidence must show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows import runs
from flows.campaign_file import Campaign
from flows.executions import Execution
from flows.progress import Display
from flows.recipe import Recipe
from flows.runs import RecipeRun
from flows.workloads.base import CellPlan, Workload
from flows.workloads.cold_start import Start

_plain: dict[str, Any] = {"cache_policy": NO_CACHE, "retries": 0, "persist_result": False}


@task(name="read node", **_plain)
def read_node(campaign: Campaign) -> dict[str, Any]:
    """Read the machine once an execution."""
    return runs.read_node(campaign)


@task(name="bring up", task_run_name="bring up {recipe.name}", **_plain)
def bring_up(
    execution: Execution,
    recipe: Recipe,
    rescue_of: Recipe | None = None,
    rescue_attempt: int | None = None,
    resumes_run_id: str | None = None,
    reproduces_run_id: str | None = None,
    lifecycle_start: Start | None = None,
    is_start_only: bool = False,
) -> RecipeRun:
    """Start a run; a failed bring-up is a result, so the task succeeds and the run says how it failed."""
    run = RecipeRun(
        execution,
        recipe,
        rescue_of=rescue_of,
        rescue_attempt=rescue_attempt,
        resumes_run_id=resumes_run_id,
        reproduces_run_id=reproduces_run_id,
        lifecycle_start=lifecycle_start,
        is_start_only=is_start_only,
    )
    run.start()
    run.bring_up()
    return run


@task(name="probe", task_run_name="probe {phase}", **_plain)
def run_probes(run: RecipeRun, phase: Literal["before", "after"]) -> dict[str, int]:
    """The small pass/fail requests of one phase. Returns how many passed of how many."""
    verdicts = run.run_probes(phase)
    return {"passed": sum(verdict.is_passed for verdict in verdicts), "asked": len(verdicts)}


@task(name="cell", task_run_name="cell {plan.cell_id}", **_plain)
def run_cell(run: RecipeRun, workload: Workload, plan: CellPlan, display: Display) -> dict[str, Any]:
    """One window: load, counters, grades. Returns the counts that the display shows."""
    with display.window(plan.cell_id, plan.planned_requests + plan.warmup_requests) as bar:
        cell, window = run.run_cell(plan, workload.grade, on_progress=lambda p: bar(p.done, p.failed))
    seconds = (window.closed_ns - window.opened_ns) / 1e9 if window else None
    return {
        "state": cell.window_state,
        "note": cell.window_note,
        "ok": window.ok if window else 0,
        "planned": cell.planned_requests,
        "seconds": seconds,
    }


@task(name="tear down", **_plain)
def tear_down(run: RecipeRun, is_interrupted: bool = False) -> dict[str, Any]:
    """Stop the server, land its logs and seal the run."""
    end = run.finish(is_interrupted=is_interrupted)
    return {"state": end.state, "is_clean": end.is_teardown_clean, "note": end.teardown_note}


@task(name="build warehouse", **_plain)
def build_warehouse(raw: Path, warehouse: Path, display: Display) -> Any:
    """dbt and the contracts; raises, and so fails the flow, when either refuses."""
    from flows import warehouse as room

    return room.build_warehouse(raw, warehouse, on_event=display.detail)


@task(name="write report", **_plain)
def write_report(database: Path, out: Path) -> Path:
    """The self-contained page, and beside it the evidence JSON, CSVs and chart data."""
    from flows import report

    report.write_report(database, out)
    report.write_publication(database, out.parent)
    return out


@task(name="write docs", **_plain)
def write_docs(raw: Path, warehouse: Path, out: Path) -> Path:
    """The static dbt docs with their lineage."""
    from flows.warehouse.docs import write_docs as write

    return write(raw, warehouse, out)
