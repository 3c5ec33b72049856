"""Reads a captured answer: which chunks carried tokens, when, how many, and how it ended.

Pure functions over bytes and instants; nothing here knows a socket. They run after a stream has ended, so
that reading JSON costs the clock nothing.

A content chunk is one that carries at least a token of any kind: text, reasoning, a refusal, a tool call's name or
arguments. A role-only or empty delta, a comment, a usage-only chunk are not. Its instant is the socket read
that brought the end of its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from operator import eq
from typing import Any

import msgspec

from contracts.records import ErrorClass
from flows.load.plan import Kind

DETAIL_CHARS = 300  # enough to recognise an error by, short enough that no prompt is quoted back in full


class Reading(msgspec.Struct):
    """What one answer said. token_ns: the instant of every content chunk, in order.

    coalesced: content chunks whose instant is the same socket read as that of the one before.
    error_class: what the body itself betrays; null when it reads as a complete answer. is_done: `[DONE]`, or the
    dialect's own final event, was seen.
    """

    token_ns: list[int] = []
    event_count: int = 0
    coalesced: int = 0
    is_done: bool = False
    finish_reason: str | None = None
    error_class: ErrorClass | None = None
    error_detail: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    has_usage: bool = False
    text: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] | None = None

    @property
    def chunk_count(self) -> int:
        return len(self.token_ns)


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: dict[str, Any] | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    error: Any = None
    object: str | None = None
    detail: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode
_decode_any = msgspec.json.Decoder().decode


def read_stream(chunks: list[tuple[int, bytes]], kind: Kind = "chat") -> Reading:
    """Read a streamed body. chunks: (CLOCK_MONOTONIC ns, bytes) as they came, HTTP framing taken off.

    Never raises on what a server sent: a body that is no stream, an error object, an event cut in half are
    told by `error_class` (`not_a_stream`, `error_in_stream`, `bad_chunk`, `truncated`, `no_tokens`).
    """
    instants = [at for at, _ in chunks]
    pieces = [piece for _, piece in chunks]
    return read_body(b"".join(pieces), list(accumulate(map(len, pieces))), instants, kind)


def read_body(data: bytes, ends: list[int], instants: list[int], kind: Kind) -> Reading:
    """`read_stream` over joined bytes: ends[i] is the offset in `data` where the piece read at instants[i] stops."""
    reader = reader_of(kind)
    take_events(reader, data, ends, instants)
    return judge_end(reader.finish(), data)


def take_events(reader: ChunkReader, data: bytes, ends: list[int], instants: list[int]) -> None:
    """Give every event of the joined body to the reader, with the instant of the read that ended its line."""
    piece, known = 0, len(ends)
    for end, field, payload in _events(data):
        while piece < known - 1 and ends[piece] < end:
            piece += 1
        reader.take(instants[piece] if instants else 0, field, payload)


def reader_of(kind: Kind) -> ChunkReader:
    return ResponseReader() if kind == "responses" else ChunkReader()


def judge_end(reading: Reading, data: bytes) -> Reading:
    """Say how the answer ended, once all of it was read. data: the body, for one that was no stream at all."""
    if not reading.event_count:
        reading.error_class, reading.error_detail = _not_a_stream(data)
    elif reading.error_class is None:
        if not reading.is_done and reading.finish_reason is None:
            reading.error_class = "truncated"
            reading.error_detail = f"the stream ended after {reading.event_count} events without an end"
        elif not reading.token_ns:
            reading.error_class = "no_tokens"
            reading.error_detail = f"finish_reason {reading.finish_reason}, no token of any kind"
    return reading


def _not_a_stream(data: bytes) -> tuple[ErrorClass, str]:
    if not data.strip():
        return "truncated", "an empty body"
    if data.lstrip()[:1] == b"{":
        try:
            answer = _decode_any(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return "not_a_stream", _quote(data)
        for name in ("error", "detail", "message"):
            if answer.get(name):
                return "not_a_stream", _error_text(answer[name])
    return "not_a_stream", _quote(data)


def _quote(data: bytes | str) -> str:
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    return " ".join(text.split())[:DETAIL_CHARS]


_LINE_END = re.compile(rb"\r\n|\n|\r")
Event = tuple[int, bytes, bytes]  # (offset of the end of its last line, `data` or `error`, payload)


def _events(data: bytes) -> Iterator[Event]:
    """Every event of a stream, whose lines end in LF, CRLF or CR.

    Consecutive `data:` lines are one event only when none of them is whole by itself, so that servers which forget
    the blank line between events are read as well. An event named `error`, and llama.cpp's `error:` lines, are errors.
    A last line without an end counts only if it is whole: what was cut off in it is nobody's event.
    """
    if data[-1:] not in (b"\n", b"\r", b""):
        last = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not _is_whole(data[last:].removeprefix(b"data:").lstrip(b" ")):
            data = data[:last]
    if b"\r" not in data:
        yield from _lf_events(data)
        return
    pending = _Pending()
    at = 0
    while at < len(data):
        found = _LINE_END.search(data, at)
        stop, after = (found.start(), found.end()) if found else (len(data), len(data))
        yield from pending.take(data[at:stop], after)
        at = after
    yield from pending.take(b"", len(data))


def _lf_events(data: bytes) -> Iterator[Event]:
    pending = _Pending()
    at = 0
    for block in data.split(b"\n\n"):
        if block[:6] == b"data: " and b"\n" not in block and not pending.lines:
            end = at + len(block) + 1
            yield end, b"data", block[6:]
            at = end + 1
            continue
        for line in block.split(b"\n"):
            at += len(line) + 1
            yield from pending.take(line, at)
        yield from pending.take(b"", at)
        at += 1


class _Pending:
    """The event that is being read, line by line."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.name = b""

    def take(self, line: bytes, end: int) -> Iterator[Event]:
        if not line:
            if self.lines:
                yield end, self.field, b"\n".join(self.lines)
                self.lines.clear()
            self.name = b""
            return
        name, colon, payload = line.partition(b":")
        payload = payload.removeprefix(b" ")
        if name == b"event":
            self.name = payload
        elif name == b"error" and colon:
            yield end, b"error", payload
        elif name == b"data":
            lines = self.lines
            if not _is_whole(payload):
                lines.append(payload)
                return
            if lines and not _is_open(lines):
                yield end, self.field, b"\n".join(lines)
                lines.clear()
            if lines:
                lines.append(payload)
            else:
                yield end, self.field, payload

    @property
    def field(self) -> bytes:
        return b"error" if self.name == b"error" else b"data"


def _is_whole(payload: bytes) -> bool:
    if payload == b"[DONE]":
        return True
    if payload[:1] != b"{" or payload.rstrip()[-1:] != b"}":
        return False
    try:
        _decode_any(payload)
    except msgspec.DecodeError:
        return False
    return True


def _is_open(held: list[bytes]) -> bool:
    """Whether the held lines begin a JSON object that more lines may still close."""
    return held[0].lstrip()[:1] == b"{"


class ChunkReader:
    """Chat and completions chunks."""

    def __init__(self) -> None:
        self.reading = Reading(token_ns=[])
        self.text: list[str] = []
        self.thought: list[str] = []
        self.calls: dict[tuple[int, int], dict[str, Any]] = {}
        self.usage: dict[str, Any] | None = None
        self.timings: dict[str, Any] | None = None
        self.counted = 0
        self.has_detail = False  # token ids or log probabilities were told

    def take(self, at: int, field: bytes, payload: bytes) -> None:
        reading = self.reading
        reading.event_count += 1
        if payload == b"[DONE]":
            reading.is_done = True
            return
        if field == b"error":
            self.fail("error_in_stream", _told_error(payload))
            return
        try:
            chunk: _Chunk | None = _decode_chunk(payload)
        except msgspec.ValidationError:
            chunk = _tolerate(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.fail("bad_chunk", _quote(payload))
            return
        if chunk is None:
            self.fail("bad_chunk", _quote(payload))
            return
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.timings is not None:
            self.timings = chunk.timings
        choices = chunk.choices
        if choices:
            has_token = False
            for choice in choices:
                if self.take_choice(choice):
                    has_token = True
            if has_token:
                times = reading.token_ns
                if times and times[-1] == at:
                    reading.coalesced += 1
                times.append(at)
        elif chunk.error is not None or chunk.object == "error":
            self.fail("error_in_stream", _error_text(chunk.error if chunk.error is not None else payload))
        elif choices is None and chunk.usage is None and chunk.detail is not None:
            self.fail("error_in_stream", _error_text(chunk.detail))
        if choices and chunk.error is not None:
            self.fail("error_in_stream", _error_text(chunk.error))

    def take_choice(self, choice: _Choice) -> bool:
        if choice.finish_reason is not None:
            self.reading.finish_reason = choice.finish_reason
        delta = choice.delta
        has_token = False
        if delta is not None:
            text = delta.content
            if text:
                has_token = True
                if choice.index == 0:
                    self.text.append(text)
            if delta.reasoning_content or delta.reasoning:
                has_token = True
                if choice.index == 0:
                    self.thought.append(delta.reasoning_content or delta.reasoning or "")
            if delta.refusal:
                has_token = True
            if delta.tool_calls:
                for order, call in enumerate(delta.tool_calls):
                    has_token = self.take_call(choice.index, call, order) or has_token
            if delta.function_call:
                call = {"index": 0, "function": delta.function_call}
                has_token = self.take_call(choice.index, call, 0) or has_token
        elif choice.text:
            has_token = True
            if choice.index == 0:
                self.text.append(choice.text)
        if choice.token_ids or choice.logprobs:
            self.has_detail = True
        if has_token:
            self.counted += _tokens_told(choice)
        return has_token

    def take_call(self, choice: int, call: Any, order: int) -> bool:
        if not isinstance(call, dict):
            return False
        index = call.get("index")
        key = (choice, index if isinstance(index, int) else order)
        known = self.calls.setdefault(key, {"id": None, "name": "", "arguments": ""})
        if call.get("id") and known["id"] is None:
            known["id"] = call["id"]
        function = call.get("function")
        if not isinstance(function, dict):
            return False
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and name:
            # Some servers repeat the whole name in every piece, others send it in pieces.
            known["name"] = name if name.startswith(known["name"]) else known["name"] + name
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        if isinstance(arguments, str) and arguments:
            known["arguments"] += arguments
            return True
        return bool(name)

    def assembled(self) -> list[dict[str, Any]]:
        """The calls in order, each as an answer that was not streamed would hold it."""
        return [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for _, call in sorted(self.calls.items())
        ]

    def fail(self, error_class: ErrorClass, detail: str) -> None:
        if self.reading.error_class is None:
            self.reading.error_class, self.reading.error_detail = error_class, detail

    def take_run(self, instants: list[int], text: str, is_thought: bool) -> None:
        """Chunks that each carried one piece of the same kind of text, at these instants."""
        reading = self.reading
        reading.event_count += len(instants)
        times = reading.token_ns
        before = times[-1:]
        times += instants
        if len(set(instants)) < len(instants) or before == instants[:1]:
            known = before + instants
            reading.coalesced += sum(map(eq, known, known[1:]))
        (self.thought if is_thought else self.text).append(text)
        self.counted += len(instants)

    def finish(self) -> Reading:
        """What was read, put together."""
        reading = self.reading
        reading.text, reading.reasoning = "".join(self.text), "".join(self.thought)
        if self.calls:
            reading.tool_calls = self.assembled()
        if reading.finish_reason in ("error", "abort"):
            self.fail("error_in_stream", f"finish_reason {reading.finish_reason}")
        read_usage(reading, self.usage, self.timings)
        if reading.output_tokens is None and reading.token_ns and self.counted:
            reading.output_tokens = self.counted
        return reading


def _tokens_told(choice: _Choice) -> int:
    """Tokens of a content chunk as the server told them one by one, else 1."""
    if choice.token_ids:
        return len(choice.token_ids)
    logprobs = choice.logprobs
    if logprobs:
        told = logprobs.get("content") or logprobs.get("tokens")
        if isinstance(told, list) and told:
            return len(told)
    return 1


def read_usage(reading: Reading, usage: dict[str, Any] | None, timings: dict[str, Any] | None) -> None:
    """Fill the token counts that the server itself states; what it does not state stays None.

    timings: llama.cpp's own, where `cache_n + prompt_n` are the prompt's tokens.
    """
    if usage:
        reading.prompt_tokens = _count(usage, "prompt_tokens", "input_tokens")
        reading.output_tokens = _count(usage, "completion_tokens", "output_tokens")
        reading.has_usage = reading.output_tokens is not None
        for name in ("prompt_tokens_details", "input_tokens_details"):
            details = usage.get(name)
            if isinstance(details, dict):
                reading.cached_tokens = _count(details, "cached_tokens")
        for name in ("completion_tokens_details", "output_tokens_details"):
            details = usage.get(name)
            if isinstance(details, dict):
                reading.reasoning_tokens = _count(details, "reasoning_tokens")
        if reading.reasoning_tokens is None:
            reading.reasoning_tokens = _count(usage, "reasoning_tokens")
        if reading.cached_tokens is None:
            reading.cached_tokens = _count(usage, "cached_tokens", "prompt_cache_hit_tokens")
    if timings:
        cached, fresh = _count(timings, "cache_n"), _count(timings, "prompt_n")
        if reading.cached_tokens is None:
            reading.cached_tokens = cached
        if reading.prompt_tokens is None and cached is not None and fresh is not None:
            reading.prompt_tokens = cached + fresh
        if reading.output_tokens is None and reading.finish_reason is not None:
            reading.output_tokens = _count(timings, "predicted_n")
            reading.has_usage = reading.output_tokens is not None


def _count(source: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = source.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if isinstance(value, float) and value.is_integer() and value >= 0:
            return int(value)
    return None


def _told_error(payload: bytes) -> str:
    """The text of an event that is an error by its name."""
    try:
        error = _decode_any(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _quote(payload)
    return _error_text(error.get("error") or error if isinstance(error, dict) else error)


def _error_text(error: Any) -> str:
    if isinstance(error, (bytes, str)):
        return _quote(error)
    if isinstance(error, dict):
        parts = [str(error[name]) for name in ("code", "type", "message") if error.get(name) is not None]
        if parts:
            return _quote(": ".join(parts))
    return _quote(msgspec.json.encode(error))


def _tolerate(payload: bytes) -> _Chunk | None:
    """A chunk whose fields have unexpected types: keep what can be understood. None: not an object at all."""
    loose = _decode_any(payload)
    if not isinstance(loose, dict):
        return None
    choices = loose.get("choices")
    chunk = _Chunk(
        choices=None,
        usage=loose.get("usage") if isinstance(loose.get("usage"), dict) else None,
        timings=loose.get("timings") if isinstance(loose.get("timings"), dict) else None,
        error=loose.get("error"),
        object=loose.get("object") if isinstance(loose.get("object"), str) else None,
        detail=loose.get("detail"),
    )
    if isinstance(choices, list):
        chunk.choices = [_tolerate_choice(choice) for choice in choices if isinstance(choice, dict)]
    return chunk


def _tolerate_choice(loose: dict[str, Any]) -> _Choice:
    choice = _Choice(text=loose.get("text") if isinstance(loose.get("text"), str) else None)
    if isinstance(loose.get("index"), int):
        choice.index = loose["index"]
    reason = loose.get("finish_reason")
    if isinstance(reason, dict):  # SGLang's native form: {"type": "stop", "matched": ...}
        reason = reason.get("type")
    choice.finish_reason = None if reason is None else str(reason)
    delta = loose.get("delta")
    if isinstance(delta, dict):
        choice.delta = _Delta(
            content=_plain(delta.get("content")),
            reasoning=_plain(delta.get("reasoning")),
            reasoning_content=_plain(delta.get("reasoning_content")),
            refusal=_plain(delta.get("refusal")),
        )
        calls = delta.get("tool_calls")
        choice.delta.tool_calls = (
            [calls] if isinstance(calls, dict) else calls if isinstance(calls, list) else None
        )
    return choice


def _plain(content: Any) -> str | None:
    """Text out of a content field: a string, or a list of typed parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))
    return None


_RESPONSE_TEXT = ("response.output_text.delta",)
_RESPONSE_THOUGHT = (
    "response.reasoning_text.delta", "response.reasoning_summary_text.delta", "response.reasoning.delta",
)  # fmt: skip
_RESPONSE_CALL = ("response.function_call_arguments.delta", "response.mcp_call_arguments.delta")


class ResponseReader(ChunkReader):
    """The typed events of /v1/responses, which has no `[DONE]` of its own: its final event ends the answer."""

    def take(self, at: int, field: bytes, payload: bytes) -> None:
        reading = self.reading
        reading.event_count += 1
        if payload == b"[DONE]":
            reading.is_done = True
            return
        try:
            event = _decode_any(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            event = None
        if field == b"error" or not isinstance(event, dict):
            if field == b"error":
                self.fail("error_in_stream", _told_error(payload))
            else:
                self.fail("bad_chunk", _quote(payload))
            return
        name, delta = event.get("type"), event.get("delta")
        has_token = False
        if name in _RESPONSE_TEXT and delta:
            self.text.append(str(delta))
            has_token = True
        elif name in _RESPONSE_THOUGHT and delta:
            self.thought.append(str(delta))
            has_token = True
        elif name == "response.refusal.delta" and delta:
            has_token = True
        elif name in _RESPONSE_CALL and delta:
            has_token = self.take_call(0, {**_call_key(event), "function": {"arguments": str(delta)}}, 0)
        elif name == "response.output_item.added" and isinstance(event.get("item"), dict):
            item = event["item"]
            if item.get("type") == "function_call":
                call = {**_call_key(event), "id": item.get("call_id") or item.get("id")}
                self.take_call(0, {**call, "function": {"name": item.get("name")}}, 0)
        elif name in ("response.completed", "response.incomplete", "response.failed"):
            self.end(name, event.get("response"))
        elif name == "error" or (name is None and event.get("error") is not None):
            self.fail("error_in_stream", _error_text(event.get("error") or event))
        if has_token:
            times = reading.token_ns
            if times and times[-1] == at:
                reading.coalesced += 1
            times.append(at)
            self.counted += 1

    def end(self, name: str, response: Any) -> None:
        response = response if isinstance(response, dict) else {}
        if isinstance(response.get("usage"), dict):
            self.usage = response["usage"]
        self.reading.is_done = True
        if name == "response.failed":
            self.fail("error_in_stream", _error_text(response.get("error") or "response.failed"))
        elif name == "response.incomplete":
            details = response.get("incomplete_details")
            reason = details.get("reason") if isinstance(details, dict) else None
            self.reading.finish_reason = "length" if reason == "max_output_tokens" else str(reason)
        else:
            self.reading.finish_reason = "tool_calls" if self.calls else "stop"


def _call_key(event: dict[str, Any]) -> dict[str, Any]:
    return {"index": event.get("output_index") if isinstance(event.get("output_index"), int) else 0}


def read_answer(data: bytes, at: int, kind: Kind = "chat") -> Reading:
    """Read an answer that was not streamed: one JSON object, whose single content chunk came at `at`.

    Without usage its tokens stay None: nothing was streamed that could be counted.
    """
    reading = Reading(token_ns=[])
    try:
        answer = _decode_any(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = None
    if not isinstance(answer, dict):
        reading.error_class, reading.error_detail = "bad_chunk", _quote(data) or "an empty body"
        return reading
    if answer.get("error") is not None and not answer.get("choices"):
        reading.error_class, reading.error_detail = "error_in_stream", _error_text(answer["error"])
        return reading
    reading.event_count, reading.is_done = 1, True
    if kind == "responses":
        _read_output(reading, answer)
    else:
        _read_choices(reading, answer)
    usage, timings = answer.get("usage"), answer.get("timings")
    read_usage(
        reading, usage if isinstance(usage, dict) else None, timings if isinstance(timings, dict) else None
    )
    if reading.text or reading.reasoning or reading.tool_calls:
        reading.token_ns = [at]
    elif reading.error_class is None:
        reading.error_class = "no_tokens"
        reading.error_detail = f"finish_reason {reading.finish_reason}, no token of any kind"
    return reading


def _read_choices(reading: Reading, answer: dict[str, Any]) -> None:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        reading.error_class, reading.error_detail = "bad_chunk", "no choices in the answer"
        return
    first = choices[0]
    reason = first.get("finish_reason")
    reading.finish_reason = None if reason is None else str(reason)
    message = first.get("message")
    if not isinstance(message, dict):
        reading.text = _plain(first.get("text")) or ""
        return
    reading.text = _plain(message.get("content")) or ""
    reading.reasoning = _plain(message.get("reasoning_content")) or _plain(message.get("reasoning")) or ""
    gather = ChunkReader()
    for order, call in enumerate(message.get("tool_calls") or []):
        gather.take_call(0, {**call, "index": order} if isinstance(call, dict) else call, order)
    reading.tool_calls = gather.assembled() or None


def _read_output(reading: Reading, answer: dict[str, Any]) -> None:
    gather = ResponseReader()
    for order, item in enumerate(answer.get("output") or []):
        if not isinstance(item, dict):
            continue
        if item.get("type") == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            gather.take_call(0, {"index": order, "id": item.get("call_id"), "function": function}, order)
        elif item.get("type") == "reasoning":
            reading.reasoning += _plain(item.get("content")) or _plain(item.get("summary")) or ""
        else:
            reading.text += _plain(item.get("content")) or ""
    reading.tool_calls = gather.assembled() or None
    status = answer.get("status")
    name = {"incomplete": "response.incomplete", "failed": "response.failed"}.get(
        str(status), "response.completed"
    )
    gather.end(name, answer)
    reading.finish_reason = gather.reading.finish_reason
    reading.error_class, reading.error_detail = gather.reading.error_class, gather.reading.error_detail
