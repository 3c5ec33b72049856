"""graded_load: a sweep whose timed requests each carry a small needle or a JSON answer, beside the same load without.

So quality is measured on the very requests that are timed, and what that costs in throughput is the difference of the
two cells of one concurrency: variants `needle` (or `json`) and `plain`, of equal prompt and answer lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from contracts.records import Grade, Request
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.recipe import Strict
from flows.workloads import grading, measure, needle, probes, prompts, prose
from flows.workloads.base import CellPlan, PlanContext

_JSON_ASK = "\n\nGive the secret code as JSON with the one key secret_code, whose value is a string."
_PLAIN_ASK = "\n\nContinue this text in the same manner."
_JSON_SCHEMA = {
    "type": "object",
    "properties": {"secret_code": {"type": "string", "maxLength": 12}},
    "required": ["secret_code"],
    "additionalProperties": False,
}


class Parameters(Strict):
    """carries: what every timed request is asked for. has_plain: the same load without, for the cost.

    With `needle`, answers have their asked length (the engine goes on past its end token) and the first code said is
    graded; with `json`, an answer ends where its object ends, so its plain cell is timed on answers of its own length.
    """

    concurrency: list[Annotated[int, Field(gt=0, le=4096)]] = Field(min_length=1)
    carries: Literal["needle", "json"] = "needle"
    has_plain: bool = True
    repeats: int = Field(default=1, ge=1)
    requests_per_stream: int = Field(default=8, ge=1)
    warmup_per_stream: int = Field(default=2, ge=0)
    prompt_tokens: int = Field(default=1024, ge=80)
    output_tokens: int = Field(default=128, ge=8)
    depths_pct: list[Annotated[float, Field(ge=0, le=100)]] = Field(default=[10.0, 50.0, 90.0], min_length=1)
    filler: prose.Filler = "broad"
    first_token_timeout_s: float = Field(default=600.0, gt=0)
    window_timeout_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _no_value_twice(self) -> Parameters:
        if len(set(self.concurrency)) != len(self.concurrency):
            raise ValueError("concurrency names a value twice; use repeats")
        return self


class Plan:
    """Cells: concurrency x (graded, plain) x repeat."""

    name: ClassVar[str] = "graded_load"
    Params: ClassVar[type[Strict]] = Parameters

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        variants = [params.carries, "plain"] if params.has_plain else [params.carries]
        return [
            self._cell(params, context, streams, variant, repeat)
            for repeat in range(params.repeats)
            for streams in params.concurrency
            for variant in variants
        ]

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        if plan.params.get("carries") == "json":
            return _grade_json(plan, records)
        return grading.grade_needles(plan, records, needle.grade_opening)

    def _cell(
        self, params: Parameters, context: PlanContext, streams: int, variant: str, repeat: int
    ) -> CellPlan:
        cell = prompts.cell_id(context, self.name, variant, f"c{streams:04d}", f"r{repeat}")
        count, warmups = streams * params.requests_per_stream, streams * params.warmup_per_stream
        is_graded = variant != "plain"
        is_fixed = variant != "json"
        expected: dict[str, dict[str, Any]] = {
            prompts.request_id(context, cell, index): {
                "code": needle.code(prompts.seeded(context, cell, "code", index)),
                "depth_pct": params.depths_pct[index % len(params.depths_pct)],
            }
            for index in range(count)
            if is_graded
        }

        def requests() -> Iterator[PlannedRequest]:
            for phase, total in (("warmup", warmups), ("timed", count)):
                for index in range(total):
                    yield _request(params, context, cell, phase, index, variant, expected)

        return CellPlan(
            total_prompt_tokens=(count + warmups) * params.prompt_tokens,
            total_output_tokens=(count + warmups) * params.output_tokens,
            cell_id=cell,
            workload=self.name,
            concurrency=streams,
            shape=Shape(kind="closed", concurrency=streams, seed=context.seed),
            requests=requests,
            seed=context.seed,
            variant=variant,
            context_tokens=params.prompt_tokens,
            repeat=repeat,
            asked_prompt_tokens=params.prompt_tokens,
            asked_output_tokens=params.output_tokens if is_fixed else None,
            is_fixed_length=is_fixed,
            planned_requests=count,
            warmup_requests=warmups,
            planned_finish_reason="length" if is_fixed else None,
            cache_budget_min=0.0,
            cache_budget_max=prompts.fresh_budget(context, params.prompt_tokens),
            needle_depths_pct=sorted(set(params.depths_pct)) if is_graded else None,
            deadlines=Deadlines(first_token_s=params.first_token_timeout_s, window_s=params.window_timeout_s),
            params={
                "carries": variant,
                "prompt_length_source": prompts.length_source(context),
                "filler": params.filler,
            },
            expected=expected,
        )


def _request(
    params: Parameters,
    context: PlanContext,
    cell: str,
    phase: str,
    index: int,
    variant: str,
    expected: dict[str, dict[str, Any]],
) -> PlannedRequest:
    extra = prompts.overhead(context)
    wanted = expected.get(prompts.request_id(context, cell, index)) if phase == "timed" else None
    plants = [(wanted["depth_pct"], needle.sentence(wanted["code"]))] if wanted else []
    if variant != "plain" and not wanted:
        # A warm-up has the same shape as what it warms up for, with a code that nobody grades.
        plants = [(50.0, needle.sentence(needle.code(prompts.seeded(context, cell, "warmup code", index))))]
    asks = {"needle": needle.QUESTION, "json": _JSON_ASK, "plain": _PLAIN_ASK}
    built = measure.fit(
        measure.ruler_of(context.tokens),
        params.prompt_tokens - extra,
        prose.sentences(prompts.seeded(context, cell, phase, index), params.filler),
        front=prompts.front_line(context, cell, phase, index),
        back=asks[variant],
        plants=plants,
    )
    is_fixed = variant != "json"
    fields: dict[str, Any] = {}
    if not is_fixed:
        fields["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "secret", "strict": True, "schema": _JSON_SCHEMA},
        }
    body = prompts.chat_body(
        context,
        [{"role": "user", "content": built.text}],
        params.output_tokens,
        is_fixed_length=is_fixed,
        **fields,
    )
    return prompts.planned(
        context,
        cell,
        index,
        body,
        phase=phase,
        asked_prompt_tokens=built.tokens + extra,
        asked_output_tokens=params.output_tokens if is_fixed else None,
        expected_cached_tokens=0,
    )


def _grade_json(plan: CellPlan, records: list[Request]) -> list[Grade]:
    """Right when the answer is valid by its schema and its value is the planted code; lenient: valid, other value."""
    grades = []
    for record in records:
        expected = plan.expected.get(record.request_id)
        if record.phase != "timed" or expected is None:
            continue
        grade = grading.ungraded(plan, record, "json_needle_v1", expected["code"])
        if record.outcome == "ok":
            is_valid, why = probes.check({"kind": "json", "schema": _JSON_SCHEMA}, record)
            verdict = needle.grade(expected["code"], record.output_text if is_valid else "")
            grade.is_correct, grade.is_correct_lenient = is_valid and verdict.is_correct, is_valid
            grade.found, grade.why = verdict.found, verdict.why if is_valid else why
        grade.depth_pct = expected["depth_pct"]
        grades.append(grade)
    return grades
