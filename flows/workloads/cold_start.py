"""cold_start: how long a recipe takes from nothing to its first token, cold and warm.

A lifecycle workload: the flow, not the load, is what is measured. For each `Start` of `starts(params)` the flow

    1. stops the server of this recipe and, where `clears_compile_cache`, empties the recipe's compile cache,
       and where `drops_page_cache`, drops the weights from the page cache if it may (else the run's
       `bring_up.is_warm_start` stays null, and no cold start is claimed);
    2. brings the recipe up again as a run of its own (`bring_up.phases_s`, `ready_s`, `load_s` are the measurement);
    3. runs `cells(params, context)` on it: one request, alone, the first that this server answers.

The last start's server is left up. A flow that cannot restart a recipe (engine `external`) leaves this entry out and
says so. Everything else (which phase took how long, cold against warm) is read from the runs' bring_up records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field, model_validator

from contracts.records import Grade, Request
from flows.load.plan import Shape
from flows.recipe import Strict
from flows.workloads import prompts, prose, sweep
from flows.workloads.base import CellPlan, PlanContext
from flows.workloads.lengths import FixedLength


class Parameters(Strict):
    """cold, warm: starts of each kind, cold ones first. prompt_tokens, output_tokens: of the first request."""

    cold: int = Field(default=1, ge=0)
    warm: int = Field(default=1, ge=0)
    clears_compile_cache: bool = True
    drops_page_cache: bool = True
    prompt_tokens: int = Field(default=128, ge=32)
    output_tokens: int = Field(default=16, ge=1)
    filler: prose.Filler = "broad"

    @model_validator(mode="after")
    def _some_start(self) -> Parameters:
        if self.cold + self.warm == 0:
            raise ValueError("cold_start with neither cold nor warm starts measures nothing")
        return self


@dataclass(frozen=True)
class Start:
    """One restart that the flow makes."""

    kind: str
    index: int
    clears_compile_cache: bool
    drops_page_cache: bool

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.index}"


class Plan:
    """Cells: one per start, a single request with no warm-up before it."""

    name: ClassVar[str] = "cold_start"
    Params: ClassVar[type[Strict]] = Parameters
    is_lifecycle: ClassVar[bool] = True

    def starts(self, params: Parameters) -> list[Start]:
        """The restarts in order: the cold ones, then the warm ones."""
        cold = [
            Start("cold", index, params.clears_compile_cache, params.drops_page_cache)
            for index in range(params.cold)
        ]
        return cold + [Start("warm", index, False, False) for index in range(params.warm)]

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        """The first request of one start; every start is a run of its own, so the cell has one name."""
        cell = prompts.cell_id(context, self.name, "first", "r0")
        load = sweep.Parameters(
            concurrency=[1],
            prompt_tokens=FixedLength(tokens=params.prompt_tokens),
            output_tokens=FixedLength(tokens=params.output_tokens),
            warmup_per_stream=0,
            filler=params.filler,
        )
        shape = Shape(kind="closed", concurrency=1, seed=context.seed)
        plan = sweep.cell_plan(self.name, load, context, cell, shape, 1, 0, 1)
        plan.variant = "first request"
        return [plan]

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        return []
