"""Bodies of requests, their ids, nonces and hashes: what every workload does the same way."""

from __future__ import annotations

import hashlib
import random
from typing import Any

from flows.load.plan import PlannedRequest
from flows.workloads.base import PlanContext
from flows.workloads.prose import letters

FIRST_BLOCK_BYTES = 256


def seeded(context: PlanContext, *names: object) -> random.Random:
    """A generator of its own for `names`, from the campaign's seed; the same names give the same numbers."""
    return random.Random(f"{context.seed}/" + "/".join(str(name) for name in names))


def number_of(context: PlanContext, *names: object) -> int:
    """A seed of 48 bits for `names`, from the campaign's seed."""
    digest = hashlib.sha256(f"{context.seed}/{'/'.join(map(str, names))}".encode()).digest()
    return int.from_bytes(digest[:6])


def nonce(context: PlanContext, *names: object) -> str:
    """Twelve letters that open a prompt: unique to this bring-up, cell and request, so no prefix is shared."""
    digest = hashlib.sha256("/".join([context.server_nonce, *map(str, names)]).encode()).digest()
    return letters(random.Random(digest))


def front_line(context: PlanContext, *names: object) -> str:
    """The words that open every prompt."""
    return f"{nonce(context, *names).capitalize()}. "


def cell_id(context: PlanContext, workload: str, *parts: str) -> str:
    """A stable id: the entry's name in the campaign and what tells the cell apart; letters, digits, `-._` only."""
    return "-".join([context.entry or workload, *parts])


def request_id(context: PlanContext, cell: str, index: int, phase: str = "timed") -> str:
    """An id that no other run can have."""
    return f"{context.run_id}.{cell}.{phase[0]}{index:05d}"


def chat_body(
    context: PlanContext,
    messages: list[dict[str, Any]],
    max_tokens: int | None,
    *,
    is_fixed_length: bool = False,
    is_streamed: bool = True,
    **extra: Any,
) -> dict[str, Any]:
    """A chat completion body: greedy; `is_fixed_length` asks the engine to go on past its end token."""
    body: dict[str, Any] = {
        "model": context.model,
        "messages": messages,
        "temperature": 0,
        "stream": is_streamed,
    }
    if is_streamed:
        body["stream_options"] = {"include_usage": True}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    if is_fixed_length:
        body["ignore_eos"] = True
    body.update(extra)
    return body


def planned(
    context: PlanContext,
    cell: str,
    index: int,
    body: dict[str, Any],
    *,
    phase: Any = "timed",
    **fields: Any,
) -> PlannedRequest:
    """A planned request with the hashes of its prompt text (the messages' contents, one after the other)."""
    text = "".join(str(message["content"]) for message in body["messages"]).encode()
    return PlannedRequest(
        request_id=request_id(context, cell, index, phase),
        index=index,
        body=body,
        phase=phase,
        first_block_sha256=hashlib.sha256(text[:FIRST_BLOCK_BYTES]).hexdigest(),
        prompt_sha256=hashlib.sha256(text).hexdigest(),
        is_streamed=bool(body.get("stream", True)),
        **fields,
    )


def overhead(context: PlanContext) -> int:
    """Tokens that the chat template adds to one user message; 0 where nobody could tell."""
    return context.chat_overhead_tokens or 0


def fresh_budget(context: PlanContext, prompt_tokens: float) -> float:
    """The share of a fresh prompt that may come from the prefix cache: 1 %, and the template's own tokens.

    What a template puts before the text (a default system message) is the same in every prompt, and no nonce in the
    text can change that; its tokens are known by measurement, so the allowance is no guess.
    """
    return round(0.01 + overhead(context) / max(1.0, prompt_tokens), 4)


def length_source(context: PlanContext) -> str:
    """How prompt lengths were counted, and whether the chat template is in them."""
    if context.chat_overhead_tokens is None:
        return f"{context.tokens.source}, template not counted"
    return context.tokens.source
