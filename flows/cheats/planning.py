"""From a scenario's load to the cells that are sent: the workload `sweep`, with the prompts that the scenario asks for."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from flows.cheats.scenario import Load, Prompts, Scenario
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.workloads import prompts, prose, sweep
from flows.workloads.base import CellPlan, PlanContext
from flows.workloads.lengths import FixedLength


def plan_cells(scenario: Scenario, context: PlanContext, place: int = 0, attempt: int = 0) -> list[CellPlan]:
    """The windows of one scenario, in order; the last one is judged. place tells repeats of a clean run apart.

    attempt: how often this was measured before, each time under an id, and with prompts, of its own.
    """
    cell_id = judged_cell_id(scenario, place, attempt)
    judged = _plan(scenario.load, context, cell_id, source=cell_id, repeat=place)
    if scenario.load.prompts.mode != "earlier":
        return [judged]
    earlier = _plan(scenario.load, context, f"{cell_id}-earlier", source=cell_id, repeat=place)
    return [earlier, judged]


def judged_cell_id(scenario: Scenario, place: int = 0, attempt: int = 0) -> str:
    """The id of the cell that a scenario's verdict is about."""
    name = scenario.id if scenario.times == 1 else f"{scenario.id}-{place:04d}"
    return f"{name}-again-{attempt}" if attempt else name


def _plan(load: Load, context: PlanContext, cell_id: str, *, source: str, repeat: int) -> CellPlan:
    """source: the name that prompts are drawn from; two cells with one source send the same prompts."""
    base = sweep.cell_plan(
        "sweep",
        sweep.Parameters(
            concurrency=[load.concurrency],
            prompt_tokens=FixedLength(tokens=load.prompt_tokens),
            output_tokens=FixedLength(tokens=load.output_tokens),
            warmup_per_stream=1,
            is_fixed_output=load.ignores_eos,
        ),
        context,
        source,
        _shape(load, context),
        load.concurrency,
        repeat,
        load.requests,
        warmup=2 * load.concurrency if load.warmup is None else load.warmup,
    )

    def requests() -> Iterator[PlannedRequest]:
        for request in _with_prompts(base.requests(), load.prompts, context, source):
            yield _as_sent(request, load, context, cell_id)

    plan = dataclasses.replace(
        base,
        cell_id=cell_id,
        requests=requests,
        variant=cell_id,
        is_fixed_length=load.is_fixed_length,
        planned_finish_reason="length" if load.is_fixed_length else None,
        cache_budget_min=load.cache_budget[0],
        cache_budget_max=load.cache_budget[1],
        declares_sharing=load.declares_sharing,
        deadlines=Deadlines(**load.deadlines.model_dump()),
    )
    if load.thinking is not None:
        plan.params = {**plan.params, "thinking": load.thinking}
    if load.prompts.mode == "prefix":
        plan.asked_prompt_tokens = None
    return plan


def _shape(load: Load, context: PlanContext) -> Shape:
    return Shape(
        kind=load.shape,
        concurrency=load.concurrency if load.shape == "closed" else None,
        rate_rps=load.rate_rps,
        burstiness=load.burstiness,
        ramp_up_s=load.ramp_up_s,
        max_in_flight=load.max_in_flight,
        stop_after_s=load.stop_after_s,
        seed=context.seed,
    )


def _with_prompts(
    planned: Iterable[PlannedRequest], wanted: Prompts, context: PlanContext, source: str
) -> Iterator[PlannedRequest]:
    """The same requests with the prompts of the asked mode. `fresh` and `earlier` keep their own."""
    warmup: list[PlannedRequest] = []
    kept: list[PlannedRequest] = []
    shared = ""
    if wanted.mode == "prefix":
        words = prose.sentences(prompts.seeded(context, source, "shared prefix"), "broad")
        while len(shared.split()) < wanted.tokens:
            shared += next(words) + " "
        shared = " ".join(shared.split()[: wanted.tokens]) + "\n\n"
    for request in planned:
        if request.phase == "warmup":
            warmup.append(request)
            yield request
            continue
        if wanted.mode in ("same", "pool"):
            size = 1 if wanted.mode == "same" else wanted.size
            if len(kept) < size:
                kept.append(request)
            yield _borrow(request, kept[request.index % size])
        elif wanted.mode == "warmup":
            yield _borrow(request, warmup[request.index % len(warmup)])
        elif wanted.mode == "prefix":
            yield _rewrite(request, shared)
        else:
            yield request


def _borrow(request: PlannedRequest, other: PlannedRequest) -> PlannedRequest:
    return msgspec.structs.replace(
        request,
        body=other.body,
        first_block_sha256=other.first_block_sha256,
        prompt_sha256=other.prompt_sha256,
    )


def _rewrite(request: PlannedRequest, front: str) -> PlannedRequest:
    assert isinstance(request.body, dict)
    messages = [dict(message) for message in request.body["messages"]]
    messages[0]["content"] = front + messages[0]["content"]
    text = "\n".join(str(message["content"]) for message in messages).encode()
    return msgspec.structs.replace(
        request,
        body={**request.body, "messages": messages},
        first_block_sha256=hashlib.sha256(text[: prompts.FIRST_BLOCK_BYTES]).hexdigest(),
        prompt_sha256=hashlib.sha256(text).hexdigest(),
        asked_prompt_tokens=None,
    )


def _as_sent(request: PlannedRequest, load: Load, context: PlanContext, cell_id: str) -> PlannedRequest:
    assert isinstance(request.body, dict)
    body: dict[str, Any] = {**request.body, **load.body, "stream": load.is_streamed}
    if load.max_tokens is not None:
        body["max_tokens"] = load.max_tokens
    if not load.asks_usage or not load.is_streamed:
        body.pop("stream_options", None)
    if load.api == "completions":
        body["prompt"] = "\n".join(str(message["content"]) for message in body.pop("messages"))
    elif load.api == "responses":
        body["input"] = "\n".join(str(message["content"]) for message in body.pop("messages"))
        body["max_output_tokens"] = body.pop("max_tokens")
        body.pop("stream_options", None)
    return msgspec.structs.replace(
        request,
        body=body,
        kind=load.api,
        is_streamed=load.is_streamed,
        request_id=prompts.request_id(context, cell_id, request.index, request.phase),
    )
