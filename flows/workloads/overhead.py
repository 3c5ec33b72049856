"""What a server's chat template adds to a prompt, measured by two one-token requests before the first plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Overhead:
    """Tokens added to one user message, and to one earlier exchange; null where the server would not say."""

    chat_tokens: int | None
    exchange_tokens: int | None


def measure_overhead(ask: Callable[[Messages], int | None], count: Callable[[str], int]) -> Overhead:
    """Ask for the prompt tokens of two small chats and take away their text.

    ask: sends a chat of these messages for one token and returns `usage.prompt_tokens`, or None. count: tokens of a
    text. The flow gives both (`PlanContext.chat_overhead_tokens`, `.exchange_overhead_tokens`).
    """
    first, answer, second = "Where is the bridge?", "It is near the mill.", "And where is the mill?"
    one = ask([{"role": "user", "content": first}])
    if one is None:
        return Overhead(None, None)
    chat = one - count(first)
    three = ask(
        [
            {"role": "user", "content": first},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": second},
        ]
    )
    if chat < 0:
        # Fewer tokens than the text alone: the count and the server do not speak of the same tokenizer.
        return Overhead(None, None)
    exchange = None if three is None else three - count(first) - count(answer) - count(second) - chat
    return Overhead(chat, exchange if exchange is not None and exchange >= 0 else None)
