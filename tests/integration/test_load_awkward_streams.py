"""Every awkward stream, served by the reference server and read by the load process, each with its right value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from load_support import Result, body, measure, reference_server

from contracts.records import Request
from flows.load.plan import Deadlines, PlannedRequest

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"const": "Oslo"}, "days": {"const": 3}}},
    },
}
# name -> (what the scenario sets, what the body adds)
TRAITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "role_at_once": ({"stream": {"role": "at_once"}, "timing": {"ttft_ms": 80}}, {}),
    "empty_deltas": ({"stream": {"empty_deltas": 3}}, {}),
    "reasoning": ({"tokens": {"reasoning": 5, "reasoning_field": "reasoning"}}, {}),
    "reasoning_content": ({"tokens": {"reasoning": 5}}, {}),
    "reasoning_both": ({"tokens": {"reasoning": 5, "reasoning_field": "both"}}, {}),
    "text_on_finish": ({"tokens": {"text_on_finish": True}}, {}),
    "four_a_chunk": ({"tokens": {"per_chunk": 4}}, {}),
    "two_chunks_a_token": ({"tokens": {"chunks_per_token": 2}, "answers": {"text": "alpha beta gamma delta"}}, {}),
    "usage_missing": ({"usage": {"mode": "none"}}, {}),
    "usage_every_chunk": ({"usage": {"mode": "every_chunk"}}, {}),
    "usage_with_finish": ({"usage": {"mode": "with_finish"}}, {}),
    "usage_cached": ({"cache": {"warm_share": 0.5, "block_tokens": 2}}, {}),
    "usage_timings": ({"usage": {"timings": True}}, {}),
    "ids_change": ({"stream": {"ids": "change"}}, {}),
    "tool_pieces": ({}, {"tools": [TOOL]}),
    "tool_parallel": ({"answers": {"tool": "parallel"}}, {"tools": [TOOL]}),
    "crlf": ({"stream": {"line_end": "crlf"}}, {}),
    "cr": ({"stream": {"line_end": "cr"}}, {}),
    "comments": ({"stream": {"comments": True, "ping_every_s": 0.01}}, {}),
    "single_newline": ({"stream": {"separator": "single"}}, {}),
    "no_space": ({"stream": {"data_space": False}}, {}),
    "utf8_cut": ({"stream": {"text": "unicode", "splits_utf8": True}}, {}),
    "byte_by_byte": ({"stream": {"segment": "bytes"}, "tokens": {"count": 3}}, {}),
    "over_a_mebibyte": ({"stream": {"pad_bytes": 1_200_000}, "tokens": {"count": 3}}, {}),
    "coalesced": ({"stream": {"events_per_write": 4}}, {}),
    "until_close": ({"stream": {"framing": "close"}}, {}),
    "no_done": ({"stream": {"done": False}}, {}),
    "never_closed": ({"stream": {"ends": False}}, {}),
    "error_object": ({"breaks": {"error": "object", "after_tokens": 5}}, {}),
    "error_flat": ({"breaks": {"error": "flat_object", "after_tokens": 5}}, {}),
    "error_event": ({"breaks": {"error": "event", "after_tokens": 5}}, {}),
    "error_text": ({"breaks": {"error": "text", "after_tokens": 5}}, {}),
    "error_then_done": ({"breaks": {"error": "with_done", "after_tokens": 5}}, {}),
    "error_first": ({"breaks": {"error": "with_done"}}, {}),
    "finish_error": ({"breaks": {"error": "finish", "after_tokens": 5}}, {}),
    "reset": ({"breaks": {"connection": "reset", "after_tokens": 5}}, {}),
    "closed": ({"breaks": {"connection": "close", "after_tokens": 5}}, {}),
    "stalls": ({"breaks": {"stalls_for_ever": True, "after_tokens": 5}}, {}),
    "stalls_with_pings": (
        {"breaks": {"stalls_for_ever": True, "after_tokens": 5, "pings_while_stalled": True}}, {}
    ),
    "never_begins": ({"breaks": {"stalls_for_ever": True}, "timing": {"headers": "first_token"}}, {}),
    "only_role": ({"breaks": {"stalls_for_ever": True}, "stream": {"role": "at_once"}}, {}),
    "http_429": ({"breaks": {"status": 429, "retry_after": "7"}}, {}),
    "http_503": ({"breaks": {"status": 503, "retry_after": "Wed, 21 Oct 2026 07:28:00 GMT"}}, {}),
    "http_500": ({"breaks": {"status": 500}}, {}),
    "http_400": ({"breaks": {"status": 400}}, {}),
    "html": ({"stream": {"body": "html"}}, {}),
    "whole_json": ({"stream": {"body": "json"}}, {}),
    "plain_text": ({"stream": {"body": "text"}}, {}),
    "empty_body": ({"stream": {"body": "empty"}}, {}),
    "completions": ({}, {"kind": "completions"}),
    "responses": ({"tokens": {"reasoning": 3}}, {"kind": "responses"}),
    "responses_tool": ({}, {"kind": "responses", "tools": [{"type": "function", **TOOL["function"]}]}),
    "responses_failed": ({"breaks": {"error": "object", "after_tokens": 5}}, {"kind": "responses"}),
    "not_streamed": ({}, {"stream": False}),
    "not_streamed_tool": ({}, {"stream": False, "tools": [TOOL]}),
    "not_streamed_error": ({"breaks": {"error": "object"}}, {"stream": False}),
}  # fmt: skip
TTFT_MS, ITL_MS, TOKENS = 30, 4, 12


def _request(index: int, name: str, added: dict[str, Any]) -> PlannedRequest:
    kind = added.get("kind", "chat")
    extra = {key: value for key, value in added.items() if key != "kind"}
    text = f"trait {name} please, and at some length so that there are blocks to be cached"
    made = body(text, TOKENS, **extra)
    if kind == "completions":
        made["prompt"] = made.pop("messages")[0]["content"]
    elif kind == "responses":
        made["input"] = made.pop("messages")
        made["max_output_tokens"] = made.pop("max_tokens")
        del made["stream_options"]
    return PlannedRequest(
        request_id=name,
        index=index,
        body=made,
        kind=kind,
        asked_output_tokens=TOKENS,
        is_streamed=made["stream"],
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Result, dict[str, dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("awkward")
    scenario = {
        "timing": {"ttft_ms": TTFT_MS, "itl_ms": ITL_MS},
        "variants": [
            {"when": {"contains": f"trait {name} please"}, "set": changes}
            for name, (changes, _) in TRAITS.items()
            if changes
        ],
    }
    requests = [_request(index, name, added) for index, (name, (_, added)) in enumerate(TRAITS.items())]
    deadlines = Deadlines(connect_s=5, first_token_s=2.5, between_chunks_s=1.5, total_s=30)
    with reference_server(folder, scenario) as server:
        yield (
            measure(folder, server.url, requests, keep_text=True, deadlines=deadlines),
            server.truth(len(TRAITS) - 8),
        )


def _ok(record: Request, tokens: int = TOKENS) -> None:
    assert (record.outcome, record.error_class) == ("ok", None), record.error_detail
    assert record.output_tokens == tokens
    assert record.sent_ns is not None
    assert record.sent_ns + sum(record.chunk_gap_ns) == record.last_token_ns
    assert len(record.chunk_gap_ns) == record.chunk_count
    assert record.first_token_ns is not None
    assert (
        record.planned_ns <= record.sent_ns < record.first_token_ns <= record.last_token_ns <= record.end_ns
    )  # type: ignore[operator]


def _ttft_ms(record: Request) -> float:
    assert record.first_token_ns is not None and record.sent_ns is not None
    return (record.first_token_ns - record.sent_ns) / 1e6


def test_every_request_has_exactly_one_record(result: Any) -> None:
    found = result[0]
    assert set(found.records) == set(TRAITS)
    window = found.window
    assert window.planned == len(TRAITS) == window.ok + window.failed
    assert (window.cancelled, window.unsent) == (0, 0)


@pytest.mark.parametrize(
    ("name", "chunks"),
    [
        ("plain", 12), ("role_at_once", 12), ("empty_deltas", 12), ("reasoning", 12), ("reasoning_content", 12),
        ("reasoning_both", 12), ("text_on_finish", 12), ("four_a_chunk", 3), ("usage_every_chunk", 12),
        ("usage_with_finish", 12), ("usage_cached", 12), ("usage_timings", 12), ("ids_change", 12), ("crlf", 12), ("cr", 12),
        ("comments", 12), ("single_newline", 12), ("no_space", 12), ("utf8_cut", 12), ("coalesced", 12),
        ("until_close", 12), ("no_done", 12), ("never_closed", 12), ("completions", 12), ("responses", 12),
    ],
)  # fmt: skip
def test_tokens_and_chunks_are_exact(result: Any, name: str, chunks: int) -> None:
    record = result[0].records[name]
    _ok(record)
    assert record.chunk_count == chunks
    assert record.output_token_source == "usage"
    assert record.finish_reason == "length"
    assert record.http_status == 200
    assert _ttft_ms(record) >= TTFT_MS


def test_client_instants_follow_the_servers_own(result: Any) -> None:
    found, truth = result
    for name in ("plain", "four_a_chunk", "crlf", "text_on_finish", "reasoning", "completions"):
        record, told = found.records[name], truth[name]
        assert len(told["token_ns"]) == record.chunk_count
        arrived = record.sent_ns
        for gap, written in zip(record.chunk_gap_ns, told["token_ns"], strict=True):
            arrived += gap
            assert arrived >= written
        assert record.sent_ns <= told["received_ns"]


def test_a_role_only_first_chunk_is_no_token(result: Any) -> None:
    record = result[0].records["role_at_once"]
    assert _ttft_ms(record) >= 80
    assert record.first_byte_ns < record.first_token_ns
    assert result[0].records["empty_deltas"].event_count >= 12 + 1 + 3


def test_reasoning_counts_as_tokens_and_stays_apart(result: Any) -> None:
    for name in ("reasoning", "reasoning_content", "reasoning_both"):
        record = result[0].records[name]
        assert record.reasoning_tokens == 5
        assert len(record.reasoning_text.split()) == 5
        assert len(record.output_text.split()) == 7


def test_one_token_over_two_chunks_counts_once(result: Any) -> None:
    record = result[0].records["two_chunks_a_token"]
    _ok(record, tokens=4)
    assert record.chunk_count == 8
    assert record.output_text == "alpha beta gamma delta"
    assert record.finish_reason == "stop"


def test_missing_usage_counts_what_was_streamed_and_says_so(result: Any) -> None:
    record = result[0].records["usage_missing"]
    _ok(record)
    assert record.output_token_source == "counted"
    assert record.prompt_tokens is None
    assert record.cached_tokens is None


def test_cached_tokens_are_read(result: Any) -> None:
    record, told = result[0].records["usage_cached"], result[1]["usage_cached"]
    assert record.prompt_tokens == told["prompt_tokens"] == 15
    assert record.cached_tokens == told["cached_tokens"] == 6
    assert result[0].records["plain"].cached_tokens == 0


def test_tool_call_arguments_are_put_together(result: Any) -> None:
    record = result[0].records["tool_pieces"]
    assert record.outcome == "ok"
    assert record.finish_reason == "tool_calls"
    assert [call["function"]["name"] for call in record.tool_calls] == ["get_weather"]
    assert record.tool_calls[0]["function"]["arguments"] == '{"city":"Oslo","days":3}'
    assert record.chunk_count == 5
    parallel = result[0].records["tool_parallel"]
    assert [call["function"]["arguments"] for call in parallel.tool_calls] == ['{"city":"Oslo","days":3}'] * 2
    typed = result[0].records["responses_tool"]
    assert typed.tool_calls[0]["function"] == {"name": "get_weather", "arguments": '{"city":"Oslo","days":3}'}


def test_text_survives_every_cut(result: Any) -> None:
    assert "🙂" in result[0].records["utf8_cut"].output_text
    assert "�" not in result[0].records["utf8_cut"].output_text
    for name in ("byte_by_byte", "over_a_mebibyte"):
        _ok(result[0].records[name], tokens=3)


def test_chunks_of_one_read_are_counted_as_coalesced(result: Any) -> None:
    assert result[0].records["coalesced"].coalesced_chunks >= 9
    assert (
        result[0].records["coalesced"].chunk_gap_ns.count(0)
        == result[0].records["coalesced"].coalesced_chunks
    )


@pytest.mark.parametrize(
    "name", ["error_object", "error_flat", "error_event", "error_then_done", "responses_failed"]
)
def test_an_error_inside_a_200_is_a_failure(result: Any, name: str) -> None:
    record = result[0].records[name]
    assert (record.outcome, record.error_class, record.http_status) == ("failed", "error_in_stream", 200)
    assert "told to refuse" in record.error_detail
    assert record.chunk_count == 5


def test_an_error_as_the_first_event_is_a_failure_without_tokens(result: Any) -> None:
    record = result[0].records["error_first"]
    assert (record.outcome, record.error_class, record.chunk_count) == ("failed", "error_in_stream", 0)
    assert record.first_token_ns is None
    assert record.output_tokens is None


@pytest.mark.parametrize(
    ("name", "error_class", "chunks"),
    [
        ("error_text", "bad_chunk", 5), ("finish_error", "error_in_stream", 5), ("reset", "reset", 5),
        ("closed", "truncated", 5), ("stalls", "chunk_timeout", 5), ("stalls_with_pings", "chunk_timeout", 5),
        ("never_begins", "first_token_timeout", 0), ("only_role", "first_token_timeout", 0), ("html", "not_a_stream", 0),
        ("whole_json", "not_a_stream", 0), ("plain_text", "not_a_stream", 0), ("empty_body", "truncated", 0),
    ],
)  # fmt: skip
def test_broken_answers_fail_by_their_own_class(
    result: Any, name: str, error_class: str, chunks: int
) -> None:
    record = result[0].records[name]
    assert (record.outcome, record.error_class) == ("failed", error_class), record.error_detail
    assert record.chunk_count == chunks
    assert record.end_ns > record.sent_ns


@pytest.mark.parametrize(
    ("name", "error_class", "status", "retry_after_s"),
    [
        ("http_429", "http_429", 429, 7.0), ("http_503", "http_503", 503, None), ("http_500", "http_5xx", 500, None),
        ("http_400", "http_4xx", 400, None),
    ],
)  # fmt: skip
def test_http_errors_are_counted_and_never_retried(
    result: Any, name: str, error_class: str, status: int, retry_after_s: float | None
) -> None:
    found, truth = result
    record = found.records[name]
    assert (record.outcome, record.error_class, record.http_status) == ("failed", error_class, status)
    assert record.retry_after_s == retry_after_s
    assert "told to refuse" in record.error_detail
    assert sum(row["request_id"] == name for row in truth.values()) == 1


def test_requests_that_are_not_streamed_have_the_same_record(result: Any) -> None:
    record = result[0].records["not_streamed"]
    _ok(record)
    assert (record.chunk_count, record.finish_reason) == (1, "length")
    tool = result[0].records["not_streamed_tool"]
    assert tool.tool_calls[0]["function"]["arguments"] == '{"city":"Oslo","days":3}'
    failed = result[0].records["not_streamed_error"]
    assert (failed.outcome, failed.error_class, failed.http_status) == ("failed", "http_5xx", 500)


def test_prompts_are_hashed_as_they_were_sent(result: Any) -> None:
    import hashlib

    text = b"trait plain please, and at some length so that there are blocks to be cached"
    record = result[0].records["plain"]
    assert record.prompt_sha256 == hashlib.sha256(text).hexdigest()
    assert record.output_sha256 == hashlib.sha256(record.output_text.encode()).hexdigest()
