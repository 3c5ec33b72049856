"""kv_offload: users x context until the KV pool is full, and what happens then.

Every user has a long document. In the first round all are sent; in each later round every user asks again, in the
same order, so that a user comes back after everybody else. While the pool holds all users, a later round is answered
from cache; when it does not, documents are recomputed, fetched from a slower tier, or lost, which shows in cached
tokens, first-token time, preemptions and in whether the planted fact is still found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from contracts.records import Grade, Request
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.recipe import Strict
from flows.workloads import grading, measure, needle, prompts, prose
from flows.workloads.base import CellPlan, PlanContext


class Parameters(Strict):
    """users: one cell each; users x context_tokens should pass the pool's size. rounds: times that each user asks.

    concurrency: requests in flight at once, whatever the number of users.
    """

    users: list[Annotated[int, Field(ge=1)]] = Field(default=[1, 2, 4, 8], min_length=1)
    context_tokens: int = Field(ge=128)
    rounds: int = Field(default=2, ge=2)
    concurrency: int = Field(default=1, ge=1)
    answer_tokens: int = Field(default=32, gt=0)
    repeats: int = Field(default=1, ge=1)
    warmup_requests: int = Field(default=1, ge=0)
    filler: prose.Filler = "broad"
    first_token_timeout_s: float = Field(default=3600.0, gt=0)
    window_timeout_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _no_value_twice(self) -> Parameters:
        if len(set(self.users)) != len(self.users):
            raise ValueError("users names a value twice; use repeats")
        return self


class Plan:
    """Cells: users x repeat, fewest users first, so that the pool fills from one cell to the next."""

    name: ClassVar[str] = "kv_offload"
    Params: ClassVar[type[Strict]] = Parameters

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        return [
            self._cell(params, context, users, repeat)
            for repeat in range(params.repeats)
            for users in sorted(params.users)
        ]

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        return grading.grade_needles(plan, records)

    def _cell(self, params: Parameters, context: PlanContext, users: int, repeat: int) -> CellPlan:
        cell = prompts.cell_id(context, self.name, f"u{users:03d}", f"r{repeat}")
        codes = [needle.code(prompts.seeded(context, cell, "code", user)) for user in range(users)]
        expected: dict[str, dict[str, Any]] = {
            prompts.request_id(context, cell, turn * users + user): {"code": codes[user], "depth_pct": 50.0}
            for turn in range(params.rounds)
            for user in range(users)
        }

        def requests() -> Iterator[PlannedRequest]:
            for index in range(params.warmup_requests):
                built = _document(
                    params, context, cell, "warmup", index, min(512, params.context_tokens), None
                )
                yield _request(params, context, cell, index, built, "warmup", None, None, 0)
            # Built again in every round from the same seed: the plan never holds more than one document.
            for turn in range(params.rounds):
                for user in range(users):
                    built = _document(params, context, cell, "user", user, params.context_tokens, codes[user])
                    shared = built.tokens if turn else 0
                    yield _request(
                        params, context, cell, turn * users + user, built, "timed", user, turn, shared
                    )

        return CellPlan(
            total_prompt_tokens=users * params.rounds * params.context_tokens
            + min(512, params.context_tokens) * params.warmup_requests,
            total_output_tokens=(users * params.rounds + params.warmup_requests) * params.answer_tokens,
            cell_id=cell,
            workload=self.name,
            concurrency=params.concurrency,
            shape=Shape(kind="closed", concurrency=params.concurrency, seed=context.seed),
            requests=requests,
            seed=context.seed,
            variant=f"{users} users",
            context_tokens=params.context_tokens,
            repeat=repeat,
            users=users,
            planned_requests=users * params.rounds,
            warmup_requests=params.warmup_requests,
            # How much comes from the cache is the question here, so every answer from none to all is within budget.
            cache_budget_min=0.0,
            cache_budget_max=1.0,
            declares_sharing=True,
            is_cold_expected=False,
            deadlines=Deadlines(
                first_token_s=params.first_token_timeout_s,
                total_s=params.first_token_timeout_s + 600.0,
                window_s=params.window_timeout_s,
            ),
            params={
                "rounds": params.rounds,
                "pool_tokens_asked": users * params.context_tokens,
                "prompt_length_source": prompts.length_source(context),
            },
            expected=expected,
        )


def _document(
    params: Parameters, context: PlanContext, cell: str, kind: str, index: int, tokens: int, code: str | None
) -> measure.Fitted:
    return measure.fit(
        measure.ruler_of(context.tokens),
        tokens - prompts.overhead(context),
        prose.sentences(prompts.seeded(context, cell, kind, index), params.filler),
        front=prompts.front_line(context, cell, kind, index),
        back=needle.QUESTION,
        plants=[(50.0, needle.sentence(code))] if code else [],
    )


def _request(
    params: Parameters,
    context: PlanContext,
    cell: str,
    index: int,
    built: measure.Fitted,
    phase: str,
    user: int | None,
    turn: int | None,
    shared: int,
) -> PlannedRequest:
    body = prompts.chat_body(context, [{"role": "user", "content": built.text}], params.answer_tokens)
    return prompts.planned(
        context,
        cell,
        index,
        body,
        phase=phase,
        user=user,
        turn=turn,
        asked_prompt_tokens=built.tokens + prompts.overhead(context),
        expected_cached_tokens=shared,
    )
