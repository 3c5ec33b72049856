"""Captured answers of real engines, and the public excerpts where they lie beside the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.load import read_stream
from flows.load.streams import Reading, read_answer

CAPTURES = Path(__file__).parents[2] / "fixtures" / "sse" / "engines"


def _body(name: str) -> bytes:
    """What follows the head of a captured response; a note that the capturing tool left at the end is no part of it."""
    whole = (CAPTURES / name).read_bytes().replace(b"\r\n", b"\n")
    return whole.split(b"\n\n", 1)[1].partition(b"\ncurl rc=")[0]


PARIS = "The capital of France is Paris."


@pytest.mark.parametrize(
    ("name", "chunks", "prompt", "output", "cached"),
    [
        ("vllm_chat_stream_usage.sse", 7, 42, 8, None), ("vllmeager_chat_stream_usage.sse", 7, 42, 8, 32),
        ("xllamacpp_chat_stream_usage.sse", 7, 42, 8, 41), ("tfserve_chat_stream_usage.sse", 7, 42, 8, None),
    ],
)  # fmt: skip
def test_a_streamed_chat_of_a_real_engine(
    name: str, chunks: int, prompt: int, output: int, cached: int | None
) -> None:
    reading = read_stream([(1, _body(name))])
    assert (reading.text, reading.finish_reason, reading.error_class) == (PARIS, "stop", None)
    assert (reading.chunk_count, reading.prompt_tokens, reading.output_tokens) == (chunks, prompt, output)
    assert (reading.cached_tokens, reading.has_usage) == (cached, True)
    assert reading.is_done == (name != "tfserve_chat_stream_usage.sse")


def test_an_engine_that_streams_no_usage_is_counted() -> None:
    reading = read_stream([(1, _body("llamacpppython_chat_stream_usage.sse"))])
    assert (reading.text, reading.chunk_count, reading.output_tokens) == (PARIS, 7, 7)
    assert (reading.has_usage, reading.prompt_tokens, reading.error_class) == (False, None, None)


def test_a_killed_worker_is_a_failure_although_done_follows() -> None:
    reading = read_stream([(1, _body("vllm_stream_engine_killed.sse"))])
    assert (reading.error_class, reading.is_done) == ("error_in_stream", True)
    assert "EngineCore encountered an issue" in (reading.error_detail or "")


def test_a_refused_prompt_shows_the_engines_words() -> None:
    for name, words in (
        ("vllm_too_long_stream.txt", "maximum context length"),
        ("xllamacpp_too_long_stream.txt", "40031 tokens"),
    ):
        reading = read_stream([(1, _body(name))])
        assert reading.error_class == "not_a_stream"
        assert words in (reading.error_detail or "")
    empty = read_stream([(1, _body("llamacpppython_too_long_stream.txt"))])
    assert (empty.error_class, empty.chunk_count) == ("truncated", 0)


def test_answers_that_were_not_streamed() -> None:
    for name, output in (("vllm_chat.txt", 8), ("xllamacpp_chat.txt", 8), ("llamacpppython_chat.txt", 7)):
        reading = read_answer(_body(name), 3)
        assert (reading.text, reading.output_tokens, reading.token_ns) == (PARIS, output, [3])
    for name in ("vllm_completions.txt", "xllamacpp_completions.txt", "llamacpppython_completions.txt"):
        reading = read_answer(_body(name), 3, "completions")
        assert (reading.output_tokens, reading.finish_reason, reading.error_class) == (16, "length", None)


@pytest.mark.shared_cases
@pytest.mark.parametrize(
    ("name", "kind", "text", "reasoning", "chunks"),
    [
        ("01-llamacpp-spec-decode-per-chunk-timings.sse", "chat", "", ' word "', 2),
        ("02-vllm-role-chunk-empty-content-then-think-tag.sse", "chat", " .<think>", "", 2),
        ("03-special-token-chunks-escaped.sse", "chat", "<|EOT|><\uff5ctool\u2581calls\u2581begin\uff5c>", "", 2),
        ("04-text-completion-stream-llamacpp.sse", "completions", "Hello! How", "", 3),
        ("06-gptoss-vllm-reasoning-field-token_ids-null.sse", "chat", "", " code", 1),
        ("08-vllm-v0.10.0-granite-tool-markup-as-content.sse", "chat", "<tool", "", 2),
    ],
)  # fmt: skip
def test_public_excerpts(
    shared_cases: Path, name: str, kind: Any, text: str, reasoning: str, chunks: int
) -> None:
    reading: Reading = read_stream([(1, (shared_cases / "sse" / name).read_bytes())], kind)
    assert (reading.text, reading.reasoning, reading.chunk_count) == (text, reasoning, chunks)
    assert reading.error_class == "truncated"  # excerpts: their ends are missing
    if name.startswith("01"):
        assert (reading.cached_tokens, reading.prompt_tokens, reading.coalesced) == (7, 17, 1)
