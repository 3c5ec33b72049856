"""interference: what one user's decode loses while another user's prompt is prefilled.

Two cells: `alone`, where one user writes a long answer, and `beside`, where large prompts of another user arrive
meanwhile. The factor is the first user's decode rate alone over its rate while a prefill was under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from contracts.records import Grade, Request
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.recipe import Strict
from flows.workloads import measure, prompts, prose
from flows.workloads.base import CellPlan, PlanContext

_ASK = "\n\nContinue this text in the same manner."
WRITER, READER = 0, 1


class Parameters(Strict):
    """writer: the user whose decode is watched. prefills: prompts of `prefill_tokens` that the other user sends.

    first_prefill_after_s, gap_s: when they arrive, from the window's opening; the writer must still be writing then,
    so writer_output_tokens covers that time at the decode rate of the server.
    """

    prefill_tokens: int = Field(ge=64)
    prefills: int = Field(default=1, ge=1)
    first_prefill_after_s: float = Field(default=2.0, ge=0)
    gap_s: float = Field(default=5.0, gt=0)
    prefill_output_tokens: int = Field(default=1, ge=1)
    writer_prompt_tokens: int = Field(default=256, ge=32)
    writer_output_tokens: int = Field(default=1024, ge=16)
    repeats: int = Field(default=1, ge=1)
    warmup_requests: int = Field(default=2, ge=0)
    filler: prose.Filler = "broad"
    first_token_timeout_s: float = Field(default=3600.0, gt=0)
    window_timeout_s: float | None = Field(default=None, gt=0)


class Plan:
    """Cells: alone, then beside, per repeat."""

    name: ClassVar[str] = "interference"
    Params: ClassVar[type[Strict]] = Parameters

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        return [
            self._cell(params, context, variant, repeat)
            for repeat in range(params.repeats)
            for variant in ("alone", "beside")
        ]

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        return []

    def _cell(self, params: Parameters, context: PlanContext, variant: str, repeat: int) -> CellPlan:
        cell = prompts.cell_id(context, self.name, variant, f"r{repeat}")
        prefills = params.prefills if variant == "beside" else 0

        def requests() -> Iterator[PlannedRequest]:
            for index in range(params.warmup_requests):
                yield _request(
                    params, context, cell, index, "warmup", params.writer_prompt_tokens, 8, WRITER, 0
                )
            writer = params.writer_prompt_tokens
            yield _request(params, context, cell, 0, "timed", writer, params.writer_output_tokens, WRITER, 0)
            for place in range(prefills):
                after_s = params.first_prefill_after_s + place * params.gap_s
                yield _request(
                    params,
                    context,
                    cell,
                    1 + place,
                    "timed",
                    params.prefill_tokens,
                    params.prefill_output_tokens,
                    READER,
                    round(after_s * 1e9),
                )

        return CellPlan(
            total_prompt_tokens=params.writer_prompt_tokens * (1 + params.warmup_requests)
            + prefills * params.prefill_tokens,
            total_output_tokens=params.writer_output_tokens
            + prefills * params.prefill_output_tokens
            + 8 * params.warmup_requests,
            cell_id=cell,
            workload=self.name,
            concurrency=1 + prefills,
            shape=Shape(kind="trace", max_in_flight=None, seed=context.seed),
            requests=requests,
            seed=context.seed,
            variant=variant,
            context_tokens=params.prefill_tokens,
            repeat=repeat,
            users=2 if prefills else 1,
            is_fixed_length=True,
            planned_requests=1 + prefills,
            warmup_requests=params.warmup_requests,
            planned_finish_reason="length",
            cache_budget_min=0.0,
            cache_budget_max=prompts.fresh_budget(context, params.writer_prompt_tokens),
            deadlines=Deadlines(
                first_token_s=params.first_token_timeout_s,
                total_s=params.first_token_timeout_s + 600.0,
                window_s=params.window_timeout_s,
            ),
            params={
                "prefill_tokens": params.prefill_tokens,
                "writer_output_tokens": params.writer_output_tokens,
                "prompt_length_source": prompts.length_source(context),
            },
        )


def _request(
    params: Parameters,
    context: PlanContext,
    cell: str,
    index: int,
    phase: str,
    prompt_tokens: int,
    output_tokens: int,
    user: int,
    offset_ns: int,
) -> PlannedRequest:
    extra = prompts.overhead(context)
    built = measure.fit(
        measure.ruler_of(context.tokens),
        prompt_tokens - extra,
        prose.sentences(prompts.seeded(context, cell, phase, index), params.filler),
        front=prompts.front_line(context, cell, phase, index),
        back=_ASK,
    )
    body = prompts.chat_body(
        context, [{"role": "user", "content": built.text}], output_tokens, is_fixed_length=True
    )
    return prompts.planned(
        context,
        cell,
        index,
        body,
        phase=phase,
        user=user,
        planned_offset_ns=offset_ns if phase == "timed" else None,
        asked_prompt_tokens=built.tokens + extra,
        asked_output_tokens=output_tokens,
        expected_cached_tokens=0,
    )


@dataclass(frozen=True)
class Interference:
    """Decode rates of the watched user, tokens/s. overlap_s: how long it wrote while a prefill was under way.

    beside_tokens_per_s and factor are null where nothing overlapped: then nothing was measured.
    """

    alone_tokens_per_s: float
    beside_tokens_per_s: float | None
    overlap_s: float
    factor: float | None


def measure_interference(alone: Request, beside: Request, others: list[Request]) -> Interference:
    """How far a user's decode rate fell while other users' prompts were prefilled.

    alone, beside: the watched user's request in the two cells. others: the requests that came in beside it; each one's
    prefill lasts from its sending to its first token. Tokens that a chunk carries are counted at the chunk's arrival,
    evenly over the chunks of the answer. Raises ValueError for a request without two tokens.
    """
    spans = _union(
        [
            (other.sent_ns, other.first_token_ns)
            for other in others
            if other.sent_ns is not None and other.first_token_ns is not None
        ]
    )
    first, last = beside.first_token_ns, beside.last_token_ns
    if first is None or last is None:
        raise ValueError("the watched request has no tokens")
    overlap = [(max(start, first), min(end, last)) for start, end in spans]
    overlap = [(start, end) for start, end in overlap if end > start]
    overlap_ns = sum(end - start for start, end in overlap)
    rate = _rate(alone)
    if not overlap_ns:
        return Interference(rate, None, 0.0, None)
    arrivals = _arrivals_ns(beside)
    per_chunk = (beside.output_tokens or len(arrivals)) / len(arrivals)
    inside = sum(per_chunk for at in arrivals[1:] if any(start < at <= end for start, end in overlap))
    beside_rate = inside / (overlap_ns / 1e9)
    return Interference(rate, beside_rate, overlap_ns / 1e9, rate / beside_rate if beside_rate else None)


def _rate(request: Request) -> float:
    if request.first_token_ns is None or request.last_token_ns is None or (request.output_tokens or 0) < 2:
        raise ValueError("a decode rate needs two tokens")
    return ((request.output_tokens or 0) - 1) / ((request.last_token_ns - request.first_token_ns) / 1e9)


def _arrivals_ns(request: Request) -> list[int]:
    assert request.sent_ns is not None
    arrivals, at = [], request.sent_ns
    for gap in request.chunk_gap_ns:
        at += gap
        arrivals.append(at)
    return arrivals


def _union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
