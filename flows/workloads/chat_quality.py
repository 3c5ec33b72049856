"""chat_quality: arithmetic word problems of known answers, strict and lenient extraction side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from contracts.errors import BadInput
from contracts.records import Grade, Request
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.recipe import Strict
from flows.workloads import grading, prompts, scoring, word_problems
from flows.workloads.base import CellPlan, PlanContext

_ASK = "Solve the problem step by step. End with a line that has #### and then the answer as a number only."


class Parameters(Strict):
    """problems: how many. gsm8k_file: a user's own JSONL with `question` and `answer` (#### and the number).

    A user's problems never reach raw: their texts and the answers to them are kept out of the records, and they are
    graded in the flow's own process. answer_tokens: too small a limit cuts the working off and shows as a low score.
    """

    problems: int = Field(default=200, ge=1)
    gsm8k_file: str | None = None
    concurrency: int = Field(default=8, ge=1)
    repeats: int = Field(default=1, ge=1)
    answer_tokens: int = Field(default=512, gt=0)
    warmup_requests: int = Field(default=2, ge=0)
    first_token_timeout_s: float = Field(default=600.0, gt=0)
    window_timeout_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _known_file(self) -> Parameters:
        if self.gsm8k_file is not None and not self.gsm8k_file.endswith((".jsonl", ".json")):
            raise ValueError(f"gsm8k_file {self.gsm8k_file!r} is not a .jsonl file")
        return self


@dataclass(frozen=True)
class Item:
    """One problem to ask, and its answer."""

    question: str
    gold: str
    form: str


class Plan:
    """Cells: one per repeat."""

    name: ClassVar[str] = "chat_quality"
    Params: ClassVar[type[Strict]] = Parameters

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        return [self._cell(params, context, repeat) for repeat in range(params.repeats)]

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        """is_correct is the strict reading, is_correct_lenient the lenient one; both are kept."""
        return grade_arithmetic(plan, records)

    def _cell(self, params: Parameters, context: PlanContext, repeat: int) -> CellPlan:
        cell = prompts.cell_id(context, self.name, f"r{repeat}")
        is_own = params.gsm8k_file is not None
        items = (
            read_gsm8k(Path(params.gsm8k_file), params.problems)
            if params.gsm8k_file is not None
            else _generated(context, params.problems)
        )
        expected: dict[str, dict[str, Any]] = {
            prompts.request_id(context, cell, index): {"gold": item.gold, "is_private": is_own}
            for index, item in enumerate(items)
        }

        def requests() -> Iterator[PlannedRequest]:
            warm = word_problems.problems(prompts.seeded(context, cell, "warmup"), params.warmup_requests)
            for index, problem in enumerate(warm):
                yield _request(params, context, cell, index, problem.question, "warmup")
            for index, item in enumerate(items):
                yield _request(params, context, cell, index, item.question, "timed")

        return CellPlan(
            total_prompt_tokens=sum(context.tokens.count(f"{_ASK} {item.question}") for item in items),
            total_output_tokens=(len(items) + params.warmup_requests) * params.answer_tokens,
            cell_id=cell,
            workload=self.name,
            concurrency=params.concurrency,
            shape=Shape(kind="closed", concurrency=params.concurrency, seed=context.seed),
            requests=requests,
            seed=context.seed,
            variant="own problems" if is_own else "",
            repeat=repeat,
            planned_requests=len(items),
            warmup_requests=params.warmup_requests,
            cache_budget_min=0.0,
            cache_budget_max=None,
            deadlines=Deadlines(first_token_s=params.first_token_timeout_s, window_s=params.window_timeout_s),
            keep_text=not is_own,
            params={
                "problems": len(items),
                "answer_tokens": params.answer_tokens,
                "forms": len({item.form for item in items}),
                "is_user_file": is_own,
            },
            expected=expected,
        )


def grade_arithmetic(plan: CellPlan, records: list[Request]) -> list[Grade]:
    """One grade per timed request; a user's own problem gets a grade without its text or its answer."""
    grades = []
    for record in records:
        expected = plan.expected.get(record.request_id)
        if record.phase != "timed" or expected is None:
            continue
        is_private = bool(expected.get("is_private"))
        grade = grading.ungraded(plan, record, scoring.GRADER, None if is_private else expected["gold"])
        if record.outcome == "ok" and record.output_text is None and record.output_tokens:
            grade.why = "not graded: the answer's text was not handed to the grader"
        elif record.outcome == "ok":
            marks = scoring.mark(expected["gold"], record.output_text, record.reasoning_text)
            grade.is_correct, grade.is_correct_lenient = marks.is_strict, marks.is_lenient
            grade.found = None if is_private else marks.lenient_found
            grade.why = marks.why
            if record.finish_reason == "length":
                grade.why += "; cut at its token limit"
        grades.append(grade)
    return grades


def read_gsm8k(path: Path, limit: int | None = None) -> list[Item]:
    """Problems of a gsm8k-style JSONL file. Raises BadInput with file and line for one without question or answer."""
    if not path.exists():
        raise BadInput("the problem file does not exist", evidence=str(path))
    items: list[Item] = []
    with path.open(encoding="utf-8") as stream:
        for line, text in enumerate(stream, start=1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except json.JSONDecodeError as error:
                raise BadInput(f"not JSON: {error}", evidence=f"{path}:{line}") from None
            question, answer = (
                row.get(key) if isinstance(row, dict) else None for key in ("question", "answer")
            )
            gold = scoring.gold_answer(str(answer)) if answer is not None else None
            if not isinstance(question, str) or not question.strip() or gold is None:
                raise BadInput(
                    "a problem needs a question and an answer that ends in #### and a number",
                    measured=f"keys {', '.join(sorted(row)) if isinstance(row, dict) else type(row).__name__}",
                    evidence=f"{path}:{line}",
                )
            items.append(Item(question, gold, "user"))
            if limit is not None and len(items) == limit:
                break
    if not items:
        raise BadInput("the problem file is empty", evidence=str(path))
    return items


def _generated(context: PlanContext, count: int) -> list[Item]:
    made = word_problems.problems(prompts.seeded(context, "word problems"), count)
    return [Item(problem.question, str(problem.answer), problem.form) for problem in made]


def _request(
    params: Parameters, context: PlanContext, cell: str, index: int, question: str, phase: str
) -> PlannedRequest:
    text = f"{prompts.front_line(context, cell, phase, index)}{_ASK}\n\n{question}"
    body = prompts.chat_body(context, [{"role": "user", "content": text}], params.answer_tokens)
    return prompts.planned(context, cell, index, body, phase=phase)
