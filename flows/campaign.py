"""The flow that runs a campaign: node, then per recipe bring-up, probes, workloads, probes, teardown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from prefect import flow

from flows import executions, tasks, workloads
from flows.campaign_file import WorkloadEntry, load_campaign
from flows.executions import Execution
from flows.progress import Display
from flows.recipe import Recipe
from flows.runs import RecipeRun


@flow(name="campaign", flow_run_name="campaign {campaign_path}", validate_parameters=False, log_prints=False)
def campaign(
    campaign_path: Path,
    raw: Path = Path("raw"),
    is_resumed: bool = False,
    recipes: list[str] | None = None,
    is_rehearsed: bool = False,
    display: Display | None = None,
) -> dict[str, Any]:
    """Run every recipe of a campaign, in the file's order, and keep how each one ended.

    A recipe that `rescues` another runs only after that one failed; once a rescue serves, the failure is reproduced
    (unless the failed recipe says `reproduce: false`), for a rescue of something that fails only now and then proves
    nothing. A failed bring-up is a result and not a failed flow.
    recipes: names to run; null means all. is_rehearsed: reference servers play the engines. Returns {execution_id, runs: [{run_id, recipe, state, ...}]}.
    """
    path = Path(campaign_path)
    definition = load_campaign(path, is_rehearsed=is_rehearsed)
    display = display or Display()
    execution = executions.open_execution(
        definition, path.read_bytes(), Path(raw), is_resumed=is_resumed, notice=display.line
    )
    display.step("reading the node")
    execution.node_facts = tasks.read_node(definition)
    display.done("node read")
    wanted = [recipe for recipe in definition.recipes if recipes is None or recipe.name in recipes]
    outcomes: dict[str, dict[str, Any]] = {}
    attempts: dict[str, int] = {}
    for recipe in wanted:
        earlier = execution.finished(recipe.name)
        if earlier is not None:
            outcomes[recipe.name] = {"run_id": earlier.run_id, "state": earlier.state, "is_earlier": True}
            display.line(f"{recipe.name}: {earlier.state} already, in {earlier.run_id}")
            continue
        rescued = _rescued(recipe, definition.recipes)
        if rescued is not None:
            state = outcomes.get(rescued.name, {}).get("state")
            if state not in ("failed", "engine_died"):
                display.line(f"{recipe.name}: not needed, {rescued.name} did not fail")
                continue
            attempts[rescued.name] = attempts.get(rescued.name, 0) + 1
        cut_off = execution.unfinished(recipe.name)
        outcomes[recipe.name] = _run_recipe(
            execution,
            recipe,
            display,
            rescue_of=rescued,
            rescue_attempt=attempts[rescued.name] if rescued is not None else None,
            resumes_run_id=cut_off.run_id if cut_off else None,
        )
        is_rescue = rescued is not None and outcomes[recipe.name]["state"] == "served"
        if (
            is_rescue
            and rescued is not None
            and rescued.reproduce
            and "reproduced" not in outcomes[rescued.name]
        ):
            display.line(f"{rescued.name}: reproducing the failure")
            again = _run_recipe(
                execution,
                rescued,
                display,
                reproduces_run_id=outcomes[rescued.name]["run_id"],
                is_probe_only=True,
            )
            outcomes[rescued.name]["reproduced"] = again["state"] == outcomes[rescued.name]["state"]
    return {
        "execution_id": execution.execution_id,
        "campaign": definition.name,
        "runs": [{"recipe": name, **outcome} for name, outcome in outcomes.items()],
    }


def _rescued(recipe: Recipe, recipes: list[Recipe]) -> Recipe | None:
    return next((other for other in recipes if other.name == recipe.rescues), None)


def _run_recipe(
    execution: Execution, recipe: Recipe, display: Display, *, is_probe_only: bool = False, **links: Any
) -> dict[str, Any]:
    """Bring a recipe up and load it; before that, as often as its lifecycle workloads ask, to measure the start."""
    entries = execution.campaign.entries_of(recipe)
    lifecycle = [entry for entry in entries if workloads.is_lifecycle(entry.workload)]
    others = [entry for entry in entries if entry not in lifecycle]
    if is_probe_only:
        return _run_once(execution, recipe, display, [], **links)
    starts = [
        (entry, start) for entry in lifecycle for start in workloads.get(entry.workload).starts(entry.params)
    ]
    if not starts:
        return _run_once(execution, recipe, display, others, **links)
    # The last start's server is left up, and bears the rest of the load.
    for entry, start in starts[:-1]:
        if execution.has_started(recipe.name, start.name):
            continue
        outcome = _run_once(
            execution, recipe, display, [entry], lifecycle_start=start, is_start_only=True, **links
        )
        if outcome["state"] != "served":
            return outcome
    entry, start = starts[-1]
    return _run_once(execution, recipe, display, [entry, *others], lifecycle_start=start, **links)


def _run_once(
    execution: Execution, recipe: Recipe, display: Display, entries: list[WorkloadEntry], **links: Any
) -> dict[str, Any]:
    display.step(f"{recipe.name}: bringing up {recipe.engine}")
    run = tasks.bring_up(execution, recipe, **links)
    if run.failure is not None:
        display.done(f"{recipe.name}: failed, {run.failure.failure_class}: {run.failure.summary}", "yellow")
        return {"run_id": run.run.run_id, "state": "failed", "failure_class": run.failure.failure_class}
    assert run.served is not None
    display.done(f"{recipe.name}: served in {run.served.ready_s:.1f} s")
    is_interrupted = True
    try:
        if entries:
            _load(run, entries, display)
        is_interrupted = False
    finally:
        end = tasks.tear_down(run, is_interrupted)
        if not end["is_clean"]:
            display.line(f"{recipe.name}: teardown left something: {end['note']}", "red")
    return {"run_id": run.run.run_id, "state": end["state"]}


def _load(run: RecipeRun, entries: list[WorkloadEntry], display: Display) -> None:
    """Probes, then every cell of every workload, then the probes again; an engine that died ends it.

    A start of its own is not probed: nothing may come before the first request that it measures.
    """
    first = [entry for entry in entries if workloads.is_lifecycle(entry.workload)]
    for entry in first:
        if not _load_entry(run, entry, display):
            return
    if run.is_start_only:
        return
    _probe(run, display, "before")
    for entry in entries:
        if entry not in first and not _load_entry(run, entry, display):
            return
    _probe(run, display, "after")


def _load_entry(run: RecipeRun, entry: WorkloadEntry, display: Display) -> bool:
    """Every cell of one entry; False when the engine died."""
    workload = workloads.get(entry.workload)
    display.step(f"{run.recipe.name}: planning {entry.name}")
    for plan in run.cells(entry):
        display.expect(1)
        display.step(f"{run.recipe.name}: {plan.cell_id}")
        result = tasks.run_cell(run, workload, plan, display)
        _tell_cell(display, run.recipe.name, plan.cell_id, result)
        if run.is_engine_dead:
            return False
    return True


def _probe(run: RecipeRun, display: Display, phase: Literal["before", "after"]) -> None:
    if run.execution.campaign.probes.count(phase) == 0:
        return
    display.step(f"{run.recipe.name}: probes {phase} load")
    result = tasks.run_probes(run, phase)
    display.line(f"{run.recipe.name}: probes {phase} load: {result['passed']} of {result['asked']} passed")


def _tell_cell(display: Display, recipe: str, cell_id: str, result: dict[str, Any]) -> None:
    seconds = f" in {result['seconds']:.1f} s" if result["seconds"] is not None else ""
    text = f"{recipe}: {cell_id}: {result['ok']} of {result['planned']} requests{seconds}"
    if result["state"] == "complete":
        display.done(text)
    else:
        display.done(f"{text}, window {result['state']}: {result['note']}", "red")
