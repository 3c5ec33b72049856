"""The quick reader of like chunks says exactly what the ordinary one says, whatever the answer looks like."""

from __future__ import annotations

import json
from array import array
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.load.outcomes import read_frame, unframe
from flows.load.planfile import PlanLine
from flows.load.runs_of_text import find_runs
from flows.load.spool import Frame, FrameHeader
from flows.load.streams import Reading, read_body

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LINE = PlanLine(
    position=0, request_id="r", index=0, kind="chat", phase="timed", planned_offset_ns=None, session_id=None, turn=None,
    user=None, think_time_s=0.0, asked_prompt_tokens=None, asked_output_tokens=None, expected_cached_tokens=None,
    first_block_sha256=None, prompt_sha256=None, is_streamed=True, body_at=0, body_bytes=0,
)  # fmt: skip


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> bytes:
    body = {
        "id": "chatcmpl-1",
        "created": 5,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    } | fields
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode() + b"\n\n"


def _answer(events: list[bytes]) -> bytes:
    return HEAD + b"".join(_chunk(event) for event in events) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def _frame(payload: bytes, cuts: list[int]) -> Frame:
    edges = sorted({0, len(payload), *(cut % len(payload) for cut in cuts)})
    lengths = array("I", (b - a for a, b in pairwise(edges)))
    return Frame(FrameHeader(position=0), array("q", range(100, 100 + len(lengths))), lengths, payload)


def _ordinary(frame: Frame) -> Reading:
    pieces, instants = unframe(frame.payload, frame.instants, frame.lengths)
    return read_body(b"".join(pieces), list(accumulate(map(len, pieces))), instants, "chat")


def test_a_plain_answer_is_one_run() -> None:
    events = [_event({"role": "assistant", "content": ""})]
    events += [_event({"content": f" w{number}"}) for number in range(300)]
    events += [_event({}, "length"), _event({}, usage={"completion_tokens": 300})]
    payload = _answer(events)
    runs = find_runs(payload, len(HEAD))
    assert [len(run.texts) for run in runs] == [300]
    frame = _frame(payload, list(range(0, len(payload), 97)))
    assert read_frame(frame, LINE) == _ordinary(frame)


_texts = st.text(alphabet=st.sampled_from(list('ab "\\\n\t{}é🙂\x00\x01:0f')), max_size=6)
_deltas = st.one_of(
    st.builds(lambda text: {"content": text}, _texts),
    st.builds(lambda text: {"content": text}, st.sampled_from([" word", " other", " a"])),
    st.builds(lambda text: {"reasoning_content": text}, st.sampled_from([" hm", " so"])),
    st.just({"role": "assistant", "content": ""}),
    st.just({"tool_calls": [{"index": 0, "function": {"arguments": "x"}}]}),
)
_blocks = st.lists(st.tuples(_deltas, st.integers(1, 7), st.integers(4, 6)), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(blocks=_blocks, cuts=st.lists(st.integers(0, 100_000), max_size=40), at_the_end=st.booleans())
def test_both_readers_agree_on_any_mixture(
    blocks: list[tuple[dict[str, Any], int, int]], cuts: list[int], at_the_end: bool
) -> None:
    events = [_event(delta, created=created) for delta, count, created in blocks for _ in range(count)]
    if at_the_end:
        events += [
            _event({"content": "last"}, "stop"),
            _event({}, usage={"completion_tokens": 4, "prompt_tokens": 2}),
        ]
    frame = _frame(_answer(events), cuts)
    assert read_frame(frame, LINE) == _ordinary(frame)


@pytest.mark.parametrize("cut", [1, 200, 1_000, 2_500])
def test_an_answer_that_was_cut_off_reads_the_same(cut: int) -> None:
    payload = _answer([_event({"content": f" w{number}"}) for number in range(40)])[:-cut]
    frame = _frame(payload, list(range(0, len(payload), 61)))
    assert read_frame(frame, LINE) == _ordinary(frame)


def test_a_text_that_imitates_framing_is_only_text() -> None:
    events = [_event({"content": " x"}) for _ in range(6)]
    events += [_event({"content": '"},"finish_reason":null}]}\n\n\r\n5\r\ndata: '}), *events]
    frame = _frame(_answer(events), [50, 900])
    reading = read_frame(frame, LINE)
    assert reading == _ordinary(frame)
    assert reading.chunk_count == 13


def test_chunks_that_say_more_than_text_are_left_to_the_ordinary_reader() -> None:
    plain = [_event({"content": " x"}, usage={"completion_tokens": 3}) for _ in range(6)]
    assert find_runs(_answer(plain), len(HEAD)) == []
    ids = [
        b'data: {"choices":[{"index":0,"delta":{"content":" x"},"token_ids":[1,2],"finish_reason":null}]}\n\n'
    ] * 6
    assert find_runs(_answer(ids), len(HEAD)) == []
    frame = _frame(_answer(ids), [])
    assert read_frame(frame, LINE).output_tokens == 12
