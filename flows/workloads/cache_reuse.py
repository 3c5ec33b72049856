"""cache_reuse: what the prefix cache really gives. The same load with rising shares of the prompt already sent.

The shared part is sent once before the window, in the warm-up, and every timed prompt opens with it; at a share of 0
nothing is shared. The first token's time against the share is the answer; the ramp's opposite, where reuse is a side
effect of growth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from contracts.records import Grade, Request
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.recipe import Strict
from flows.workloads import measure, prompts, prose
from flows.workloads.base import CellPlan, PlanContext

_ASK = "\n\nContinue this text in the same manner."
_SLACK = 0.10


class Parameters(Strict):
    """shares_pct: the part of the prompt that is the same in all prompts of a cell, one cell each."""

    shares_pct: list[Annotated[float, Field(ge=0, le=95)]] = Field(default=[0.0, 50.0, 90.0], min_length=1)
    prompt_tokens: int = Field(default=2048, ge=128)
    output_tokens: int = Field(default=32, ge=1)
    concurrency: int = Field(default=1, ge=1)
    requests: int = Field(default=10, ge=1)
    warmup_requests: int = Field(default=2, ge=1)
    repeats: int = Field(default=1, ge=1)
    filler: prose.Filler = "broad"
    first_token_timeout_s: float = Field(default=600.0, gt=0)
    window_timeout_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _no_value_twice(self) -> Parameters:
        if len(set(self.shares_pct)) != len(self.shares_pct):
            raise ValueError("shares_pct names a value twice; use repeats")
        return self


class Plan:
    """Cells: share x repeat."""

    name: ClassVar[str] = "cache_reuse"
    Params: ClassVar[type[Strict]] = Parameters

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        return [
            self._cell(params, context, share, repeat)
            for repeat in range(params.repeats)
            for share in params.shares_pct
        ]

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        return []

    def _cell(self, params: Parameters, context: PlanContext, share_pct: float, repeat: int) -> CellPlan:
        cell = prompts.cell_id(context, self.name, f"s{share_pct:g}", f"r{repeat}")
        share = share_pct / 100
        fresh = prompts.fresh_budget(context, params.prompt_tokens)

        def requests() -> Iterator[PlannedRequest]:
            ruler = measure.ruler_of(context.tokens)
            room = params.prompt_tokens - prompts.overhead(context)
            prefix = (
                measure.fit(
                    ruler,
                    round(room * share),
                    prose.sentences(prompts.seeded(context, cell, "prefix"), params.filler),
                    front=prompts.front_line(context, cell, "prefix"),
                )
                if share
                else measure.Fitted("", 0)
            )
            for phase, total in (("warmup", params.warmup_requests), ("timed", params.requests)):
                for index in range(total):
                    yield _request(params, context, cell, phase, index, prefix, room)

        return CellPlan(
            total_prompt_tokens=(params.requests + params.warmup_requests) * params.prompt_tokens,
            total_output_tokens=(params.requests + params.warmup_requests) * params.output_tokens,
            cell_id=cell,
            workload=self.name,
            concurrency=params.concurrency,
            shape=Shape(kind="closed", concurrency=params.concurrency, seed=context.seed),
            requests=requests,
            seed=context.seed,
            variant=f"{share_pct:g}% shared",
            context_tokens=params.prompt_tokens,
            repeat=repeat,
            asked_prompt_tokens=params.prompt_tokens,
            asked_output_tokens=params.output_tokens,
            is_fixed_length=True,
            planned_requests=params.requests,
            warmup_requests=params.warmup_requests,
            planned_finish_reason="length",
            cache_budget_min=round(max(0.0, share - _SLACK), 4) if share else 0.0,
            cache_budget_max=round(min(1.0, share + fresh), 4),
            declares_sharing=bool(share),
            is_cold_expected=not share,
            deadlines=Deadlines(first_token_s=params.first_token_timeout_s, window_s=params.window_timeout_s),
            params={"share_pct": share_pct, "prompt_length_source": prompts.length_source(context)},
        )


def _request(
    params: Parameters,
    context: PlanContext,
    cell: str,
    phase: str,
    index: int,
    prefix: measure.Fitted,
    room: int,
) -> PlannedRequest:
    own = prompts.front_line(context, cell, phase, index)
    built = measure.fit(
        measure.ruler_of(context.tokens),
        room,
        prose.sentences(prompts.seeded(context, cell, phase, index), params.filler),
        front=f"{prefix.text}\n\n{own}" if prefix.text else own,
        back=_ASK,
    )
    body = prompts.chat_body(
        context, [{"role": "user", "content": built.text}], params.output_tokens, is_fixed_length=True
    )
    return prompts.planned(
        context,
        cell,
        index,
        body,
        phase=phase,
        asked_prompt_tokens=built.tokens + prompts.overhead(context),
        asked_output_tokens=params.output_tokens,
        expected_cached_tokens=prefix.tokens if phase == "timed" else None,
    )
