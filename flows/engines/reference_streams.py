"""The reference server's answers on the wire: chunk by chunk, in every form that a scenario can ask for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from flows.engines.reference_server import ReferenceServer, Step, Stream

GO, END, CLOSE, RESET, HANG = range(5)
MS = 1_000_000
CREATED = 1_764_000_000
_encode = msgspec.json.encode
LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}
HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><h1>Sign in</h1></body></html>"
NOW = -1  # a step that comes after every other stream has had its turn


def is_split_at(body: dict[str, Any], side: str) -> bool:
    """Whether another server does a part of this request (vLLM's Nixl protocol).

    side: do_remote_decode: it will go on elsewhere; do_remote_prefill: it comes with the KV of its prompt.
    """
    transfer = body.get("kv_transfer_params")
    return isinstance(transfer, dict) and transfer.get(side) is True


class Writer:
    """One answer. pieces: its tokens as text; calls: tool calls made instead of text; wait_ns: until the first."""

    def __init__(
        self,
        server: ReferenceServer,
        stream: Stream,
        body: dict[str, Any],
        pieces: list[str],
        calls: list[tuple[str, str]],
        reason: str,
        wait_ns: int,
        draw: random.Random,
    ) -> None:
        self.server, self.stream_, self.body, self.draw = server, stream, body, draw
        self.pieces, self.calls, self.reason, self.wait_ns = pieces, calls, reason, wait_ns
        self.scenario = stream.scenario
        self.form = stream.scenario.stream
        self.kind = stream.kind
        self.line = LINE_ENDS[self.form.line_end]
        self.end_of_event = self.line * (2 if self.form.separator == "blank" else 1)
        prefix = {"chat": "chatcmpl", "completions": "cmpl", "responses": "resp"}[self.kind]
        self.id = f"{prefix}-{stream.number or 0:010d}"
        self.model = str(body.get("model"))
        self.made = 0
        self.events = 0
        if calls:
            self.reason = "tool_calls"
            self.pieces = []

    # Counting

    def usage(self, output_tokens: int) -> dict[str, Any]:
        """What the server says that it counted, with the scenario's factors."""
        told, stream = self.scenario.usage, self.stream_
        names = (
            ("input_tokens", "output_tokens")
            if self.kind == "responses"
            else ("prompt_tokens", "completion_tokens")
        )
        prompt = round(stream.prompt_tokens * told.prompt_factor)
        output = round((output_tokens + self.scenario.tokens.invisible) * told.output_factor)
        usage: dict[str, Any] = {names[0]: prompt, names[1]: output, "total_tokens": prompt + output}
        details = "input_tokens_details" if self.kind == "responses" else "prompt_tokens_details"
        if told.cached == "true":
            usage[details] = {"cached_tokens": round(stream.cached * told.cached_factor)}
        elif told.cached == "zero":
            usage[details] = {"cached_tokens": 0}
        reasoning = self.scenario.tokens.reasoning
        if reasoning and told.reasoning:
            name = "output_tokens_details" if self.kind == "responses" else "completion_tokens_details"
            usage[name] = {"reasoning_tokens": min(reasoning, output_tokens)}
        return usage

    def _tells_usage(self) -> bool:
        options = self.body.get("stream_options")
        asked = isinstance(options, dict) and options.get("include_usage") is True
        return self.scenario.usage.mode != "none" and (
            asked or self.scenario.usage.unasked or self.kind == "responses"
        )

    # Framing

    def event(self, payload: bytes, name: str | None = None) -> bytes:
        """One SSE event."""
        start = b"data: " if self.form.data_space else b"data:"
        head = b"event: " + name.encode() + self.line if name else b""
        return head + start + payload + self.end_of_event

    def wire(self, data: bytes) -> bytes:
        """Bytes as they go on the wire: one HTTP chunk, or plain where the body ends with the connection."""
        return data if self.form.framing == "close" else b"%x\r\n%b\r\n" % (len(data), data)

    def chunk(
        self, delta: dict[str, Any], finish: str | None = None, extra: dict[str, Any] | None = None
    ) -> bytes:
        """One chat or completions chunk."""
        self.events += 1
        identity = f"{self.id}-{self.events}" if self.form.ids == "change" else self.id
        choice: dict[str, Any] = {"index": 0}
        if self.kind == "chat":
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        choice |= {"logprobs": None, "finish_reason": finish}
        body: dict[str, Any] = {
            "id": identity,
            "object": "chat.completion.chunk" if self.kind == "chat" else "text_completion",
            "created": CREATED,
            "model": self.model,
            "choices": [choice],
        }
        if self.scenario.usage.mode == "every_chunk" and self._tells_usage():
            body["usage"] = self.usage(self.made)
        if self.form.pad_bytes:
            body["padding"] = "x" * self.form.pad_bytes
        return self.event(_encode(body | (extra or {})))

    # A stream

    def stream(self) -> Iterator[Step]:
        """The steps of a streamed answer."""
        form, breaks, timing = self.form, self.scenario.breaks, self.scenario.timing
        self.stream_.reason = self.reason
        if form.body != "sse":
            yield from self._not_a_stream()
            return
        head = (
            b"HTTP/1.1 200 OK\r\nserver: reference\r\ncontent-type: "
            + form.content_type.encode()
            + (b"\r\nconnection: close" if form.framing == "close" else b"\r\ntransfer-encoding: chunked")
            + b"\r\n\r\n"
        )
        if form.framing == "close":
            self.stream_.connection.keep_alive = False
        wait = self.wait_ns
        is_paced = wait > 0 or timing.itl_ms > 0
        if timing.headers == "at_once":
            yield 0, head, 0, GO
            head = b""
        if self.kind == "responses":
            head = self._wire_many(
                [self._typed("response.created", response=self._response("in_progress"))], head
            )
            yield 0, head, 0, GO
            head = b""
        elif form.role == "at_once" and self.kind == "chat":
            yield 0, head + self.wire(self.chunk({"role": "assistant", "content": ""})), 0, GO
            head = b""
        first = self._first_events(head)
        if form.ping_every_s and wait > form.ping_every_s * 1000 * MS:
            every = round(form.ping_every_s * 1000 * MS)
            while wait > every:
                yield every, self.wire(b": ping" + self.line * 2), 0, GO
                wait -= every
        if breaks.after_tokens == 0 and self._is_broken():
            yield wait or (NOW if not is_paced else 0), first, 0, GO
            yield from self._break()
            if not breaks.stall_s:
                return
            wait, first = 0, b""
        yield from self._tokens(first, wait, is_paced)

    def _first_events(self, head: bytes) -> bytes:
        """What comes with the first token: the role, and empty deltas where the scenario wants them."""
        out = head
        if self.kind == "chat" and self.form.role == "with_first":
            out += self.wire(self.chunk({"role": "assistant", "content": ""}))
        if self.kind != "responses":
            for _ in range(self.form.empty_deltas):
                out += self.wire(self.chunk({"content": ""}))
        return out

    def _tokens(self, first: bytes, wait: int, is_paced: bool) -> Iterator[Step]:
        breaks, timing = self.scenario.breaks, self.scenario.timing
        events: Iterator[tuple[bytes, int]] = self._content()
        if timing.holds_back_tokens:
            events, wait = self._held_back(list(events), timing.holds_back_tokens, wait)
        group = max(1, self.form.events_per_write)
        done, is_first = 0, True
        # Made one by one as they fall due: a request that arrives must not wait for another's whole answer.
        while batch := list(islice(events, group)):
            tokens = sum(count for _, count in batch)
            data = b"".join(part for part, _ in batch)
            if is_first:
                gap, data, is_first = wait, first + data, False
            else:
                gap = sum(self.server.gap_ns(self.stream_, self.draw) for _ in batch)
            if gap <= 0:
                gap = NOW
            yield from self._split(gap, data, tokens)
            done += tokens
            if self._is_broken() and breaks.after_tokens and done >= breaks.after_tokens:
                gap = self.server.gap_ns(self.stream_, self.draw) or NOW
                yield gap, b"", 0, GO
                yield from self._break()
                if not breaks.stall_s:
                    return
        if is_first:
            yield wait or NOW, first, 0, GO
        yield from self._ending()

    def _held_back(
        self, events: list[tuple[bytes, int]], count: int, wait: int
    ) -> tuple[Iterator[tuple[bytes, int]], int]:
        """Text that is kept until later comes all at once, with the next chunk: a parser that buffers does so."""
        held, rest = events[:count], events[count:]
        data = b"".join(part for part, _ in held)
        tokens = sum(carried for _, carried in held)
        wait += sum(self.server.gap_ns(self.stream_, self.draw) for _ in held[1:])
        if not rest:
            return iter([(data, tokens)]), wait
        rest[0] = (data + rest[0][0], tokens + rest[0][1])
        return iter(rest), wait + self.server.gap_ns(self.stream_, self.draw)

    def _split(self, gap: int, data: bytes, tokens: int) -> Iterator[Step]:
        """The event in as many socket writes as the scenario wants, cut in the middle of a character where it says so."""
        if self.form.splits_utf8:
            cut = next((at + 1 for at, byte in enumerate(data) if byte >= 0x80), 0)
            if cut:
                yield gap, data[:cut], 0, GO
                yield MS, data[cut:], tokens, GO
                return
        if self.form.segment == "bytes":
            yield gap, data[:1], 0, GO
            for at in range(1, len(data) - 1):
                yield NOW, data[at : at + 1], 0, GO
            yield NOW, data[len(data) - 1 :], tokens, GO
            return
        if self.form.splits > 1 and len(data) > self.form.splits:
            size = -(-len(data) // self.form.splits)
            parts = [data[at : at + size] for at in range(0, len(data), size)]
            yield gap, parts[0], 0, GO
            for part in parts[1:-1]:
                yield MS, part, 0, GO
            yield MS, parts[-1], tokens, GO
            return
        yield gap, data, tokens, GO

    def _content(self) -> Iterator[tuple[bytes, int]]:
        """(wire bytes, tokens) of every content chunk, the finish chunk too where it carries text."""
        if self.calls:
            yield from self._call_chunks()
            return
        tokens, form = self.scenario.tokens, self.form
        is_plain = (
            form == type(form)() and self.scenario.usage.mode in ("final", "none") and self.kind == "chat"
        )
        if is_plain and not tokens.reasoning and tokens.empty_every == 0 and tokens.chunks_per_token == 1:
            yield from self._plain_content()
            return
        for number, (group, is_thought, is_last) in enumerate(self._groups()):
            text = "".join(group)
            self.made += len(group)
            finish = self.reason if is_last and tokens.text_on_finish else None
            if tokens.empty_every and number % tokens.empty_every == tokens.empty_every - 1 and not is_last:
                text = ""
            comment = self.wire(b": ping" + self.line * 2) if form.comments else b""
            if tokens.chunks_per_token > 1 and len(text) >= tokens.chunks_per_token:
                size = -(-len(text) // tokens.chunks_per_token)
                parts = [text[start : start + size] for start in range(0, len(text), size)]
                for part in parts[:-1]:
                    yield comment + self.wire(self._text_event(part, is_thought, None)), 0
                text = parts[-1]
            yield comment + self.wire(self._text_event(text, is_thought, finish)), len(group)

    def _groups(self) -> Iterator[tuple[list[str], bool, bool]]:
        """(tokens of a chunk, whether they are reasoning, whether they are the last)."""
        pieces, thought = self.pieces, self.scenario.tokens.reasoning
        count, at, known = max(1, self.scenario.tokens.per_chunk), 0, len(self.pieces)
        while at < known:
            stop = at + count
            if at < thought < stop:
                stop = thought
            yield pieces[at:stop], at < thought, stop >= known
            at = stop

    def _plain_content(self) -> Iterator[tuple[bytes, int]]:
        """The common form, without building JSON for every token."""
        finish = self.reason if self.scenario.tokens.text_on_finish else None
        marker = "\u0001"
        before, _, after = self.chunk({"content": marker}).partition(_encode(marker)[1:-1])
        for group, _, is_last in self._groups():
            self.made += len(group)
            if finish and is_last:
                yield self.wire(self.chunk({"content": "".join(group)}, finish)), len(group)
                continue
            data = b"".join((before, _encode("".join(group))[1:-1], after))
            yield b"%x\r\n%b\r\n" % (len(data), data), len(group)

    def _text_event(self, text: str, is_thought: bool, finish: str | None) -> bytes:
        if self.kind == "responses":
            name = "response.reasoning_text.delta" if is_thought else "response.output_text.delta"
            return self._typed(name, delta=text, item_id="msg_0", output_index=0)
        if not is_thought:
            return self.chunk({"content": text}, finish)
        field = self.scenario.tokens.reasoning_field
        names = ("reasoning", "reasoning_content") if field == "both" else (field,)
        return self.chunk({name: text for name in names}, finish)

    def _call_chunks(self) -> Iterator[tuple[bytes, int]]:
        """Tool calls: the name first, then the arguments in pieces; parallel calls one after the other."""
        pieces = max(1, self.scenario.answers.tool_pieces)
        for index, (name, arguments) in enumerate(self.calls):
            size = max(1, -(-len(arguments) // pieces))
            parts = [arguments[at : at + size] for at in range(0, len(arguments), size)]
            identity = f"call_{index}_{self.stream_.number or 0}"
            self.made += 1
            if self.kind == "responses":
                item = {"type": "function_call", "call_id": identity, "name": name, "arguments": ""}
                yield self.wire(self._typed("response.output_item.added", item=item, output_index=index)), 0
            else:
                call = {
                    "index": index,
                    "id": identity,
                    "type": "function",
                    "function": {"name": name, "arguments": ""},
                }
                yield self.wire(self.chunk({"tool_calls": [call]})), 1
            for part in parts:
                self.made += 1
                if self.kind == "responses":
                    name_ = "response.function_call_arguments.delta"
                    yield self.wire(self._typed(name_, delta=part, output_index=index, item_id=identity)), 1
                else:
                    call = {"index": index, "function": {"arguments": part}}
                    yield self.wire(self.chunk({"tool_calls": [call]})), 1

    def _ending(self) -> Iterator[Step]:
        form, tells = self.form, self._tells_usage()
        out = b""
        if self.kind == "responses":
            status = "incomplete" if self.reason == "length" else "completed"
            out += self.wire(self._typed(f"response.{status}", response=self._response(status)))
        else:
            if not (self.scenario.tokens.text_on_finish and self.pieces and not self.calls):
                extra = (
                    {"usage": self.usage(self.made)}
                    if tells and self.scenario.usage.mode == "with_finish"
                    else {}
                )
                out += self.wire(self.chunk({}, self.reason, extra))
            if tells and self.scenario.usage.mode in ("final", "every_chunk"):
                out += self.wire(self._usage_event())
            if form.done:
                out += self.wire(self.event(b"[DONE]"))
        if not form.ends:
            yield 0, out, 0, HANG
            return
        if form.framing == "close":
            yield 0, out, 0, END
        else:
            yield 0, out + b"0\r\n\r\n", 0, END

    def _usage_event(self) -> bytes:
        body: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk" if self.kind == "chat" else "text_completion",
            "created": CREATED,
            "model": self.model,
            "choices": [],
            "usage": self.usage(self.made),
        }
        if self.scenario.usage.timings:
            cached = self.stream_.cached
            body["timings"] = {
                "cache_n": cached,
                "prompt_n": self.stream_.prompt_tokens - cached,
                "predicted_n": self.made,
            }
        return self.event(_encode(body))

    # Breaking

    def _is_broken(self) -> bool:
        breaks = self.scenario.breaks
        if self.stream_.number is None:
            return False  # readiness checks are always answered
        return bool(breaks.error or breaks.connection or breaks.stall_s or breaks.stalls_for_ever)

    def _break(self) -> Iterator[Step]:
        breaks = self.scenario.breaks
        if breaks.stalls_for_ever:
            if breaks.pings_while_stalled:
                while True:
                    yield 200 * MS, self.wire(b": ping" + self.line * 2), 0, GO
            yield 0, b"", 0, HANG
            return
        if breaks.stall_s:
            yield round(breaks.stall_s * 1000 * MS), b"", 0, GO
            return
        if breaks.error is not None:
            self.stream_.reason = "error"
            yield 0, self._error_bytes(), 0, GO
            if breaks.connection is None:
                yield 0, b"" if self.form.framing == "close" else b"0\r\n\r\n", 0, END
                return
        yield 0, b"", 0, RESET if breaks.connection == "reset" else CLOSE

    def _error_bytes(self) -> bytes:
        breaks = self.scenario.breaks
        inner = {"message": breaks.message, "type": "InternalServerError", "param": None, "code": 500}
        if breaks.error == "text":
            return self.wire(self.event(b"Internal Server Error: " + breaks.message.encode()))
        if breaks.error == "event":
            return self.wire(self.event(_encode(inner), "error"))
        if breaks.error == "flat_object":
            return self.wire(self.event(_encode({"object": "error", **inner})))
        if breaks.error == "finish":
            return self.wire(self.chunk({}, "error")) + self.wire(self.event(b"[DONE]"))
        if self.kind == "responses":
            return self.wire(
                self._typed("response.failed", response=self._response("failed") | {"error": inner})
            )
        out = self.wire(self.event(_encode({"error": inner})))
        return out + (self.wire(self.event(b"[DONE]")) if breaks.error == "with_done" else b"")

    def _not_a_stream(self) -> Iterator[Step]:
        kinds = {
            "html": (HTML, "text/html; charset=utf-8"),
            "text": (b"upstream connect error or disconnect/reset before headers", "text/plain"),
            "json": (_encode(self.whole()), "application/json"),
            "empty": (b"", self.form.content_type),
        }
        data, content_type = kinds[self.form.body]
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(data)}\r\n\r\n"
        yield self.wait_ns or NOW, head.encode() + data, 0, END

    # Whole answers

    def answer(self) -> Iterator[Step]:
        """The steps of an answer that is not streamed."""
        breaks = self.scenario.breaks
        self.stream_.reason = self.reason
        count = self._count_whole()
        gaps = sum(self.server.gap_ns(self.stream_, self.draw) for _ in range(max(0, count - 1)))
        wait = self.wait_ns + gaps
        if self._is_broken():
            if breaks.stalls_for_ever:
                yield wait or NOW, b"", 0, HANG
                return
            if breaks.stall_s:
                wait += round(breaks.stall_s * 1000 * MS)
            elif breaks.error is not None:
                self.stream_.reason = "error"
                data = _encode(
                    {"error": {"message": breaks.message, "type": "InternalServerError", "code": 500}}
                )
                yield wait or NOW, self._plain_head(data, 500) + data, 0, END
                return
            else:
                yield wait or NOW, b"", 0, RESET if breaks.connection == "reset" else CLOSE
                return
        data = HTML if self.form.body == "html" else _encode(self.whole())
        yield wait or NOW, self._plain_head(data) + data, count, END

    def _count_whole(self) -> int:
        if not self.calls:
            self.made = len(self.pieces)
        else:
            self.made = sum(1 + max(1, self.scenario.answers.tool_pieces) for _ in self.calls)
        return self.made

    def _plain_head(self, data: bytes, status: int = 200) -> bytes:
        text = "OK" if status == 200 else "Internal Server Error"
        kind = "text/html" if data is HTML else "application/json"
        return f"HTTP/1.1 {status} {text}\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n".encode()

    def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        made = self._count_whole()
        reasoning = self.scenario.tokens.reasoning
        text, thought = "".join(self.pieces[reasoning:]), "".join(self.pieces[:reasoning])
        if self.kind == "responses":
            return self._response("incomplete" if self.reason == "length" else "completed")
        body: dict[str, Any] = {"id": self.id, "created": CREATED, "model": self.model}
        if self.kind == "completions":
            body["object"] = "text_completion"
            body["choices"] = [{"index": 0, "text": text, "logprobs": None, "finish_reason": self.reason}]
        else:
            message: dict[str, Any] = {"role": "assistant", "content": text if not self.calls else None}
            if thought:
                message["reasoning_content"] = thought
            if self.calls:
                message["tool_calls"] = [
                    {
                        "id": f"call_{at}",
                        "type": "function",
                        "function": {"name": name, "arguments": arguments},
                    }
                    for at, (name, arguments) in enumerate(self.calls)
                ]
            body["object"] = "chat.completion"
            body["choices"] = [{"index": 0, "message": message, "finish_reason": self.reason}]
        if self.scenario.usage.mode != "none":
            body["usage"] = self.usage(made)
        if is_split_at(self.body, "do_remote_decode"):
            # The prefill side of a split names where its KV lies; nothing is there to be fetched.
            body["kv_transfer_params"] = {
                "do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": self.id,
                "remote_block_ids": [], "remote_host": "127.0.0.1", "remote_port": 0,
            }  # fmt: skip
        return body

    # Responses

    def _typed(self, name: str, **fields: Any) -> bytes:
        self.events += 1
        return self.event(_encode({"type": name, "sequence_number": self.events, **fields}), name)

    def _wire_many(self, events: list[bytes], before: bytes = b"") -> bytes:
        return before + b"".join(self.wire(event) for event in events)

    def _response(self, status: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "id": self.id,
            "object": "response",
            "created_at": CREATED,
            "model": self.model,
        }
        body["status"] = status
        body["output"] = []
        if status in ("completed", "incomplete"):
            if self.calls:
                body["output"] = [
                    {"type": "function_call", "call_id": f"call_{at}", "name": name, "arguments": arguments}
                    for at, (name, arguments) in enumerate(self.calls)
                ]
            else:
                text = "".join(self.pieces[self.scenario.tokens.reasoning :])
                part = {"type": "output_text", "text": text, "annotations": []}
                body["output"] = [{"type": "message", "role": "assistant", "content": [part]}]
            if self.scenario.usage.mode != "none":
                body["usage"] = self.usage(self.made)
        if status == "incomplete":
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        return body
