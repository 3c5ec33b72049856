"""httpx's transport for measured streams: HTTP/1.1 over uvloop, instants taken in the socket callback.

A request that carries a `Capture` in its extensions is sent by this transport when its gate says so, and its response
is returned once it has ended: bytes and instants lie in the capture, unread. Everything else (preflight, redirects,
proxies, ordinary JSON) goes to httpx's own transport.

What the hot path does for every socket read: one clock reading, two appends, and a look at the last four bytes.
A chunked body always ends in CRLF CRLF, so framing (httptools) is fed only when a read ends so; it alone says
whether the answer has ended, those four bytes only say when to ask it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

import httptools
import httpx

from contracts.records import ErrorClass, Outcome

now_ns = time.monotonic_ns
_END = b"\r\n\r\n"
# Idle connections older than this are not used again: uvicorn closes them after 5 s, and a request that meets
# the closing would fail through no fault of the engine. Retrying it instead would send it twice.
IDLE_LIMIT_NS = 3_000_000_000
# Head and body are joined into one write below this; above, copying would cost more than a second buffer.
_JOIN_BYTES = 65_536


CHOOSE_LATE = -1
# What httpx and the next staging take for one answer is about 60 us: half a millisecond without reading at most.
FINISHED_AT_ONCE = 8


class Gate(Protocol):
    """Decides when staged captures are sent."""

    def stage(self, capture: Capture) -> None:
        """`capture` is ready: nothing is left to do for it than to write it."""
        ...

    def ended(self, capture: Capture) -> None:
        """`capture` has ended, at capture.end_ns; called inside the socket callback."""
        ...


class Capture:
    """One request and its answer, as they crossed the socket.

    endpoint: the pool it goes to; CHOOSE_LATE lets the transport take the one with the fewest outstanding when it
    is sent. outcome `unsent`: it was staged and let go without being sent.
    """

    __slots__ = (
        "body",
        "connection",
        "detail",
        "done",
        "end_ns",
        "endpoint",
        "error_class",
        "finish",
        "gate",
        "headers",
        "heads",
        "instants",
        "is_alive_said",
        "is_flushed",
        "last_ns",
        "line",
        "outcome",
        "path",
        "pieces",
        "planned_ns",
        "retry_after",
        "sent_ns",
        "slot",
        "status",
    )  # fmt: skip

    def __init__(self, line: Any, body: memoryview, gate: Gate, path: str, endpoint: int = 0) -> None:
        self.line = line
        self.body = body
        self.gate = gate
        self.path = path
        self.endpoint = endpoint
        self.heads: list[bytes] = []
        self.slot: Any = None
        self.planned_ns: int | None = None
        self.sent_ns: int | None = None
        self.end_ns: int | None = None
        self.last_ns = 0
        self.instants: list[int] = []
        self.pieces: list[bytes] = []
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.retry_after: str | None = None
        self.outcome: Outcome = "ok"
        self.error_class: ErrorClass | None = None
        self.detail: str | None = None
        self.done: asyncio.Future[None] | None = None
        self.finish: Callable[[Capture], None] | None = None
        self.connection: Connection | None = None
        self.is_alive_said = False
        self.is_flushed = False

    def end(
        self, at_ns: int, outcome: Outcome, error_class: ErrorClass | None = None, detail: str | None = None
    ) -> None:
        """The request is over; the first ending counts."""
        if self.end_ns is not None:
            return
        self.end_ns, self.outcome, self.error_class, self.detail = at_ns, outcome, error_class, detail
        self.gate.ended(self)
        if self.finish is not None:
            self.finish(self)


def _drop(_: Any) -> None:
    return None


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection, one request at a time."""

    __slots__ = (
        "answers",
        "capture",
        "endpoint",
        "fed",
        "handle",
        "idle_limit_ns",
        "idle_since",
        "is_closed",
        "is_deferred",
        "keep",
        "parser",
        "pool",
        "stamp",
        "transport",
    )  # fmt: skip

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.transport: asyncio.Transport | None = None
        self.capture: Capture | None = None
        self.stamp: Callable[[int], None] = _drop
        self.keep: Callable[[bytes], None] = _drop
        self.parser: Any = None
        self.answers = 0
        self.handle = -1
        self.fed = 0
        self.is_deferred = False
        self.is_closed = False
        self.idle_since = now_ns()
        self.idle_limit_ns = IDLE_LIMIT_NS

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if not self.pool.is_tls:
            self.handle = transport.get_extra_info("socket").fileno()

    def start(self, capture: Capture) -> None:
        """Write the request. sent_ns is read immediately before."""
        capture.connection = self
        self.capture = capture
        self.stamp = capture.instants.append
        self.keep = capture.pieces.append
        self.parser = httptools.HttpResponseParser(self)
        self.fed = 0
        self.is_deferred = False
        transport, body = self.transport, capture.body
        head = capture.heads[capture.endpoint if len(capture.heads) > 1 else 0]
        assert transport is not None
        if self.handle < 0:
            capture.sent_ns = capture.last_ns = now_ns()
            self.pool.on_sent(capture)
            transport.writelines((head, body))
            return
        # uvloop writes at the end of its turn, after every other callback; the system call leaves now.
        if len(body) < _JOIN_BYTES:
            data = b"".join((head, body))
            capture.sent_ns = capture.last_ns = now_ns()
            self.pool.on_sent(capture)
            self._write_now((data,), len(data))
        else:
            capture.sent_ns = capture.last_ns = now_ns()
            self.pool.on_sent(capture)
            self._write_now((head, body), len(head) + len(body))

    def _write_now(self, buffers: tuple[bytes | memoryview, ...], length: int) -> None:
        try:
            sent = os.writev(self.handle, buffers)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the loop tells of the broken connection
        if sent == length:
            return
        for buffer in buffers:
            if sent < len(buffer):
                self.transport.write(memoryview(buffer)[sent:])  # type: ignore[union-attr]
            sent = max(0, sent - len(buffer))

    def data_received(self, data: bytes) -> None:
        self.stamp(now_ns())
        self.keep(data)
        if self.is_deferred and data[-4:] != _END and len(data) >= 4:
            return
        self._frame()

    def _frame(self) -> None:
        capture = self.capture
        if capture is None:
            self.abort()  # bytes that nobody asked for: this connection cannot be trusted
            return
        pieces = capture.pieces
        waiting = pieces[self.fed :] if self.fed else pieces
        self.fed = len(pieces)
        try:
            self.parser.feed_data(waiting[0] if len(waiting) == 1 else b"".join(waiting))
        except httptools.HttpParserUpgrade:
            self._fail("not_a_stream", "the server switched protocols")
        except httptools.HttpParserError as error:
            if self.capture is capture:
                self._fail("not_a_stream", f"not HTTP/1.1: {error}")

    def release_pieces(self) -> tuple[list[int], list[bytes]]:
        """Hand over what was received so far of a running answer, so that a long one does not gather in memory."""
        capture = self.capture
        assert capture is not None
        if self.fed < len(capture.pieces):
            self._frame()
            if self.capture is not capture:
                return [], []
        capture.last_ns = capture.instants[-1]
        instants, pieces = capture.instants, capture.pieces
        capture.instants, capture.pieces = [], []
        self.stamp, self.keep = capture.instants.append, capture.pieces.append
        self.fed = 0
        capture.is_flushed = True
        return instants, pieces

    def on_header(self, name: bytes, value: bytes) -> None:
        capture = self.capture
        if capture is not None:
            capture.headers.append((name, value))

    def on_headers_complete(self) -> None:
        capture = self.capture
        if capture is None:
            return
        status = self.parser.get_status_code()
        if status < 200:
            capture.headers = []
            return
        capture.status = status
        is_chunked = False
        for name, value in capture.headers:
            lowered = name.lower()
            if lowered == b"transfer-encoding":
                is_chunked = b"chunked" in value.lower()
            elif lowered == b"retry-after":
                capture.retry_after = value.decode("latin-1")
            elif lowered == b"keep-alive":
                self.idle_limit_ns = min(IDLE_LIMIT_NS, _keep_alive_ns(value))
        self.is_deferred = is_chunked

    def on_message_complete(self) -> None:
        capture = self.capture
        if capture is None or self.parser.get_status_code() < 200:
            return
        can_reuse = self.parser.should_keep_alive()
        self.answers += 1
        self._idle()
        if can_reuse:
            self.pool.give(self)
        else:
            self.close()
        capture.end(capture.instants[-1] if capture.instants else now_ns(), "ok")

    def eof_received(self) -> None:
        return None

    def connection_lost(self, error: Exception | None) -> None:
        at = now_ns()
        self.is_closed = True
        self.pool.forget(self)
        capture = self.capture
        if capture is None:
            return
        if self.fed < len(capture.pieces):
            self._frame()
            if self.capture is not capture:
                return
        self._idle()
        if self.answers and not capture.instants and not capture.is_flushed:
            self.pool.distrust(capture)
            return
        if (
            error is None
            and capture.status is not None
            and not self.is_deferred
            and _ends_with_connection(capture)
        ):
            capture.end(at, "ok")
            return
        where = "before an answer" if capture.status is None else "in the middle of the answer"
        if error is None:
            kind: ErrorClass = "reset" if capture.status is None else "truncated"
            capture.end(at, "failed", kind, f"the server closed the connection {where}")
        else:
            capture.end(at, "failed", "reset", f"{error or type(error).__name__} {where}")

    def finish_done(self) -> None:
        """The answer has said `[DONE]`, but the server keeps the message open: take it as ended where it ended."""
        capture = self.capture
        if capture is None:
            return
        self._idle()
        self.close()
        capture.end(capture.instants[-1], "ok")

    def cancel(self, outcome: Outcome, error_class: ErrorClass, detail: str | None) -> None:
        """End the running request from this side; the connection goes with it."""
        capture = self.capture
        if capture is None:
            return
        self._idle()
        self.abort()
        capture.end(now_ns(), outcome, error_class, detail)

    def _fail(self, error_class: ErrorClass, detail: str) -> None:
        self.cancel("failed", error_class, detail)

    def _idle(self) -> None:
        self.capture = None
        self.stamp = self.keep = _drop
        self.is_deferred = False
        self.idle_since = now_ns()

    def close(self) -> None:
        self.is_closed = True
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        self.is_closed = True
        if self.transport is not None:
            self.transport.abort()


def _keep_alive_ns(value: bytes) -> int:
    """How long a `Keep-Alive: timeout=5, max=100` connection may idle; half of it, to stay clear of the edge."""
    for part in value.split(b","):
        name, _, number = part.strip().partition(b"=")
        if name.lower() == b"timeout" and number.strip().isdigit():
            return int(number) * 500_000_000
    return IDLE_LIMIT_NS


def _ends_with_connection(capture: Capture) -> bool:
    """Neither a length nor chunks: the body runs until the server closes."""
    return not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in capture.headers)


class Pool:
    """Connections to one endpoint; as many as are asked for, no limit of its own."""

    def __init__(self, base_url: str, loop: asyncio.AbstractEventLoop, connect_s: float | None) -> None:
        parts = urlsplit(base_url)
        self.base_path = parts.path.rstrip("/")
        self.netloc = parts.netloc.rpartition("@")[2]
        self.loop = loop
        self.connect_s = connect_s
        self.host = parts.hostname or "127.0.0.1"
        self.is_tls = parts.scheme == "https"
        self.port = parts.port or (443 if self.is_tls else 80)
        self.tls: ssl.SSLContext | None = httpx.create_ssl_context() if self.is_tls else None
        self.address: str | None = None
        self.idle: deque[Connection] = deque()
        self.all: set[Connection] = set()
        self.outstanding = 0
        self.is_reusing = True
        self.resend: Callable[[Pool, Capture], None]
        # Called between the clock reading and the write, so that no request leaves unnoted.
        self.on_sent: Callable[[Capture], None] = _drop

    async def resolve(self) -> None:
        """Look the host up once, so that no connect waits for it inside the window."""
        found = await self.loop.getaddrinfo(self.host, self.port)
        self.address = str(found[0][4][0])

    async def connect(self) -> Connection:
        """A new connection. Raises OSError, ssl.SSLError or TimeoutError."""
        server_name = self.host if self.is_tls else None
        async with asyncio.timeout(self.connect_s):
            _, connection = await self.loop.create_connection(
                lambda: Connection(self),
                self.address or self.host,
                self.port,
                ssl=self.tls,
                server_hostname=server_name,
            )
        self.all.add(connection)
        return connection

    async def warm(self, count: int) -> int:
        """Open connections until `count` idle ones wait; those that fail are tried again by their request.

        Returns how many were opened.
        """
        self.prune()
        missing, total = count - len(self.idle), 0
        batch = 64  # more at once would overflow a listen backlog
        while missing > 0:
            opened = await asyncio.gather(
                *(self.connect() for _ in range(min(batch, missing))), return_exceptions=True
            )
            made = [connection for connection in opened if isinstance(connection, Connection)]
            self.idle.extend(connection for connection in made if not connection.is_closed)
            missing -= len(opened)
            total += len(made)
            if not made:
                break
        return total

    def take(self) -> Connection | None:
        """An idle connection that is fit for use, or None."""
        idle, at = self.idle, now_ns()
        while idle:
            connection = idle.pop()
            if not connection.is_closed and at - connection.idle_since < connection.idle_limit_ns:
                return connection
            connection.close()
        return None

    def give(self, connection: Connection) -> None:
        if self.is_reusing:
            self.idle.append(connection)
        else:
            connection.close()

    def distrust(self, capture: Capture) -> None:
        """The server closed a used connection while the request was on its way (llama.cpp does, against its header).

        The request was never taken up, so it goes out once more on a new connection; its planned instant stands, so
        the detour counts in its TTFT. This endpoint's connections are not used twice from here on.
        """
        self.is_reusing = False
        while self.idle:
            self.idle.pop().close()
        self.resend(self, capture)

    def forget(self, connection: Connection) -> None:
        self.all.discard(connection)

    def prune(self) -> None:
        """Let go of idle connections that are too old to be used."""
        at = now_ns()
        keep = [c for c in self.idle if not c.is_closed and at - c.idle_since < c.idle_limit_ns]
        for connection in set(self.idle).difference(keep):
            connection.close()
        self.idle = deque(keep)

    def close(self) -> None:
        for connection in list(self.all):
            connection.abort()
        self.all.clear()
        self.idle.clear()


class _Answer(httpx.AsyncByteStream):
    """A captured body for whoever reads the response as httpx gives it."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    async def __aiter__(self) -> Any:
        from flows.load.outcomes import unframe

        capture = self._capture
        pieces, _ = unframe(b"".join(capture.pieces), capture.instants, map(len, capture.pieces))
        for piece in pieces:
            yield piece


class StreamTransport(httpx.AsyncBaseTransport):
    """Sends captures; passes everything else on to httpx."""

    def __init__(self, pools: list[Pool]) -> None:
        self.pools = pools
        self._loop = asyncio.get_running_loop()
        self._plain: httpx.AsyncHTTPTransport | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self._ended: deque[Capture] = deque()
        for pool in pools:
            pool.resend = self._send_on_new_connection

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Stage the request's capture at its gate and wait until it has ended.

        Raises httpx.ConnectError, ConnectTimeout, ReadTimeout, ReadError or RemoteProtocolError; the capture
        holds what came before that.
        """
        capture: Capture | None = request.extensions.get("capture")
        if capture is None:
            if self._plain is None:
                self._plain = httpx.AsyncHTTPTransport()
            return await self._plain.handle_async_request(request)
        capture.heads = self._heads(request, capture)
        capture.done = self._loop.create_future()
        capture.finish = self._finish_soon
        capture.gate.stage(capture)
        await capture.done
        if capture.status is None:
            raise _EXCEPTIONS.get(str(capture.error_class), httpx.ReadError)(
                capture.detail or "", request=request
            )
        return httpx.Response(
            capture.status or 0,
            # All of them lie in the capture; httpx looks at none of a whole answer's but its type.
            headers=capture.headers if capture.status != 200 else capture.headers[:1],
            stream=_Answer(capture),
            extensions={"http_version": b"HTTP/1.1", "capture": capture},
        )

    def _finish_soon(self, capture: Capture) -> None:
        """Resume who waits for this answer, a few at a time: when a thousand end at once, sockets are read in between."""
        self._ended.append(capture)
        if len(self._ended) == 1:
            self._loop.call_soon(self._finish_some)

    def _finish_some(self) -> None:
        ended = self._ended
        for _ in range(min(len(ended), FINISHED_AT_ONCE)):
            done = ended.popleft().done
            if done is not None and not done.done():
                done.set_result(None)
        if ended:
            self._loop.call_soon(self._finish_some)

    def _heads(self, request: httpx.Request, capture: Capture) -> list[bytes]:
        """The request's head, for its endpoint, or for each of them where it is chosen late."""
        late = capture.endpoint == CHOOSE_LATE
        pools = self.pools if late else [self.pools[capture.endpoint]]
        fields = [b"%s: %s\r\n" % header for header in request.headers.raw if header[0].lower() != b"host"]
        # So that an engine's log, and the reference server's truth, can be told request by request.
        name = str(capture.line.request_id)
        if name.isascii() and name.isprintable():
            fields.append(b"x-request-id: %s\r\n" % name.encode())
        fields.append(b"content-length: %d\r\n\r\n" % len(capture.body))
        rest = b"".join(fields)
        return [
            f"{request.method} {pool.base_path}{capture.path} HTTP/1.1\r\nhost: {pool.netloc}\r\n".encode()
            + rest
            for pool in pools
        ]

    def send(self, capture: Capture, planned_ns: int) -> None:
        """Write a staged capture now, on an idle connection of its endpoint or a new one."""
        capture.planned_ns = planned_ns
        if capture.endpoint == CHOOSE_LATE:
            capture.endpoint = min(range(len(self.pools)), key=lambda at: self.pools[at].outstanding)
        pool = self.pools[capture.endpoint]
        pool.outstanding += 1
        connection = pool.take()
        if connection is not None:
            connection.start(capture)
        else:
            self._send_on_new_connection(pool, capture)

    def _send_on_new_connection(self, pool: Pool, capture: Capture) -> None:
        task = self._loop.create_task(self._connect_and_send(pool, capture))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect_and_send(self, pool: Pool, capture: Capture) -> None:
        try:
            connection = await pool.connect()
        except TimeoutError:
            seconds = pool.connect_s
            capture.end(now_ns(), "failed", "connect_timeout", f"no connection within {seconds} s")
        except (OSError, ssl.SSLError) as error:
            capture.end(now_ns(), "failed", "connect_failed", f"{type(error).__name__}: {error}")
        else:
            if capture.end_ns is not None or connection.is_closed:
                connection.abort()
                capture.end(now_ns(), "failed", "connect_failed", "the connection closed at once")
                return
            connection.start(capture)

    async def aclose(self) -> None:
        for pool in self.pools:
            pool.close()
        if self._plain is not None:
            await self._plain.aclose()


_EXCEPTIONS: dict[str, type[httpx.RequestError]] = {
    "connect_failed": httpx.ConnectError,
    "connect_timeout": httpx.ConnectTimeout,
    "first_token_timeout": httpx.ReadTimeout,
    "chunk_timeout": httpx.ReadTimeout,
    "total_timeout": httpx.ReadTimeout,
    "not_a_stream": httpx.RemoteProtocolError,
}
