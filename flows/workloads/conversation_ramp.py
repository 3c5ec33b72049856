"""conversation_ramp: a conversation that grows turn by turn, and whether its first fact survives each turn.

The history holds the document's parts and fixed, neutral acknowledgements, never an answer: the question is asked as
a branch at the end of every turn and is not kept, else a later turn would find the fact in the model's own earlier
reply. So every prompt can be made before the window, and what a turn shares with the one before is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from contracts.records import Grade, Request
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.recipe import Strict
from flows.workloads import grading, measure, needle, prompts, prose
from flows.workloads.base import CellPlan, PlanContext

_ACKNOWLEDGEMENT = "I have read this part. Please go on."
_FIRST_FACT_DEPTH_PCT = 50.0
# A prefix cache holds whole blocks and the template's tail differs: a turn may reuse less than it shares.
_BUDGET_SLACK = 0.10
_BUDGET_EXCESS = 0.02


class Parameters(Strict):
    """turns, start_tokens, end_tokens: ten turns from 32K to 1M in the source campaign; whole prompt lengths.

    users: one cell per value; every user has a conversation of its own. growth: equal steps or equal ratios.
    """

    turns: int = Field(default=10, ge=1)
    start_tokens: int = Field(ge=100)
    end_tokens: int = Field(ge=100)
    growth: Literal["linear", "geometric"] = "linear"
    users: list[int] = Field(default=[1, 2], min_length=1)
    repeats: int = Field(default=1, ge=1)
    answer_tokens: int = Field(default=32, gt=0)
    is_fixed_output: bool = False
    think_time_s: float = Field(default=0.0, ge=0)
    warmup_requests: int = Field(default=1, ge=0)
    filler: prose.Filler = "broad"
    first_token_timeout_s: float = Field(default=3600.0, gt=0)
    window_timeout_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _grows(self) -> Parameters:
        if self.end_tokens < self.start_tokens:
            raise ValueError(f"end_tokens {self.end_tokens} is below start_tokens {self.start_tokens}")
        if any(count < 1 for count in self.users) or len(set(self.users)) != len(self.users):
            raise ValueError("users lists different numbers of users, 1 or more")
        return self

    def turn_tokens(self) -> list[int]:
        """The whole prompt length of each turn."""
        if self.turns == 1:
            return [self.end_tokens]
        steps = [turn / (self.turns - 1) for turn in range(self.turns)]
        if self.growth == "linear":
            return [round(self.start_tokens + (self.end_tokens - self.start_tokens) * step) for step in steps]
        return [round(self.start_tokens * (self.end_tokens / self.start_tokens) ** step) for step in steps]


class Plan:
    """Cells: users x repeat; sessions are the users, turns their requests."""

    name: ClassVar[str] = "conversation_ramp"
    Params: ClassVar[type[Strict]] = Parameters

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        return [
            self._cell(params, context, users, repeat)
            for repeat in range(params.repeats)
            for users in params.users
        ]

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        return grading.grade_needles(plan, records)

    def _cell(self, params: Parameters, context: PlanContext, users: int, repeat: int) -> CellPlan:
        cell = prompts.cell_id(context, self.name, f"u{users}", f"r{repeat}")
        lengths = params.turn_tokens()
        codes = [needle.code(prompts.seeded(context, cell, "code", user)) for user in range(users)]
        expected: dict[str, dict[str, Any]] = {
            prompts.request_id(context, cell, user * params.turns + turn): {"code": codes[user]}
            for user in range(users)
            for turn in range(params.turns)
        }
        tail = measure.ruler_of(context.tokens).whole(needle.QUESTION) + prompts.overhead(context)
        share = _planned_share(lengths, tail)

        def requests() -> Iterator[PlannedRequest]:
            for index in range(params.warmup_requests):
                yield _warmup(params, context, cell, index)
            for user in range(users):
                yield from _conversation(params, context, cell, user, lengths, codes[user])

        return CellPlan(
            total_prompt_tokens=users * sum(lengths) + params.warmup_requests * min(params.start_tokens, 512),
            total_output_tokens=(users * params.turns + params.warmup_requests) * params.answer_tokens,
            cell_id=cell,
            workload=self.name,
            concurrency=users,
            shape=Shape(kind="sessions", concurrency=users, seed=context.seed),
            requests=requests,
            seed=context.seed,
            context_tokens=params.end_tokens,
            repeat=repeat,
            users=users,
            asked_output_tokens=params.answer_tokens if params.is_fixed_output else None,
            is_fixed_length=params.is_fixed_output,
            planned_finish_reason="length" if params.is_fixed_output else None,
            planned_requests=users * params.turns,
            warmup_requests=params.warmup_requests,
            cache_budget_min=round(max(0.0, share - _BUDGET_SLACK), 4),
            cache_budget_max=round(
                min(1.0, share + _BUDGET_EXCESS + prompts.overhead(context) * len(lengths) / sum(lengths)), 4
            ),
            declares_sharing=True,
            is_cold_expected=False,
            deadlines=Deadlines(
                first_token_s=params.first_token_timeout_s,
                total_s=params.first_token_timeout_s + 600.0,
                window_s=params.window_timeout_s,
            ),
            params={
                "prompt_length_source": prompts.length_source(context),
                "turn_tokens": lengths,
                "planned_cache_share": round(share, 4),
                "filler": params.filler,
            },
            expected=expected,
        )


def _planned_share(lengths: list[int], tail: int) -> float:
    """Prompt tokens that turns share with the ones before, as a share of all; `tail`: a turn's own question."""
    return sum(max(0, length - tail) for length in lengths[:-1]) / sum(lengths)


def _warmup(params: Parameters, context: PlanContext, cell: str, index: int) -> PlannedRequest:
    extra = prompts.overhead(context)
    built = measure.fit(
        measure.ruler_of(context.tokens),
        min(params.start_tokens, 512) - extra,
        prose.sentences(prompts.seeded(context, cell, "warmup", index), params.filler),
        front=prompts.front_line(context, cell, "warmup", index),
        back=needle.QUESTION,
    )
    body = prompts.chat_body(context, [{"role": "user", "content": built.text}], params.answer_tokens)
    return prompts.planned(
        context,
        cell,
        index,
        body,
        phase="warmup",
        asked_prompt_tokens=built.tokens + extra,
        expected_cached_tokens=0,
    )


def _conversation(
    params: Parameters, context: PlanContext, cell: str, user: int, lengths: list[int], code: str
) -> Iterator[PlannedRequest]:
    """One user's turns. Each keeps the parts before it, adds one, and asks for the first fact at its end."""
    ruler = measure.ruler_of(context.tokens)
    source = prose.sentences(prompts.seeded(context, cell, "user", user), params.filler)
    template = prompts.overhead(context)
    question = ruler.whole(needle.QUESTION)
    exchange = (context.exchange_overhead_tokens or 0) + ruler.whole(_ACKNOWLEDGEMENT)
    history: list[dict[str, Any]] = []
    kept = 0  # tokens of the history: earlier parts, acknowledgements and what the template adds to them
    for turn, tokens in enumerate(lengths):
        shared = kept - exchange if turn else 0
        is_first = turn == 0
        part = measure.fit(
            ruler,
            max(1, tokens - template - kept - question),
            source,
            front=prompts.front_line(context, cell, "user", user) if is_first else "",
            plants=[(_FIRST_FACT_DEPTH_PCT, needle.sentence(code))] if is_first else (),
        )
        messages = [*history, {"role": "user", "content": part.text + needle.QUESTION}]
        body = prompts.chat_body(
            context, messages, params.answer_tokens, is_fixed_length=params.is_fixed_output
        )
        yield prompts.planned(
            context,
            cell,
            user * params.turns + turn,
            body,
            session_id=f"{cell}.u{user}",
            turn=turn,
            user=user,
            think_time_s=params.think_time_s if turn else 0.0,
            asked_prompt_tokens=template + kept + part.tokens + question,
            asked_output_tokens=params.answer_tokens if params.is_fixed_output else None,
            expected_cached_tokens=shared,
        )
        history += [
            {"role": "user", "content": part.text},
            {"role": "assistant", "content": _ACKNOWLEDGEMENT},
        ]
        kept += part.tokens + exchange
