"""fresh_document: a document never sent before, a fact planted in it at a depth, and whether the fact is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from contracts.records import Grade, Request
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.recipe import Strict
from flows.workloads import grading, measure, needle, prompts, prose
from flows.workloads.base import CellPlan, PlanContext


class Parameters(Strict):
    """context_tokens: whole prompt lengths, chat template included, one cell each. depths_pct: where facts lie.

    needles_per_depth: documents per depth, each fresh and with a code of its own; ten or more give an interval.
    concurrency: documents in flight at once, 1 as in the source campaign.
    """

    context_tokens: list[Annotated[int, Field(ge=100)]] = Field(min_length=1)
    depths_pct: list[Annotated[float, Field(ge=0, le=100)]] = Field(default=[10.0, 50.0, 90.0], min_length=1)
    needles_per_depth: int = Field(default=1, ge=1)
    concurrency: int = Field(default=1, ge=1)
    repeats: int = Field(default=1, ge=1)
    answer_tokens: int = Field(default=32, gt=0)
    warmup_requests: int = Field(default=1, ge=0)
    filler: prose.Filler = "broad"
    first_token_timeout_s: float = Field(default=3600.0, gt=0)
    window_timeout_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _no_value_twice(self) -> Parameters:
        for name in ("context_tokens", "depths_pct"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name} names a value twice; use needles_per_depth or repeats")
        return self


# A warm-up document needs to touch every kernel once, not the whole context.
_WARMUP_TOKENS = 512


class Plan:
    """Cells: context x repeat; every depth and needle of a context is in one cell."""

    name: ClassVar[str] = "fresh_document"
    Params: ClassVar[type[Strict]] = Parameters

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        return [
            self._cell(params, context, tokens, repeat)
            for repeat in range(params.repeats)
            for tokens in params.context_tokens
        ]

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        return grading.grade_needles(plan, records)

    def _cell(self, params: Parameters, context: PlanContext, tokens: int, repeat: int) -> CellPlan:
        cell = prompts.cell_id(context, self.name, f"{tokens:05d}", f"r{repeat}")
        depths = [depth for depth in params.depths_pct for _ in range(params.needles_per_depth)]
        expected = {
            prompts.request_id(context, cell, index): {
                "code": needle.code(prompts.seeded(context, cell, "code", index)),
                "depth_pct": depth,
            }
            for index, depth in enumerate(depths)
        }

        def requests() -> Iterator[PlannedRequest]:
            for index in range(params.warmup_requests):
                code = needle.code(prompts.seeded(context, cell, "warmup code", index))
                yield document(
                    params, context, cell, index, "warmup", min(tokens, _WARMUP_TOKENS), 50.0, code
                )
            for index, depth in enumerate(depths):
                code = str(expected[prompts.request_id(context, cell, index)]["code"])
                yield document(params, context, cell, index, "timed", tokens, depth, code)

        return CellPlan(
            total_prompt_tokens=len(depths) * tokens + params.warmup_requests * min(tokens, _WARMUP_TOKENS),
            total_output_tokens=(len(depths) + params.warmup_requests) * params.answer_tokens,
            cell_id=cell,
            workload=self.name,
            concurrency=params.concurrency,
            shape=Shape(kind="closed", concurrency=params.concurrency, seed=context.seed),
            requests=requests,
            seed=context.seed,
            context_tokens=tokens,
            repeat=repeat,
            asked_prompt_tokens=tokens,
            planned_requests=len(depths),
            warmup_requests=params.warmup_requests,
            cache_budget_min=0.0,
            cache_budget_max=prompts.fresh_budget(context, tokens),
            needle_depths_pct=sorted(params.depths_pct),
            deadlines=Deadlines(
                first_token_s=params.first_token_timeout_s,
                total_s=params.first_token_timeout_s + 600.0,
                window_s=params.window_timeout_s,
            ),
            params={
                "prompt_length_source": prompts.length_source(context),
                "needles_per_depth": params.needles_per_depth,
                "filler": params.filler,
            },
            expected=expected,
        )


def document(
    params: Parameters,
    context: PlanContext,
    cell: str,
    index: int,
    phase: str,
    tokens: int,
    depth: float,
    code: str,
) -> PlannedRequest:
    """One fresh document of `tokens` tokens in all, with `code` planted at `depth` percent."""
    extra = prompts.overhead(context)
    built = measure.fit(
        measure.ruler_of(context.tokens),
        tokens - extra,
        prose.sentences(prompts.seeded(context, cell, phase, index), params.filler),
        front=prompts.front_line(context, cell, phase, index),
        back=needle.QUESTION,
        plants=[(depth, needle.sentence(code))],
    )
    return prompts.planned(
        context,
        cell,
        index,
        prompts.chat_body(context, [{"role": "user", "content": built.text}], params.answer_tokens),
        phase=phase,
        asked_prompt_tokens=built.tokens + extra,
        expected_cached_tokens=0,
    )
