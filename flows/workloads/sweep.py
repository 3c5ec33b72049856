"""sweep: the same work at rising concurrency, or rising request rate, in repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from contracts.records import Grade, Request
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.recipe import Strict
from flows.workloads import measure, prompts, prose
from flows.workloads.base import CellPlan, PlanContext
from flows.workloads.lengths import FixedLength, Lengths, trace_column

_ASK = "\n\nContinue this text in the same manner."


class Parameters(Strict):
    """concurrency: closed loops, one cell each. rates_rps: open loops instead, with `arrivals`.

    requests_per_stream: timed requests for each unit of concurrency. requests: timed requests of an open-loop cell.
    warmup_per_stream: requests before the window for each unit of concurrency, 2 as in the source campaign.
    is_fixed_output: the engine is asked to go on past its end token, so that every answer has its asked length.
    is_length_verified: every prompt is counted as a whole; false sums its words, for plans of very many requests.
    arrival_file, arrival_column: with `arrivals: trace`, seconds from the window's opening.
    """

    concurrency: list[Annotated[int, Field(gt=0, le=4096)]] = Field(default=[], max_length=64)
    rates_rps: list[Annotated[float, Field(gt=0)]] = Field(default=[])
    arrivals: Literal["poisson", "constant", "gamma", "trace"] = "poisson"
    burstiness: float = Field(default=1.0, gt=0)
    arrival_file: str | None = None
    arrival_column: str = "arrival_s"
    max_in_flight: int = Field(default=1024, gt=0)
    repeats: int = Field(default=1, ge=1)
    requests_per_stream: int = Field(default=8, ge=1)
    requests: int = Field(default=200, ge=1)
    prompt_tokens: Lengths = FixedLength(tokens=1024)
    output_tokens: Lengths = FixedLength(tokens=256)
    warmup_per_stream: int = Field(default=2, ge=0)
    is_fixed_output: bool = True
    is_length_verified: bool = True
    ramp_up_s: float = Field(default=0.0, ge=0)
    filler: prose.Filler = "broad"
    first_token_timeout_s: float = Field(default=600.0, gt=0)
    window_timeout_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_kind_of_loop(self) -> Parameters:
        if self.arrivals == "trace" and self.arrival_file is None:
            raise ValueError("arrivals: trace needs arrival_file")
        kinds = bool(self.concurrency) + bool(self.rates_rps) + (self.arrival_file is not None)
        if kinds != 1:
            raise ValueError(
                "give exactly one of concurrency, rates_rps, or arrivals: trace with arrival_file; "
                f"{kinds} were given"
            )
        if len(set(self.concurrency)) != len(self.concurrency):
            raise ValueError("concurrency names a value twice; use repeats")
        return self


Body = Callable[[str, int, int, str], PlannedRequest]


class Plan:
    """Cells: concurrency (or rate) x repeat, repeats in the outer loop, so that drift does not favour one value."""

    name: ClassVar[str] = "sweep"
    Params: ClassVar[type[Strict]] = Parameters

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        cells = []
        for repeat in range(params.repeats):
            cells += [self._closed(params, context, streams, repeat) for streams in params.concurrency]
            cells += [self._open(params, context, rate, repeat) for rate in params.rates_rps]
            if params.arrivals == "trace":
                cells.append(self._open(params, context, None, repeat))
        return cells

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        """A sweep asks for no answer: there is nothing to grade (graded_load does)."""
        return []

    def _closed(self, params: Parameters, context: PlanContext, streams: int, repeat: int) -> CellPlan:
        cell = prompts.cell_id(context, self.name, f"c{streams:04d}", f"r{repeat}")
        shape = Shape(kind="closed", concurrency=streams, ramp_up_s=params.ramp_up_s, seed=context.seed)
        return cell_plan(
            self.name, params, context, cell, shape, streams, repeat, streams * params.requests_per_stream
        )

    def _open(self, params: Parameters, context: PlanContext, rate: float | None, repeat: int) -> CellPlan:
        label = "trace" if rate is None else f"q{rate:g}".replace("+", "")
        cell = prompts.cell_id(context, self.name, label, f"r{repeat}")
        shape = Shape(
            kind=params.arrivals,
            rate_rps=rate,
            burstiness=params.burstiness,
            max_in_flight=params.max_in_flight,
            seed=prompts.number_of(context, cell),
        )
        offsets = None
        count = params.requests
        if params.arrivals == "trace":
            assert params.arrival_file is not None
            offsets = trace_column(params.arrival_file, params.arrival_column)
            count = len(offsets)
        plan = cell_plan(
            self.name, params, context, cell, shape, params.max_in_flight, repeat, count, offsets, warmup=8
        )
        plan.variant = label
        return plan


def cell_plan(
    workload: str,
    params: Parameters,
    context: PlanContext,
    cell: str,
    shape: Shape,
    concurrency: int,
    repeat: int,
    count: int,
    offsets_s: list[float] | None = None,
    warmup: int | None = None,
) -> CellPlan:
    """One cell of plain load: prompts of their lengths, each opened by a nonce of its own."""
    warmups = params.warmup_per_stream * (concurrency if warmup is None else warmup)
    fixed_in, fixed_out = params.prompt_tokens.fixed_tokens, params.output_tokens.fixed_tokens

    def requests() -> Iterator[PlannedRequest]:
        ruler = measure.ruler_of(context.tokens)
        for phase, total in (("warmup", warmups), ("timed", count)):
            lengths = prompts.seeded(context, cell, phase, "lengths")
            for index in range(total):
                ask_in = params.prompt_tokens.draw(lengths, index)
                ask_out = params.output_tokens.draw(lengths, index)
                source = prose.sentences(prompts.seeded(context, cell, phase, index), params.filler)
                extra = prompts.overhead(context)
                built = measure.fit(
                    ruler,
                    ask_in - extra,
                    source,
                    front=prompts.front_line(context, cell, phase, index),
                    back=_ASK,
                    is_verified=params.is_length_verified,
                )
                body = prompts.chat_body(
                    context,
                    [{"role": "user", "content": built.text}],
                    ask_out,
                    is_fixed_length=params.is_fixed_output,
                )
                offset = offsets_s[index] if offsets_s is not None and phase == "timed" else None
                yield prompts.planned(
                    context,
                    cell,
                    index,
                    body,
                    phase=phase,
                    planned_offset_ns=None if offset is None else round(offset * 1e9),
                    asked_prompt_tokens=built.tokens + extra,
                    asked_output_tokens=ask_out,
                    expected_cached_tokens=0,
                )

    rate = shape.rate_rps
    return CellPlan(
        total_prompt_tokens=round((count + warmups) * params.prompt_tokens.mean_tokens),
        total_output_tokens=round((count + warmups) * params.output_tokens.mean_tokens),
        planned_s=max(offsets_s) if offsets_s else count / rate if rate else None,
        cell_id=cell,
        workload=workload,
        concurrency=concurrency,
        shape=shape,
        requests=requests,
        seed=context.seed,
        context_tokens=fixed_in,
        repeat=repeat,
        asked_prompt_tokens=fixed_in,
        asked_output_tokens=fixed_out,
        is_fixed_length=params.is_fixed_output,
        planned_requests=count,
        warmup_requests=warmups,
        planned_finish_reason="length" if params.is_fixed_output else None,
        cache_budget_min=0.0,
        cache_budget_max=prompts.fresh_budget(context, params.prompt_tokens.mean_tokens),
        deadlines=Deadlines(first_token_s=params.first_token_timeout_s, window_s=params.window_timeout_s),
        params={
            "prompt_length_source": prompts.length_source(context)
            + ("" if params.is_length_verified else ", summed from words"),
            "prompt_tokens": _plain(params.prompt_tokens),
            "output_tokens": _plain(params.output_tokens),
            "filler": params.filler,
        },
    )


def _plain(lengths: Any) -> Any:
    return lengths.tokens if isinstance(lengths, FixedLength) else lengths.model_dump(mode="json")
