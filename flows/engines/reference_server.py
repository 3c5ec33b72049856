"""The reference server: an OpenAI-compatible HTTP server whose every instant and count is known and written out.

A process of its own (`python -m flows.engines.reference`). One thread, uvloop, no framework: requests are
generators of steps (wait, bytes, tokens, action), a heap of deadlines and a kernel timer release them, and every
token is written to the socket by a system call of its own, with the clock read immediately before it.

Tokens: a prompt has one token per whitespace-separated word, an answer one per word or punctuation mark.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import random
import re
import resource
import signal
import socket
import struct
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import httptools
import msgspec

from flows.engines.reference_answers import UNICODE, WORDS, Asked, answer_text, tool_calls
from flows.engines.reference_scenario import Scenario, overlay
from flows.engines.reference_timer import DeadlineTimer

now_ns = time.monotonic_ns
MS = 1_000_000
SECOND = 1_000_000_000
PIECE = re.compile(r"\s*(?:\w+|[^\w\s])")
_encode = msgspec.json.encode

# Between so many tokens sockets are read, so that a request's arrival is seen when it comes.
WRITTEN_AT_ONCE = 16
# Between so many requests tokens that have fallen due are written: taking one up costs about 0.1 ms.
TAKEN_UP_AT_ONCE = 4
# Actions of a step
GO, END, CLOSE, RESET, HANG = range(5)
Step = tuple[int, bytes, int, int]  # ns after the step before, bytes, tokens carried, action


def count_tokens(text: str) -> int:
    """Prompt tokens by the reference server's rule: whitespace-separated words."""
    return len(text.split())


class PrefixCache:
    """Blocks of prompt tokens by the hash of everything up to their end, least recently used first out."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def match(self, words: list[str], block: int, capacity: int | None) -> int:
        """Tokens of this prompt that lie in the cache (whole blocks, never the last token); then stores it."""
        hits, is_prefix, chain = 0, True, 0
        usable = max(0, len(words) - 1) // block
        blocks = self._blocks
        for number in range(len(words) // block):
            chain = hash((chain, *words[number * block : (number + 1) * block]))
            if chain in blocks:
                blocks.move_to_end(chain)
                hits += is_prefix and number < usable
            else:
                is_prefix = False
                blocks[chain] = None
        if capacity is not None:
            while len(blocks) * block > capacity:
                blocks.popitem(last=False)
        return hits * block

    def clear(self) -> None:
        self._blocks.clear()

    def tokens(self, block: int) -> int:
        return len(self._blocks) * block


class Stats:
    """What /metrics counts, from the start or the last (simulated) restart."""

    def __init__(self) -> None:
        self.started_at = time.time()
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self.finished: dict[str, int] = dict.fromkeys(("stop", "length", "abort", "error", "tool_calls"), 0)
        self.preemptions = 0.0
        self.ttft_s_sum = self.e2e_s_sum = 0.0
        self.ttft_count = self.e2e_count = 0
        self.ttft_buckets: list[int] = [0] * len(BUCKETS)


BUCKETS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)


class Stream:
    """One request that is being answered."""

    __slots__ = (
        "cached",
        "connection",
        "due_ns",
        "first_ns",
        "is_over",
        "kind",
        "number",
        "out_tokens",
        "prompt_tokens",
        "reason",
        "received_ns",
        "request_id",
        "scenario",
        "steps",
        "token_ns",
        "waiting",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, number: int | None, scenario: Scenario, kind: str, received_ns: int
    ) -> None:
        self.connection, self.number, self.scenario, self.kind = connection, number, scenario, kind
        self.received_ns = self.due_ns = received_ns
        self.first_ns: int | None = None
        self.token_ns: list[int] = []
        self.out_tokens = 0
        self.prompt_tokens = self.cached = 0
        self.reason = "abort"
        self.request_id = ""
        self.steps: Iterator[Step] = iter(())
        self.waiting: Step | None = None
        self.is_over = False


class Connection(asyncio.Protocol):
    """One client connection: parses requests, writes straight to the socket while that takes everything."""

    def __init__(self, server: ReferenceServer) -> None:
        self.server = server
        self.transport: Any = None
        self.stream: Stream | None = None
        self.queue: deque[tuple[str, str, list[tuple[bytes, bytes]], list[bytes], int]] = deque()
        self.handle = -1
        self.is_gone = False
        self.keep_alive = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.handle = transport.get_extra_info("socket").fileno()
        transport.set_write_buffer_limits(high=1 << 30)
        self.parser = httptools.HttpRequestParser(self)
        self.server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self.at_ns = now_ns()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def on_message_begin(self) -> None:
        self.path = ""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if any(name.lower() == b"expect" for name, _ in self.headers):
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, piece: bytes) -> None:
        self.body.append(piece)

    def on_message_complete(self) -> None:
        method = self.parser.get_method().decode()
        self.keep_alive = self.parser.should_keep_alive()
        self.queue.append((method, self.path, self.headers, self.body, self.at_ns))
        self.server.take_up(self)

    def next_request(self) -> None:
        """Answer what waits, one at a time: a pipelined request waits for the one before."""
        while self.queue and self.stream is None and not self.is_gone:
            method, path, fields, body, at_ns = self.queue.popleft()
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in fields}
            self.server.answer(self, method, path, headers, b"".join(body), at_ns)

    def write(self, data: bytes) -> None:
        """To the socket now; what it does not take is left to the loop."""
        transport = self.transport
        if self.is_gone or not data:
            return
        if transport.get_write_buffer_size() == 0:
            try:
                sent = os.write(self.handle, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                return
            if sent == len(data):
                return
            data = data[sent:]
        transport.write(data)

    def respond(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        extra: dict[str, str] | None = None,
    ) -> None:
        """A whole response at once."""
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Answer')}", f"content-type: {content_type}"]
        lines += [f"{name}: {value}" for name, value in (extra or {}).items()]
        lines += [f"content-length: {len(body)}", "", ""]
        self.write("\r\n".join(lines).encode() + body)
        if not self.keep_alive:
            self.transport.close()

    def reset(self) -> None:
        """End with RST instead of FIN."""
        sock = socket.socket(fileno=os.dup(self.handle))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_gone = True
        self.server.connections.discard(self)
        if self.stream is not None:
            self.server.finish(self.stream, "abort")


REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests",
           500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip


class ReferenceServer:
    """Answers by its scenario, and writes out what it did."""

    def __init__(self, scenario: Scenario, truth: Path | None, log: Callable[[str], None]) -> None:
        self.scenario = scenario
        self.log = log
        self.connections: set[Connection] = set()
        self.stats = Stats()
        self.cache = PrefixCache()
        self.numbered = 0
        self.first_numbered_ns: int | None = None
        self.running: set[Stream] = set()
        self.slots_waiting: deque[Stream] = deque()
        self.prefill_free_ns = 0
        self.paused_until_ns = 0
        self.ballast: list[bytes] = []
        self.frozen_metrics: bytes | None = None
        self.is_unavailable = False
        self._truth: BinaryIO | None = truth.open("wb", buffering=1 << 20) if truth is not None else None
        self._heap: list[tuple[int, int, Stream]] = []
        self._order = 0
        self._ready: deque[Stream] = deque()
        self._arrived: deque[Connection] = deque()
        self._is_pumping = False
        self._overlays: dict[tuple[int, ...], Scenario] = {}
        self._asked_overlay = any(v.when.asks or v.when.contains for v in scenario.variants)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port."""
        self.loop = asyncio.get_running_loop()
        self.timer = DeadlineTimer(self.loop, self._fire)
        server = await self.loop.create_server(lambda: Connection(self), host, port, backlog=8192)
        self.socket_server = server
        return int(server.sockets[0].getsockname()[1])

    # Requests

    def take_up(self, connection: Connection) -> None:
        """Answer a connection's request soon: every socket that is ready is read, and its instant taken, first."""
        self._arrived.append(connection)
        if len(self._arrived) == 1:
            self.loop.call_soon(self._take_up_some)

    def _take_up_some(self) -> None:
        for _ in range(min(len(self._arrived), TAKEN_UP_AT_ONCE)):
            self._arrived.popleft().next_request()
        if self._arrived:
            self.loop.call_soon(self._take_up_some)

    def answer(
        self, connection: Connection, method: str, path: str, headers: dict[str, str], body: bytes, at_ns: int
    ) -> None:
        """One request of any kind."""
        path = path.partition("?")[0].rstrip("/")
        kind = KINDS.get(path)
        if self.scenario.api_key and path not in OPEN_PATHS:
            given = headers.get("authorization", "")
            if given != f"Bearer {self.scenario.api_key}":
                connection.respond(401, _error_body("Unauthorized", "invalid_api_key", 401))
                return
        if kind is not None and method == "POST":
            self._start(connection, kind, headers, body, at_ns)
        elif path == "/health":
            connection.respond(503 if self.is_unavailable else 200, b"", "text/plain")
        elif path == "/v1/models":
            self._models(connection)
        elif path == "/metrics" and self.scenario.metrics.on:
            connection.respond(200, self.metrics(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/tokenize" and method == "POST" and self.scenario.tokenize:
            self._tokenize(connection, body)
        elif path == "/version":
            connection.respond(200, _encode({"version": self.scenario.start.version}))
        elif path == "/reset_prefix_cache" and method == "POST":
            self.cache.clear()
            connection.respond(200, b"")
        else:
            connection.respond(404, _encode({"detail": "Not Found"}))

    def _models(self, connection: Connection) -> None:
        mode = self.scenario.models_endpoint
        if mode == "absent":
            connection.respond(404, _encode({"detail": "Not Found"}))
        elif mode == "500":
            connection.respond(500, b"Internal Server Error", "text/plain")
        elif mode == "html":
            connection.respond(200, HTML, "text/html")
        else:
            length = self.scenario.start.max_model_len
            data = [
                {"id": name, "object": "model", "owned_by": "vllm", "root": name, "max_model_len": length}
                for name in self.scenario.served_models or [self.scenario.model]
            ]
            connection.respond(200, _encode({"object": "list", "data": data}))

    def _tokenize(self, connection: Connection, body: bytes) -> None:
        try:
            asked = msgspec.json.decode(body)
            text = asked.get("prompt") or asked.get("content") or asked.get("text")
            if text is None:
                text = "\n".join(Asked(asked, "chat").texts)
        except (msgspec.DecodeError, AttributeError):
            connection.respond(400, _error_body("not a JSON object", "BadRequestError", 400))
            return
        count = count_tokens(str(text))
        length = self.scenario.start.max_model_len
        connection.respond(
            200, _encode({"count": count, "max_model_len": length, "tokens": list(range(count))})
        )

    def _start(
        self, connection: Connection, kind: str, headers: dict[str, str], body: bytes, at_ns: int
    ) -> None:
        try:
            decoded = msgspec.json.decode(body)
            if not isinstance(decoded, dict):
                raise TypeError
        except (msgspec.DecodeError, TypeError):
            connection.respond(400, _error_body("the body is not a JSON object", "BadRequestError", 400))
            return
        model = decoded.get("model")
        if model not in (self.scenario.served_models or [self.scenario.model]):
            message = f"The model `{model}` does not exist."
            connection.respond(404, _error_body(message, "NotFoundError", 404))
            return
        asked = Asked(decoded, kind)
        limit = next(
            (decoded[k] for k in ("max_completion_tokens", "max_tokens", "max_output_tokens")
             if isinstance(decoded.get(k), int)), None
        )  # fmt: skip
        is_check = limit == 1
        number = None
        if not is_check:
            self.numbered += 1
            number = self.numbered
            if self.first_numbered_ns is None:
                self.first_numbered_ns = now_ns()
                self._begin_life()
        words = asked.text.split()
        scenario = self.scenario if is_check else self._select(number or 0, asked, len(words), limit, decoded)
        stream = Stream(connection, number, scenario, kind, at_ns)
        stream.request_id = headers.get("x-request-id", "")
        stream.prompt_tokens = len(words) + scenario.cache.template_tokens
        if stream.prompt_tokens >= scenario.start.max_model_len:
            message = (
                f"This model's maximum context length is {scenario.start.max_model_len} tokens. However, your prompt "
                f"contains {stream.prompt_tokens} input tokens."
            )
            connection.respond(400, _error_body(message, "BadRequestError", 400))
            return
        breaks = scenario.breaks
        if (breaks.status is not None and not is_check) or self.is_unavailable:
            status = 503 if self.is_unavailable else breaks.status or 500
            extra = {"retry-after": breaks.retry_after} if breaks.retry_after is not None else None
            self.loop.call_later(
                breaks.delay_s,
                connection.respond, status, _error_body(breaks.message, "ServerError", status), "application/json", extra,
            )  # fmt: skip
            self._tell_truth(stream, "refused")
            return
        connection.stream = stream
        self._after_request()
        if scenario.timing.slots is not None and len(self.running) >= scenario.timing.slots:
            self.slots_waiting.append(stream)
            stream.steps = self._make(stream, asked, words, limit, decoded)
            return
        stream.steps = self._make(stream, asked, words, limit, decoded)
        self._run(stream, at_ns)

    def _select(
        self, number: int, asked: Asked, prompt_tokens: int, limit: int | None, body: dict[str, Any]
    ) -> Scenario:
        """The scenario with every variant that this request is selected for laid over it."""
        chosen = []
        since_s = (now_ns() - (self.first_numbered_ns or 0)) / 1e9
        for place, variant in enumerate(self.scenario.variants):
            when = variant.when
            draw = random.Random(f"{self.scenario.seed}/{place}/{number}")
            if (
                (when.every is None or number % when.every == when.offset % when.every)
                and (when.from_request is None or number >= when.from_request)
                and (when.to_request is None or number <= when.to_request)
                and (when.from_s is None or since_s >= when.from_s)
                and (when.to_s is None or since_s <= when.to_s)
                and (when.share is None or draw.random() < when.share)
                and (when.concurrency_above is None or len(self.running) + 1 > when.concurrency_above)
                and (when.prompt_tokens_above is None or prompt_tokens > when.prompt_tokens_above)
                and (when.output_tokens_above is None or (limit or 0) > when.output_tokens_above)
                and (when.streamed is None or bool(body.get("stream")) == when.streamed)
                and (when.asks is None or asked.what(self.scenario.answers) == when.asks)
                and (when.contains is None or when.contains in asked.text)
            ):
                chosen.append(place)
        key = tuple(chosen)
        if not key:
            return self.scenario
        if key not in self._overlays:
            merged = self.scenario
            for place in key:
                merged = overlay(merged, self.scenario.variants[place].set)
            self._overlays[key] = merged
        return self._overlays[key]

    def _make(
        self, stream: Stream, asked: Asked, words: list[str], limit: int | None, body: dict[str, Any]
    ) -> Iterator[Step]:
        """The steps of an answer. Cache and prefill are decided when the request gets its slot, so lazily."""
        from flows.engines.reference_streams import Writer, is_split_at

        scenario, timing = stream.scenario, stream.scenario.timing
        draw = random.Random(f"{scenario.seed}/{stream.number}")
        cache = scenario.cache
        if cache.enabled:
            template = ["<template>"] * cache.template_tokens
            stream.cached = self.cache.match(template + words, cache.block_tokens, cache.capacity_tokens)
            if cache.warm_share and stream.number is not None:
                warm = int(stream.prompt_tokens * cache.warm_share) // cache.block_tokens * cache.block_tokens
                stream.cached = max(stream.cached, warm)
        self.stats.prompt_tokens += stream.prompt_tokens
        self.stats.cached_tokens += stream.cached
        wait = timing.ttft_ms * MS + _jitter(timing.ttft_jitter_ms, draw) * MS
        if timing.prefill_tokens_per_s:
            fresh = stream.prompt_tokens - (stream.cached if cache.saves_prefill else 0)
            if is_split_at(body, "do_remote_prefill"):
                fresh = 0
            prefill = round(max(0, fresh) / timing.prefill_tokens_per_s * SECOND)
            if timing.prefill == "serial":
                begins = max(now_ns(), self.prefill_free_ns)
                self.prefill_free_ns = begins + prefill
                prefill = self.prefill_free_ns - now_ns()
            wait += prefill
        pieces, reason = self._pieces(stream, asked, limit, body, draw)
        calls = tool_calls(scenario.answers, asked, draw) if stream.kind != "completions" else []
        if scenario.answers.text is not None:
            calls = []
        writer = Writer(self, stream, body, pieces, calls, reason, max(0, round(wait)), draw)
        if stream.number is None or body.get("stream") is not True:
            yield from writer.answer() if body.get("stream") is not True else writer.stream()
        else:
            yield from writer.stream()

    def _pieces(
        self, stream: Stream, asked: Asked, limit: int | None, body: dict[str, Any], draw: random.Random
    ) -> tuple[list[str], str]:
        """The answer as a list of tokens, and its finish reason."""
        scenario, tokens = stream.scenario, stream.scenario.tokens
        text = answer_text(scenario.answers, asked, stream.prompt_tokens, draw)
        ignores = body.get("ignore_eos") is True if tokens.ignores_eos is None else tokens.ignores_eos
        room = scenario.start.max_model_len - stream.prompt_tokens
        wanted = tokens.count if tokens.count is not None else limit if limit is not None else tokens.default
        if limit is not None:
            wanted = min(wanted, limit)
        wanted = max(0, min(wanted, room))
        if tokens.attainment != 1.0:
            wanted = max(1, round(wanted * tokens.attainment))
        pieces = PIECE.findall(text) if text is not None else []
        if text is None or ignores or not pieces:
            source = UNICODE if scenario.stream.text == "unicode" else WORDS
            start = stream.number or 0
            lead = "" if scenario.stream.text == "unicode" else " "
            pieces += [lead + source[(start + at) % len(source)] for at in range(len(pieces), wanted)]
        reason = "length" if limit is not None and len(pieces) >= limit else "stop"
        if len(pieces) > wanted:
            pieces, reason = pieces[:wanted], "length"
        if tokens.count is not None and limit is not None and tokens.count < limit:
            reason = "stop"
        if tokens.attainment < 1.0:
            reason = "stop"
        return pieces, tokens.finish_reason or reason

    # Pacing

    def gap_ns(self, stream: Stream, draw: random.Random) -> int:
        """The time to this stream's next token, as things stand now."""
        timing = stream.scenario.timing
        gap = timing.itl_ms
        if timing.interference:
            gap *= 1 + timing.interference * (len(self.running) - 1)
        if timing.slows_per_min and self.first_numbered_ns is not None:
            gap *= 1 + timing.slows_per_min * (now_ns() - self.first_numbered_ns) / 60e9
        if timing.itl_jitter_ms:
            gap = max(0.0, gap + _jitter(timing.itl_jitter_ms, draw))
        return round(gap * MS)

    def _run(self, stream: Stream, begun_ns: int) -> None:
        """Give a request its slot; its first wait counts from begun_ns."""
        self.running.add(stream)
        stream.due_ns = begun_ns
        self._advance(stream)

    def _advance(self, stream: Stream) -> None:
        """Take steps until one lies ahead."""
        steps = stream.steps
        while True:
            step = next(steps, None)
            if step is None:
                self.finish(stream, stream.reason)
                return
            wait = step[0]
            if wait > 0:
                stream.due_ns += wait
                stream.waiting = step
                if self.paused_until_ns > stream.due_ns:
                    stream.due_ns = self.paused_until_ns
                self._order += 1
                heapq.heappush(self._heap, (stream.due_ns, self._order, stream))
                self.timer.arm(self._heap[0][0])
                return
            if wait < 0:  # as soon as every other stream has had its turn
                stream.waiting = step
                self._ready.append(stream)
                if not self._is_pumping:
                    self._is_pumping = True
                    self.loop.call_soon(self._pump)
                return
            if not self._take(stream, step):
                return

    def _take(self, stream: Stream, step: Step) -> bool:
        """Do one step. False when the stream is over or hangs."""
        _, data, tokens, action = step
        connection = stream.connection
        if data:
            if tokens:
                at = now_ns()
                if stream.first_ns is None:
                    stream.first_ns = at
                stream.token_ns.append(at)
                stream.out_tokens += tokens
                self.stats.output_tokens += tokens
            connection.write(data)
        if action == GO:
            return not stream.is_over
        if action == END:
            self.finish(stream, stream.reason)
        elif action == CLOSE:
            self.finish(stream, "error")
            connection.transport.close()
        elif action == RESET:
            self.finish(stream, "error")
            connection.reset()
        return False

    def _fire(self) -> None:
        heap = self._heap
        at, left = now_ns(), WRITTEN_AT_ONCE
        while heap and heap[0][0] <= at and left:
            stream = heapq.heappop(heap)[2]
            step = stream.waiting
            if stream.is_over or step is None:
                continue
            stream.waiting = None
            left -= 1
            if self._take(stream, step):
                self._advance(stream)
            at = now_ns()
        if heap:
            self.timer.arm(heap[0][0])

    def _pump(self) -> None:
        for _ in range(min(len(self._ready), 256)):
            stream = self._ready.popleft()
            step = stream.waiting
            if stream.is_over or step is None:
                continue
            stream.waiting = None
            if stream.connection.transport.get_write_buffer_size() > 1 << 20:
                stream.waiting = step
                self._ready.append(stream)
                continue
            if self._take(stream, step):
                self._advance(stream)
        if self._ready:
            self.loop.call_soon(self._pump)
        else:
            self._is_pumping = False

    def finish(self, stream: Stream, reason: str) -> None:
        """A request is over, in whatever way."""
        if stream.is_over:
            return
        stream.is_over = True
        at = now_ns()
        stats = self.stats
        stats.finished[reason if reason in stats.finished else "stop"] += 1
        if stream.first_ns is not None:
            seconds = (stream.first_ns - stream.received_ns) / 1e9
            stats.ttft_s_sum += seconds
            stats.ttft_count += 1
            for place, bound in enumerate(BUCKETS):
                stats.ttft_buckets[place] += seconds <= bound
        if reason in ("stop", "length", "tool_calls"):
            stats.e2e_s_sum += (at - stream.received_ns) / 1e9
            stats.e2e_count += 1
        stats.preemptions += stream.scenario.life.preemptions_per_request if stream.number else 0
        self.running.discard(stream)
        if stream in self.slots_waiting:
            self.slots_waiting.remove(stream)
        self._tell_truth(stream, reason, at)
        connection = stream.connection
        connection.stream = None
        while self.slots_waiting:
            slots = self.slots_waiting[0].scenario.timing.slots
            if slots is not None and len(self.running) >= slots:
                break
            self._run(self.slots_waiting.popleft(), at)
        if not connection.is_gone and reason not in ("abort", "error"):
            if connection.keep_alive:
                self.loop.call_soon(connection.next_request)
            else:
                connection.transport.close()

    # Life

    def _begin_life(self) -> None:
        life = self.scenario.life
        later = self.loop.call_later
        if life.dies_after_s is not None:
            later(life.dies_after_s, self._die)
        if life.restarts_after_s is not None:
            later(life.restarts_after_s, self._restart)
        if life.memory_mb_per_s:
            later(0.1, self._grow)
        if life.recompiles_after_s is not None:
            later(life.recompiles_after_s, self._recompile)
        if life.http_503_after_s is not None:
            later(life.http_503_after_s, self._become_unavailable)
        for seconds, line in life.log_lines_after_s.items():
            later(float(seconds), self.log, line)
        timing = self.scenario.timing
        if timing.pause_every_s:
            later(timing.pause_every_s, self._pause, timing.pause_every_s, timing.pause_ms)

    def _after_request(self) -> None:
        life = self.scenario.life
        if life.dies_after_requests is not None and self.numbered > life.dies_after_requests:
            self.loop.call_soon(self._die)
        if life.restarts_after_requests is not None and self.numbered == life.restarts_after_requests + 1:
            self._restart()

    def _die(self) -> None:
        for line in self.scenario.life.death_lines:
            self.log(line)
        self.close_truth()
        code = self.scenario.life.exit_code
        if code is None:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(code or 0)

    def _restart(self) -> None:
        """As a supervisor's restart shows from outside: counters and cache begin anew, a later start time."""
        self.stats = Stats()
        self.cache.clear()

    def _grow(self) -> None:
        self.ballast.append(
            bytes(os.urandom(1)) * round(self.scenario.life.memory_mb_per_s * 0.1 * 1024 * 1024)
        )
        self.loop.call_later(0.1, self._grow)

    def _recompile(self) -> None:
        for line in self.scenario.life.recompile_lines:
            self.log(line)
        self._pause(None, self.scenario.life.recompile_s * 1000)

    def _pause(self, every_s: float | None, pause_ms: float) -> None:
        """No token comes for a while; what was due is late by what is left of it."""
        until = now_ns() + round(pause_ms * MS)
        self.paused_until_ns = until
        moved = [(max(due, until), order, stream) for due, order, stream in self._heap]
        for due, _, stream in moved:
            stream.due_ns = due
        heapq.heapify(moved)
        self._heap = moved
        if moved:
            self.timer.arm(moved[0][0])
        if every_s is not None:
            self.loop.call_later(every_s, self._pause, every_s, pause_ms)

    def _become_unavailable(self) -> None:
        self.is_unavailable = True

    # Truth and metrics

    def _tell_truth(self, stream: Stream, outcome: str, at_ns: int | None = None) -> None:
        if self._truth is None:
            return
        row = {
            "number": stream.number,
            "request_id": stream.request_id,
            "received_ns": stream.received_ns,
            "first_token_ns": stream.first_ns,
            "token_ns": stream.token_ns,
            "end_ns": at_ns or now_ns(),
            "prompt_tokens": stream.prompt_tokens,
            "cached_tokens": stream.cached,
            "output_tokens": stream.out_tokens + stream.scenario.tokens.invisible,
            "chunks": len(stream.token_ns),
            "outcome": outcome,
        }
        self._truth.write(_encode(row) + b"\n")
        if not self.running:
            self._truth.flush()

    def close_truth(self) -> None:
        if self._truth is not None:
            self._truth.flush()

    def metrics(self) -> bytes:
        """/metrics in vLLM's dialect, as the scenario wants it told."""
        asked = self.scenario.metrics
        if asked.frozen and self.frozen_metrics is not None:
            return self.frozen_metrics
        from flows.engines.reference_metrics import render

        text = render(self)
        if self.numbered:
            self.frozen_metrics = self.frozen_metrics or text
        return text


def resident_mb() -> float:
    """This process's resident memory now, in MB."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize() / 1e6


def _jitter(width_ms: float, draw: random.Random) -> float:
    return draw.gauss(0, width_ms) if width_ms else 0.0


def _error_body(message: str, kind: str, code: int) -> bytes:
    return _encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


HTML = b"<!DOCTYPE html><html><body><h1>It works!</h1></body></html>"
KINDS = {"/v1/chat/completions": "chat", "/v1/completions": "completions", "/v1/responses": "responses"}
OPEN_PATHS = {"/health", "/metrics"}


def serve(scenario: Scenario, host: str, port: int, truth: Path | None) -> None:
    """Run until SIGTERM or SIGINT. Writes `listening on http://HOST:PORT` when it serves."""
    import uvloop

    uvloop.run(_serve(scenario, host, port, truth))


async def _serve(scenario: Scenario, host: str, port: int, truth: Path | None) -> None:
    # These import this module's names, and must not be loaded while the first request waits.
    from flows.engines import reference_metrics, reference_streams
    from flows.engines.reference_log import start_log

    assert reference_metrics and reference_streams

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # noqa: T201

    for line in start_log(scenario):
        log(line)
    if scenario.start.ready_after_s:
        await asyncio.sleep(scenario.start.ready_after_s)
    if scenario.start.fails is not None:
        for line in scenario.start.fails.lines:
            log(line)
        sys.stderr.flush()
        os._exit(scenario.start.fails.exit_code)
    server = ReferenceServer(scenario, truth, log)
    bound = await server.start(host, port)
    log(f"INFO:     reference server listening on http://{host}:{bound}")
    log("INFO:     Application startup complete.")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    server.close_truth()
