"""goodput_search: the highest request rate at which enough requests meet a stated TTFT and TPOT objective.

Adaptive: the rate doubles from `start_rps` until a cell misses, then the gap is halved until it is within
`precision_pct`. Goodput counts a request only when it met every objective; one that failed met none.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from contracts.records import Grade, Request
from flows.load.plan import Shape
from flows.recipe import Strict
from flows.workloads import prompts, prose, sweep
from flows.workloads.base import CellOutcome, CellPlan, PlanContext
from flows.workloads.lengths import FixedLength, Lengths


class Parameters(Strict):
    """ttft_ms, tpot_ms: a request's objectives, from its planned sending. attainment_pct: requests that must meet both.

    requests: per cell. start_rps, max_rps: where the search begins and where it ends if nothing misses; min_rps: where it
    ends if nothing meets, an eighth of the start unless given. max_cells bounds the search, whatever it has found.
    """

    ttft_ms: float = Field(gt=0)
    tpot_ms: float = Field(gt=0)
    attainment_pct: float = Field(default=90.0, gt=0, le=100)
    start_rps: float = Field(default=1.0, gt=0)
    max_rps: float = Field(default=1024.0, gt=0)
    min_rps: float | None = Field(default=None, gt=0)
    precision_pct: float = Field(default=10.0, gt=0)
    requests: int = Field(default=100, ge=10)
    max_cells: int = Field(default=12, ge=1)
    prompt_tokens: Lengths = FixedLength(tokens=1024)
    output_tokens: Lengths = FixedLength(tokens=128)
    max_in_flight: int = Field(default=1024, gt=0)
    warmup_requests: int = Field(default=8, ge=0)
    filler: prose.Filler = "broad"
    first_token_timeout_s: float = Field(default=120.0, gt=0)
    window_timeout_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Parameters:
        if self.max_rps < self.start_rps:
            raise ValueError(f"max_rps {self.max_rps:g} is below start_rps {self.start_rps:g}")
        return self


class Plan:
    """Cells: one per rate tried, in the order of the search."""

    name: ClassVar[str] = "goodput_search"
    Params: ClassVar[type[Strict]] = Parameters
    is_adaptive: ClassVar[bool] = True

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        """The first cell; the others depend on it (`next_cell`)."""
        return [self._cell(params, context, params.start_rps, 0)]

    def next_cell(
        self, params: Parameters, context: PlanContext, outcomes: list[CellOutcome]
    ) -> CellPlan | None:
        rate = next_rate(params, [(_rate_of(outcome.plan), meets(params, outcome)) for outcome in outcomes])
        return None if rate is None else self._cell(params, context, rate, len(outcomes))

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        return []

    def _cell(self, params: Parameters, context: PlanContext, rate: float, step: int) -> CellPlan:
        cell = prompts.cell_id(context, self.name, f"n{step:02d}", f"q{rate:g}")
        load = sweep.Parameters(
            rates_rps=[rate],
            prompt_tokens=params.prompt_tokens,
            output_tokens=params.output_tokens,
            warmup_per_stream=1,
            filler=params.filler,
            first_token_timeout_s=params.first_token_timeout_s,
            window_timeout_s=params.window_timeout_s,
        )
        shape = Shape(
            kind="poisson",
            rate_rps=rate,
            max_in_flight=params.max_in_flight,
            seed=prompts.number_of(context, cell),
        )
        plan = sweep.cell_plan(
            self.name,
            load,
            context,
            cell,
            shape,
            params.max_in_flight,
            0,
            params.requests,
            warmup=params.warmup_requests,
        )
        plan.variant = f"{rate:g} rps"
        plan.objectives = {"ttft_ms": params.ttft_ms, "tpot_ms": params.tpot_ms}
        plan.params |= {"rate_rps": rate, "attainment_pct": params.attainment_pct}
        return plan


def next_rate(params: Parameters, tried: list[tuple[float, bool]]) -> float | None:
    """The next rate to try, from (rate, met) of those before; None when the search is over."""
    if not tried:
        return params.start_rps
    if len(tried) >= params.max_cells:
        return None
    met = [rate for rate, is_met in tried if is_met]
    missed = [rate for rate, is_met in tried if not is_met]
    if not missed:
        fastest = max(met)
        return None if fastest >= params.max_rps else min(2 * fastest, params.max_rps)
    slowest = min(missed)
    below = [rate for rate in met if rate < slowest]
    if not below:
        # Nothing met yet: go down; every halving takes twice as long to measure.
        lowest = params.min_rps if params.min_rps is not None else params.start_rps / 8
        return slowest / 2 if slowest / 2 >= lowest else None
    best = max(below)
    return None if slowest <= best * (1 + params.precision_pct / 100) else round((best + slowest) / 2, 6)


def best_rate(params: Parameters, outcomes: list[CellOutcome]) -> float | None:
    """The highest rate that met the objectives below the lowest that missed; None when none did."""
    judged = [(_rate_of(outcome.plan), meets(params, outcome)) for outcome in outcomes]
    missed = [rate for rate, is_met in judged if not is_met]
    met = [rate for rate, is_met in judged if is_met and (not missed or rate < min(missed))]
    return max(met) if met else None


def meets(params: Parameters, outcome: CellOutcome) -> bool:
    """Whether enough of a cell's planned requests met both objectives."""
    good = sum(is_good(params, record) for record in outcome.records if record.phase == "timed")
    return good >= outcome.plan.planned_requests * params.attainment_pct / 100


def is_good(params: Parameters, record: Request) -> bool:
    """TTFT from the planned sending, TPOT = (last - first) / (tokens - 1); a request of one token has no TPOT."""
    if record.outcome != "ok" or record.first_token_ns is None or record.last_token_ns is None:
        return False
    start = record.planned_ns if record.planned_ns is not None else record.sent_ns
    if start is None or (record.first_token_ns - start) / 1e6 > params.ttft_ms:
        return False
    if record.output_tokens is None:
        return False
    if record.output_tokens < 2:
        return True
    tpot_ms = (record.last_token_ns - record.first_token_ns) / 1e6 / (record.output_tokens - 1)
    return tpot_ms <= params.tpot_ms


def _rate_of(plan: CellPlan) -> float:
    assert plan.shape.rate_rps is not None
    return plan.shape.rate_rps
