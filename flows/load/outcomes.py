"""Turns spool frames into request records: takes the HTTP framing off, reads the stream, names the outcome."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate

import httptools
import msgspec

from contracts.records import ErrorClass, Outcome, Request
from flows.load.clock import Epoch
from flows.load.plan import WindowSpec
from flows.load.planfile import PlanLine
from flows.load.runs_of_text import TextRun, decode_text, find_runs
from flows.load.spool import Frame, FrameHeader
from flows.load.streams import (
    ChunkReader,
    Reading,
    judge_end,
    read_answer,
    read_body,
    reader_of,
    take_events,
)

encode_record = msgspec.json.Encoder().encode


class _Body:
    """Collects a response's body with the instant of the socket read that each piece came in."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.instants: list[int] = []
        self.at = 0
        self.status = 0
        self.parser = httptools.HttpResponseParser(self)

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.instants.append(self.at)

    def on_message_begin(self) -> None:
        # An informational response (1xx) came before: what follows is the answer.
        self.pieces.clear()
        self.instants.clear()


def unframe(payload: bytes, instants: Iterable[int], lengths: Iterable[int]) -> tuple[list[bytes], list[int]]:
    """Take HTTP/1.1 framing off a response as it was read. Returns body pieces and the instant of each."""
    body = _Body()
    at = 0
    feed = body.parser.feed_data
    try:
        for instant, length in zip(instants, lengths, strict=True):
            body.at = instant
            feed(payload[at : at + length])
            at += length
    except httptools.HttpParserError:
        pass  # what was readable up to here counts; the transport has told the error
    return body.pieces, body.instants


def read_frame(frame: Frame, line: PlanLine) -> Reading:
    """What the answer of one frame says."""
    if line.is_streamed and line.kind != "responses":
        reading = _read_by_runs(frame, line)
        if reading is not None:
            return reading
    pieces, instants = unframe(frame.payload, frame.instants, frame.lengths)
    data = b"".join(pieces)
    if not line.is_streamed:
        return read_answer(data, instants[-1] if instants else 0, line.kind)
    return read_body(data, list(accumulate(map(len, pieces))), instants, line.kind)


def _read_by_runs(frame: Frame, line: PlanLine) -> Reading | None:
    """Read runs of like chunks at once and the rest as ever; None where the answer has no such run."""
    payload = frame.payload
    body_at = payload.find(b"\r\n\r\n") + 4
    head = payload[:body_at].lower()
    if body_at < 4 or b"transfer-encoding: chunked" not in head or b"content-encoding" in head:
        return None
    runs = find_runs(payload, body_at)
    if not runs:
        return None
    ends = list(accumulate(frame.lengths))
    times = frame.instants.tolist()
    body = _Body()
    reader = reader_of(line.kind)
    at = segment = 0
    try:
        for run in runs:
            segment = _feed(body, payload, at, run.start, ends, times, segment)
            if not _take_all(body, reader):
                return None
            instants = []
            for end in run.line_ends:
                while ends[segment] < end:
                    segment += 1
                instants.append(times[segment])
            reader.take_run(instants, _join(run), run.is_thought)
            at = run.stop
        _feed(body, payload, at, len(payload), ends, times, segment)
        if not _take_all(body, reader, is_last=True):
            return None
    except (httptools.HttpParserError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return judge_end(reader.finish(), b"")


def _feed(
    body: _Body, payload: bytes, start: int, stop: int, ends: list[int], times: list[int], segment: int
) -> int:
    """Take the framing off payload[start:stop], socket read by socket read. Returns the read that it ends in."""
    at = start
    while at < stop:
        while ends[segment] <= at:
            segment += 1
        end = min(stop, ends[segment])
        body.at = times[segment]
        body.parser.feed_data(payload[at:end])
        at = end
    return segment


def _take_all(body: _Body, reader: ChunkReader, is_last: bool = False) -> bool:
    """Read the events between two runs. False when a run would begin in the middle of an event."""
    data = b"".join(body.pieces)
    if not is_last and data and not data.endswith(b"\n\n"):
        return False
    take_events(reader, data, list(accumulate(map(len, body.pieces))), body.instants)
    body.pieces.clear()
    body.instants.clear()
    return True


def _join(run: TextRun) -> str:
    whole = b"".join(run.texts)
    if b"\\" not in whole:
        return whole.decode("utf-8")
    return "".join(decode_text(text) for text in run.texts)


def request_record(spec: WindowSpec, line: PlanLine, frame: Frame, process: int, epoch: Epoch) -> Request:
    """The record of one ended request."""
    header = frame.header
    record = _blank(spec, line, process)
    record.endpoint = header.endpoint
    record.http_status, record.retry_after_s = header.http_status, header.retry_after_s
    record.planned_ns, record.sent_ns, record.end_ns = header.planned_ns, header.sent_ns, header.end_ns
    record.sent_at = None if header.sent_ns is None else epoch.wall(header.sent_ns)
    record.first_byte_ns = frame.instants[0] if frame.instants else None
    if frame.payload:
        _fill(record, read_frame(frame, line), header, spec.keep_text or spec.is_text_private, frame.payload)
    else:
        record.outcome, record.error_class, record.error_detail = (
            header.outcome,
            header.error_class,
            header.error_detail,
        )
    return record


def unanswered_record(
    spec: WindowSpec,
    line: PlanLine,
    process: int,
    epoch: Epoch | None,
    sent: tuple[int, int] | None,
    why: ErrorClass = "aborted",
) -> Request:
    """The record of a request that has no frame: cancelled when it had been sent, else unsent."""
    record = _blank(spec, line, process)
    if sent is None:
        record.outcome = "unsent"
        return record
    record.outcome, record.error_class = "cancelled", why
    record.planned_ns, record.sent_ns = sent
    record.sent_at = None if epoch is None else epoch.wall(record.sent_ns)
    return record


def _blank(spec: WindowSpec, line: PlanLine, process: int) -> Request:
    return Request(
        campaign=spec.campaign,
        run_id=spec.run_id,
        cell_id=spec.cell_id,
        request_id=line.request_id,
        phase=line.phase,
        index=line.index,
        session_id=line.session_id,
        turn=line.turn,
        user=line.user,
        process=process,
        outcome="unsent",
        asked_prompt_tokens=line.asked_prompt_tokens,
        asked_output_tokens=line.asked_output_tokens,
        expected_cached_tokens=line.expected_cached_tokens,
        prompt_sha256=line.prompt_sha256,
        first_block_sha256=line.first_block_sha256,
    )


def _fill(record: Request, reading: Reading, header: FrameHeader, keep_text: bool, payload: bytes) -> None:
    _fill_tokens(record, reading, keep_text)
    outcome, error_class, detail = _judge(header, reading)
    record.outcome, record.error_class, record.error_detail = outcome, error_class, detail


def _fill_tokens(record: Request, reading: Reading, keep_text: bool) -> None:
    times = reading.token_ns
    record.chunk_count, record.event_count = len(times), reading.event_count
    record.coalesced_chunks = reading.coalesced
    if times:
        record.first_token_ns, record.last_token_ns = times[0], times[-1]
        if record.sent_ns is not None:
            gaps = array("q", times)
            record.chunk_gap_ns = [
                later - sooner for later, sooner in zip(times, [record.sent_ns, *gaps[:-1]], strict=True)
            ]
    record.prompt_tokens, record.cached_tokens = reading.prompt_tokens, reading.cached_tokens
    record.output_tokens, record.reasoning_tokens = reading.output_tokens, reading.reasoning_tokens
    if reading.output_tokens is not None:
        record.output_token_source = "usage" if reading.has_usage else "counted"
    record.finish_reason = reading.finish_reason
    if times:
        record.output_sha256 = hashlib.sha256(reading.text.encode("utf-8", "surrogatepass")).hexdigest()
    if keep_text:
        record.output_text = _clean(reading.text) if times else None
        record.reasoning_text = _clean(reading.reasoning) or None
        record.tool_calls = reading.tool_calls


def _clean(text: str) -> str:
    """A lone surrogate cannot be written as JSON text; it becomes the replacement character."""
    return text.encode("utf-8", "replace").decode("utf-8", "replace") if not text.isascii() else text


def _judge(header: FrameHeader, reading: Reading) -> tuple[Outcome, ErrorClass | None, str | None]:
    """The outcome, once the transport and the body have both been heard."""
    status = header.http_status
    if header.outcome == "cancelled":
        return "cancelled", header.error_class, header.error_detail
    if status is not None and status >= 400:
        return "failed", _status_class(status), reading.error_detail or header.error_detail
    if status is not None and status >= 300:
        return "failed", "not_a_stream", f"HTTP {status}: a redirect is no answer"
    if header.outcome == "failed":
        # After [DONE] the answer is complete: how the connection ended then no longer matters to it.
        if reading.is_done and reading.error_class is None:
            return "ok", None, None
        if reading.error_class in ("error_in_stream", "bad_chunk", "not_a_stream"):
            return "failed", reading.error_class, reading.error_detail
        error_class = header.error_class
        if error_class == "chunk_timeout" and not reading.token_ns:
            error_class = "first_token_timeout"
        return "failed", error_class, header.error_detail
    if reading.error_class is not None:
        return "failed", reading.error_class, reading.error_detail
    return "ok", None, None


def _status_class(status: int) -> ErrorClass:
    if status == 429:
        return "http_429"
    if status == 503:
        return "http_503"
    return "http_5xx" if status >= 500 else "http_4xx"


def whole_frames(frames: Iterable[Frame], parts: dict[int, list[Frame]]) -> Iterator[Frame]:
    """Ended requests, the parts of a long answer joined to its end; `parts` keeps those that have none yet."""
    for frame in frames:
        position = frame.header.position
        if frame.header.is_part:
            parts.setdefault(position, []).append(frame)
            continue
        before = parts.pop(position, None)
        yield frame if before is None else _joined(before, frame)


def _joined(parts: list[Frame], last: Frame) -> Frame:
    instants, lengths = array("q"), array("I")
    for frame in (*parts, last):
        instants += frame.instants
        lengths += frame.lengths
    return Frame(last.header, instants, lengths, b"".join(f.payload for f in (*parts, last)))
