"""Counts tokens as the served model does: by its own tokenizer file, else by the engine, else by a measured ratio."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from contracts.errors import WeighbridgeError
from flows.workloads import overhead
from flows.workloads.base import TokenCounter

if TYPE_CHECKING:
    from flows.engines import Served


def token_counter(served: Served, model_folder: Path | None) -> TokenCounter:
    """The best counter that this server and this machine offer.

    A `tokenizer.json` beside the model is exact and costs no request; an engine's /tokenize is exact; else the
    tokens per character of one probe text, from the engine's own usage, are applied and the source says `measured`.
    Counts leave out special tokens: they count text as it stands inside a longer prompt.
    """
    tokenizer_file = _tokenizer_file(model_folder)
    if tokenizer_file is not None:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(tokenizer_file))
        return TokenCounter(
            count=lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids), source="tokenizer"
        )
    if served.count_tokens("a b c") is not None:

        @lru_cache(maxsize=4096)
        def count(text: str) -> int:
            tokens = served.count_tokens(text)
            if tokens is None:
                raise RuntimeError("the engine stopped answering /tokenize while prompts were planned")
            return tokens

        return TokenCounter(count=count, source="engine_tokenize")
    ratio = _tokens_per_character(served)
    return TokenCounter(count=lambda text: max(1, round(len(text) * ratio)), source="measured")


def measure_overhead(served: Served, counter: TokenCounter) -> overhead.Overhead:
    """What this server's chat template adds, from the usage of two one-token requests; nulls where it has none."""

    return overhead.measure_overhead(partial(prompt_tokens, served), counter.count)


def _tokens_per_character(served: Served) -> float:
    """Tokens per character of plain prose, from the difference of two one-token requests' own usage."""
    text = " ".join(f"The {word} of the harbour kept a list of what came in by night." for word in _WORDS)
    short, long = (
        prompt_tokens(served, [{"role": "user", "content": sample}]) for sample in (text, text * 4)
    )
    if short is None or long is None:
        raise WeighbridgeError(
            "nothing here can count tokens: the model folder has no tokenizer.json, and the server gives no usage",
            next_step="give the recipe a model folder with its tokenizer.json",
        )
    return (long - short) / (3 * len(text))


_WORDS = ("warden", "keeper", "baker", "pilot", "printer", "glazier", "surveyor", "cooper")


def prompt_tokens(served: Served, messages: list[dict[str, str]]) -> int | None:
    """The prompt tokens of a chat, as the server's usage counts them in a one-token answer; None when it does not."""
    body = {"model": served.model, "messages": messages, "max_tokens": 1}
    try:
        answer = served.client.post(served.endpoints[0] + "/v1/chat/completions", json=body, timeout=300)
        answer.raise_for_status()
        return int(answer.json()["usage"]["prompt_tokens"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


def _tokenizer_file(model: Path | None) -> Path | None:
    if model is None:
        return None
    folder = model if model.is_dir() else model.parent
    path = folder / "tokenizer.json"
    return path if path.is_file() else None
