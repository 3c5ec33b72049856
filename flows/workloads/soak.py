"""soak: one load for hours, with probes before, beside and after it.

The cell is one long window; its minutes (throughput, TTFT, errors, server memory) and their drift are computed in the
warehouse from the requests and counters of that cell. Its verdict is `handoff` only when every probe before and after
was good: one HTTP 500 after two hours of clean load decides it.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from contracts.records import Grade, Request
from flows.load.plan import Shape
from flows.recipe import Strict
from flows.workloads import prompts, prose, sweep
from flows.workloads.base import CellPlan, PlanContext
from flows.workloads.lengths import FixedLength, Lengths


class Parameters(Strict):
    """concurrency, duration_s: 128 and two hours in the source campaign. No request starts after duration_s.

    max_requests: how many requests are prepared; more than the server can answer in that time, else the load runs out
    early and the window is shorter than asked. window_s: the length of the windows that drift is computed over.
    """

    concurrency: int = Field(gt=0, le=4096)
    duration_s: float = Field(gt=0)
    max_requests: int = Field(ge=1)
    window_s: float = Field(default=60.0, gt=0)
    prompt_tokens: Lengths = FixedLength(tokens=256)
    output_tokens: Lengths = FixedLength(tokens=256)
    warmup_per_stream: int = Field(default=2, ge=0)
    is_fixed_output: bool = True
    repeats: int = Field(default=1, ge=1)
    filler: prose.Filler = "broad"
    first_token_timeout_s: float = Field(default=600.0, gt=0)

    @model_validator(mode="after")
    def _long_enough(self) -> Parameters:
        if self.duration_s < self.window_s:
            raise ValueError(f"duration_s {self.duration_s:g} is below one window of {self.window_s:g} s")
        if self.max_requests < self.concurrency:
            raise ValueError(f"max_requests {self.max_requests} is below concurrency {self.concurrency}")
        return self


class Plan:
    """Cells: one per repeat."""

    name: ClassVar[str] = "soak"
    Params: ClassVar[type[Strict]] = Parameters

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        return [self._cell(params, context, repeat) for repeat in range(params.repeats)]

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        """A soak's load asks for no answer; its probes do."""
        return []

    def _cell(self, params: Parameters, context: PlanContext, repeat: int) -> CellPlan:
        cell = prompts.cell_id(context, self.name, f"c{params.concurrency:04d}", f"r{repeat}")
        load = sweep.Parameters(
            concurrency=[params.concurrency],
            prompt_tokens=params.prompt_tokens,
            output_tokens=params.output_tokens,
            warmup_per_stream=params.warmup_per_stream,
            is_fixed_output=params.is_fixed_output,
            is_length_verified=params.max_requests <= 5000,
            filler=params.filler,
            first_token_timeout_s=params.first_token_timeout_s,
        )
        shape = Shape(
            kind="closed",
            concurrency=params.concurrency,
            stop_after_s=params.duration_s,
            seed=context.seed,
        )
        plan = sweep.cell_plan(
            self.name, load, context, cell, shape, params.concurrency, repeat, params.max_requests
        )
        plan.probe_during = True
        plan.planned_s = params.duration_s
        plan.params |= {"duration_s": params.duration_s, "window_s": params.window_s}
        return plan
