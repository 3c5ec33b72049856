"""Reading a stream: each trait by a small body of our own, written out as it goes over the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.load import read_stream
from flows.load.streams import Reading, read_answer

FIXTURES = Path(__file__).parents[2] / "fixtures" / "sse"


def _read(*pieces: bytes, kind: Any = "chat") -> Reading:
    """The pieces, read 10 ns apart from 10 on."""
    return read_stream([(10 * (at + 1), piece) for at, piece in enumerate(pieces)], kind)


def _event(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"choices": choices} | fields).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
TEXT = _event({"content": "hello"})
STOP = _event({}, "stop")


# name -> (chunks, output tokens, source is usage, finish reason, text, error class)
EXPECTED: dict[str, tuple[int, int | None, bool, str | None, str, str | None]] = {
    "role-then-text.sse": (3, 3, True, "stop", "one two three", None),
    "crlf-comments.sse": (2, 2, True, "stop", "é🙂", None),
    "single-newlines.sse": (3, 3, False, "length", " a b c", None),
    "text-on-finish.sse": (2, 2, True, "stop", "yes sir", None),
    "error-object.sse": (2, 2, False, None, "so far", "error_in_stream"),
    "error-flat.sse": (1, 1, False, None, "so", "error_in_stream"),
    "error-line.sse": (1, 1, False, None, "so", "error_in_stream"),
    "error-named.sse": (1, 1, False, None, "so", "error_in_stream"),
    "error-text.sse": (1, 1, False, None, "so", "bad_chunk"),
    "cut-off.sse": (1, 1, False, None, "so", "truncated"),
    "no-tokens.sse": (0, 0, True, "stop", "", "no_tokens"),
    "several-lines.sse": (1, 1, False, "stop", "folded", None),
    "speculative-timings.sse": (2, 5, True, "stop", " five tokens here", None),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_trait_is_read_as_what_it_is(name: str) -> None:
    chunks, tokens, is_usage, finish, text, error = EXPECTED[name]
    data = (FIXTURES / name).read_bytes()
    for pieces in ([data], [data[at : at + 7] for at in range(0, len(data), 7)]):
        reading = _read(*pieces)
        assert (reading.chunk_count, reading.output_tokens, reading.has_usage) == (chunks, tokens, is_usage)
        assert (reading.finish_reason, reading.text, reading.error_class) == (finish, text, error)


def test_an_instant_is_that_of_the_read_that_ended_the_line() -> None:
    half = len(TEXT) // 2
    reading = _read(TEXT[:half], TEXT[half:] + TEXT, STOP, DONE)
    assert reading.token_ns == [20, 20]
    assert reading.coalesced == 1


def test_the_line_counts_when_its_end_comes_not_the_blank_line_after_it() -> None:
    assert _read(TEXT[:-1], b"\n", STOP, DONE).token_ns == [10]
    assert _read(TEXT[:-2], b"\n\n", STOP, DONE).token_ns == [20]


def test_only_chunks_with_a_token_count() -> None:
    nothing = [
        {"role": "assistant"},
        {"content": ""},
        {"content": None},
        {"role": "assistant", "content": ""},
        {},
    ]
    for delta in nothing:
        assert _read(_event(delta), STOP, DONE).chunk_count == 0
    something: list[dict[str, Any]] = [
        {"content": " "}, {"reasoning": "x"}, {"reasoning_content": "x"}, {"refusal": "no"},
        {"tool_calls": [{"index": 0, "function": {"name": "f"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"function_call": {"arguments": "{"}},
    ]  # fmt: skip
    for delta in something:
        assert _read(_event(delta), STOP, DONE).chunk_count == 1, delta


def test_usage_that_is_missing_stays_missing() -> None:
    reading = _read(TEXT, TEXT, STOP, DONE)
    assert (reading.prompt_tokens, reading.cached_tokens, reading.reasoning_tokens) == (None, None, None)
    assert (reading.output_tokens, reading.has_usage) == (2, False)


def test_the_last_usage_counts_when_every_chunk_has_one() -> None:
    usages = [{"prompt_tokens": 9, "completion_tokens": n} for n in (1, 2, 3)]
    reading = _read(*(_event({"content": "x"}, usage=usage) for usage in usages), STOP, DONE)
    assert (reading.prompt_tokens, reading.output_tokens) == (9, 3)


def test_cached_tokens_of_every_dialect_are_read_and_zero_is_not_absence() -> None:
    for usage, cached in (
        ({"completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 32}}, 32),
        ({"completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"completion_tokens": 1, "prompt_tokens_details": None}, None),
        ({"output_tokens": 1, "input_tokens_details": {"cached_tokens": 5}}, 5),
        ({"completion_tokens": 1}, None),
    ):
        assert _read(TEXT, _event(usage=usage), DONE).cached_tokens == cached
    timings = {"cache_n": 7, "prompt_n": 3, "predicted_n": 9}
    reading = _read(TEXT, _event({}, "stop", timings=timings), DONE)
    assert (reading.cached_tokens, reading.prompt_tokens, reading.output_tokens) == (7, 10, 9)


def test_token_ids_tell_how_many_tokens_a_chunk_carries() -> None:
    choice = {"index": 0, "delta": {"content": "two tokens"}, "token_ids": [5, 6], "finish_reason": None}
    data = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
    assert _read(data, STOP, DONE).output_tokens == 2


def test_parallel_tool_calls_are_put_together_by_their_index() -> None:
    def call(index: int, **function: str) -> bytes:
        return _event({"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]})

    reading = _read(
        call(0, name="add", arguments=""), call(1, name="mul", arguments=""), call(0, arguments='{"a"'),
        call(1, arguments='{"b"'), call(0, arguments=": 1}"), call(1, arguments=": 2}"), _event({}, "tool_calls"), DONE,
    )  # fmt: skip
    assert reading.tool_calls == [
        {"id": "c0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "c1", "type": "function", "function": {"name": "mul", "arguments": '{"b": 2}'}},
    ]
    assert reading.error_class is None


def test_fields_of_unexpected_types_do_not_hide_the_rest() -> None:
    odd = {
        "choices": [
            {"index": "0", "delta": {"content": "x", "tool_calls": "none"}, "finish_reason": {"type": "stop"}}
        ]
    }
    reading = _read(b"data: " + json.dumps(odd).encode() + b"\n\n", DONE)
    assert (reading.chunk_count, reading.text, reading.finish_reason) == (1, "x", "stop")


def test_a_stream_that_ends_without_done_is_whole_when_it_gave_its_reason() -> None:
    assert _read(TEXT, STOP).error_class is None
    assert _read(TEXT).error_class == "truncated"
    assert _read(TEXT, DONE).error_class is None


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "truncated"), (b" \r\n", "truncated"), (b"<html>sign in</html>", "not_a_stream"),
        (b'{"choices": [{"message": {"content": "hi"}}]}', "not_a_stream"), (b"upstream error", "not_a_stream"),
        (b"data: upstream error\n\n", "bad_chunk"), (b"data: 17\n\n", "bad_chunk"), (b"data: {]}\n\n", "bad_chunk"),
        (b'data: {"error": {"message": "dead"}}\n\ndata: [DONE]\n\n', "error_in_stream"),
        (b'data: {"detail": "not found"}\n\n', "error_in_stream"), (b": ping\n\n", "truncated"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_told(data: bytes, error: str) -> None:
    assert _read(data).error_class == ("not_a_stream" if data == b": ping\n\n" else error)


def test_a_response_of_typed_events() -> None:
    def typed(name: str, **fields: Any) -> bytes:
        return f"event: {name}\ndata: {json.dumps({'type': name} | fields)}\n\n".encode()

    usage = {
        "input_tokens": 11, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
    }  # fmt: skip
    reading = _read(
        typed("response.created", response={"status": "in_progress"}),
        typed("response.reasoning_text.delta", delta="hm"),
        typed("response.output_text.delta", delta="Os"),
        typed("response.output_text.delta", delta="lo"),
        typed("response.output_text.done", text="Oslo"),
        typed("response.completed", response={"status": "completed", "usage": usage}),
        kind="responses",
    )
    assert (reading.text, reading.reasoning, reading.chunk_count) == ("Oslo", "hm", 3)
    assert (reading.prompt_tokens, reading.cached_tokens, reading.output_tokens) == (11, 4, 3)
    assert (reading.reasoning_tokens, reading.finish_reason, reading.error_class) == (1, "stop", None)
    cut = _read(typed("response.output_text.delta", delta="Os"), kind="responses")
    assert cut.error_class == "truncated"
    long = _read(
        typed("response.output_text.delta", delta="Os"),
        typed("response.incomplete", response={"incomplete_details": {"reason": "max_output_tokens"}}),
        kind="responses",
    )
    assert (long.finish_reason, long.error_class) == ("length", None)


def test_whole_answers_are_read_and_their_tokens_never_guessed() -> None:
    answer = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    reading = read_answer(json.dumps(answer).encode(), 5)
    assert (reading.token_ns, reading.text, reading.output_tokens) == ([5], "hi", None)
    assert read_answer(b'{"error": {"message": "no"}}', 5).error_class == "error_in_stream"
    assert read_answer(b"<html>", 5).error_class == "bad_chunk"
    assert read_answer(b'{"choices": []}', 5).error_class == "bad_chunk"
    empty = {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}
    assert read_answer(json.dumps(empty).encode(), 5).error_class == "no_tokens"
