"""One file per workload: from a seed to planned requests, and how an answer is graded. Knows no engine and no HTTP."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import replace
from typing import Any

from contracts.errors import BadInput
from flows.workloads.base import CellPlan, PlanContext

# name in a campaign file -> module of this package, whose class `Plan` satisfies flows.workloads.base.Workload
NAMES = (
    "sweep",
    "fresh_document",
    "conversation_ramp",
    "chat_quality",
    "probes",
    "soak",
    "cold_start",
    "interference",
    "cache_reuse",
    "kv_offload",
    "goodput_search",
    "graded_load",
)


def get(name: str) -> Any:
    """The workload registered as `name` (flows.workloads.base.Workload). Raises BadInput for an unknown one."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        raise BadInput(
            f"no workload is called {name!r}",
            required=f"one of {', '.join(NAMES)}",
            next_step=f"did you mean {near[0]}?" if near else None,
        )
    workload: Any = importlib.import_module(f"flows.workloads.{name}").Plan()
    return workload


def is_lifecycle(name: str) -> bool:
    """Whether the flow itself restarts the recipe for this workload (flows.workloads.cold_start)."""
    return bool(getattr(get(name), "is_lifecycle", False))


def plan_cells(entry: str, workload: str, params: Any, context: PlanContext) -> list[CellPlan]:
    """Every cell of a campaign's entry, named and varied by the entry's name where it is not the workload's own.

    For an adaptive workload these are the cells that are known before anything ran (see `next_cell`).
    """
    own = replace(context, entry=entry)
    return [named(entry, plan) for plan in get(workload).cells(params, own)]


def named(entry: str, plan: CellPlan) -> CellPlan:
    """`plan` with the entry's name in its variant, so that two entries of one workload never share a key."""
    if entry != plan.workload:
        plan.variant = f"{entry}/{plan.variant}" if plan.variant else entry
    return plan
