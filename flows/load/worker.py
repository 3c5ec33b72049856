"""The load process: one window from plan to records. flows/load/process.py starts it.

Standard input is its leash and its orders (`plan`, `connect`, `open <ns>`, `write`, `abort`, one a line); when it closes, the
parent is gone, and so is this process once what has ended is on disk. Standard output carries one JSON event a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import sys
import threading
import time
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import uvloop

from flows.load.certificate import Certificate
from flows.load.clock import Alarms, Epoch, now_ns
from flows.load.convert import convert_all, start_reader, wait_for_reader
from flows.load.lock import share_lock
from flows.load.plan import WindowSpec
from flows.load.planfile import PlanFile, PlanLine
from flows.load.schedule import ClosedGate, Gate, OpenGate, SessionGate, shard, share
from flows.load.spool import FrameHeader, SentLog, SpoolWriter
from flows.load.streams import read_stream
from flows.load.transport import CHOOSE_LATE, Capture, Pool, StreamTransport

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses"}
PROGRESS_S = 0.25
# A running answer hands over what it has received once it has gathered this many socket reads.
FLUSH_READS = 256
ORPHANED = 3
# uvloop's and uvicorn's servers take up a connection in about 0.1 ms on a busy core.
SETTLE_S, SETTLE_S_A_CONNECTION = 0.02, 0.0003


class _Nothing(httpx.AsyncByteStream):
    """The body lies in the capture; and a response that was read lets go of what it held."""

    async def __aiter__(self) -> Any:
        return
        yield b""


_NOTHING = _Nothing()


class _NoCookies(httpx.Cookies):
    def extract_cookies(self, response: httpx.Response) -> None:
        """An answer of a measured request leaves nothing behind for the next; looking for it costs 20 us."""


_NO_COOKIES = _NoCookies()


class _Client(httpx.AsyncClient):
    """httpx's client, without a memory of cookies."""

    @property  # type: ignore[misc]
    def cookies(self) -> httpx.Cookies:  # type: ignore[override]
        return _NO_COOKIES


class LoadClient:
    """One process's share of one window."""

    def __init__(self, folder: Path, process: int, processes: int) -> None:
        self.folder, self.process, self.processes = folder, process, processes
        self.loop = asyncio.get_running_loop()
        self.orders: asyncio.Queue[str] = asyncio.Queue()
        self.spool: SpoolWriter | None = None
        self.gate: Gate | None = None
        self.running: set[Capture] = set()
        self.why = "done"
        self.opened_ns = self.closed_ns = 0
        self.send_delays_ns = array("q")
        self.intervals_ns = array("q")
        self.phase = "start"
        self._tasks: set[asyncio.Task[None]] = set()
        # Events have the standard output to themselves: whatever else prints goes to the log.
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self._reader_started = False
        self._warming: asyncio.Task[int] | None = None
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Plan, warm up, open, close, write."""
        await self._order("plan")
        self.plan = PlanFile(self.folder)
        self.spec: WindowSpec = self.plan.spec
        self.epoch = msgspec.json.decode((self.folder / "epoch.json").read_bytes(), type=Epoch)
        self.spool = SpoolWriter(self.folder, self.process, on_rotate=self._on_rotate)
        self.sent = SentLog(self.folder, self.process, self.plan.count)
        self.alarms = Alarms(self.loop)
        await self._connect_client()
        await self._warm_up()
        self.say(event="warmed")
        await self._order("connect")
        lines = shard(self.plan, self.spec.shape, self.process, self.processes)
        self.gate = self._timed_gate(lines)
        await self._prepare(self.gate, len(lines))
        gc.collect()
        gc.freeze()
        gc.disable()
        self.certificate = Certificate(self.loop)
        self.say(event="ready")
        opened = await self._order("open")
        self.opened_ns = int(opened.split()[1])
        await self._open(self.gate, self.opened_ns)
        self.closed_ns = max(self.intervals_ns[1::2], default=now_ns()) if self.intervals_ns else now_ns()
        self.certificate.close()
        self.phase = "closed"
        self.spool.close()
        self._progress()
        self.say(event="closed", closed_ns=self.closed_ns)
        await self.transport.aclose()
        self.certificate.write(
            self.folder / f"certificate-{self.process}.json",
            opened_ns=self.opened_ns,
            closed_ns=self.closed_ns,
            why=self.why,
            send_delays_ns=self.send_delays_ns,
            intervals_ns=self.intervals_ns,
        )
        # Reading what was received keeps a processor busy: not while another share of the window is open.
        await self._order("write")
        if self._reader_started:
            wait_for_reader()
        convert_all(self.folder, self.plan, self.process, self.spool.number)
        self.say(event="written")

    def say(self, **event: Any) -> None:
        """Tell the parent; a parent that is gone is noticed by the leash."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._out.write(msgspec.json.encode(event) + b"\n")
            self._out.flush()

    async def _order(self, wanted: str) -> str:
        while True:
            order = await self.orders.get()
            if order.split()[0] == wanted:
                return order

    def take_order(self, order: str) -> None:
        """An order of the parent, on the loop."""
        if order == "abort":
            self.stop("aborted")
        else:
            self.orders.put_nowait(order)

    def stop(self, why: str) -> None:
        """End the phase that runs: nothing new starts, what is in flight is cancelled."""
        if self.why == "done":
            self.why = why
        if self.gate is not None:
            self.gate.stop()
        error = "window_deadline" if why == "deadline" else "aborted"
        for capture in list(self.running):
            if capture.connection is not None and capture.connection.capture is capture:
                capture.connection.cancel("cancelled", error, None)  # type: ignore[arg-type]
            else:
                capture.end(now_ns(), "cancelled", error)  # type: ignore[arg-type]

    async def _connect_client(self) -> None:
        spec = self.spec
        self.pools = [Pool(url, self.loop, spec.deadlines.connect_s) for url in spec.endpoints]
        for pool in self.pools:
            pool.on_sent = self._note_sent
            await pool.resolve()
        self.transport = StreamTransport(self.pools)
        self.http = _Client(transport=self.transport, timeout=None, trust_env=False)
        fields = {"content-type": "application/json", "user-agent": "weighbridge"}
        if spec.api_key_env:
            fields["authorization"] = f"Bearer {os.environ.get(spec.api_key_env, '')}"
        self._headers = {
            streamed: httpx.Headers(
                {**fields, "accept": "text/event-stream" if streamed else "application/json"}
            )
            for streamed in (True, False)
        }
        base = spec.endpoints[0].rstrip("/")
        self._urls = {kind: httpx.URL(base + path) for kind, path in PATHS.items()}

    # Phases

    async def _warm_up(self) -> None:
        positions = range(self.process, len(self.plan.warmup), self.processes)
        if not positions:
            return
        self.phase = "warmup"
        asked = self.spec.warmup_concurrency or self.spec.shape.concurrency or 1
        slots = max(1, share(asked, self.process, self.processes))
        lines = (self.plan.line(self.plan.warmup[at]) for at in positions)
        self.gate = ClosedGate(self._send, self._ended, self.alarms, lines, len(positions), slots)
        await self._prepare(self.gate, len(positions))
        await self._open(self.gate, now_ns())

    def _timed_gate(self, positions: list[int]) -> Gate:
        self.phase = "timed"
        shape, plan = self.spec.shape, self.plan
        lines: Iterator[PlanLine] = (plan.line(plan.timed[at]) for at in positions)
        common = (self._send, self._ended, self.alarms)
        if shape.kind == "closed":
            slots = share(shape.concurrency or 1, self.process, self.processes)
            first = sum(share(shape.concurrency or 1, p, self.processes) for p in range(self.process))
            return ClosedGate(
                *common, lines, len(positions), slots, shape.ramp_up_s, first, shape.concurrency or 1
            )
        if shape.kind == "sessions":
            own = plan.sessions()[self.process :: self.processes]
            return SessionGate(
                *common, plan, own, share(shape.concurrency or 1, self.process, self.processes)
            )
        cap = shape.max_in_flight
        if cap is not None:
            cap = max(1, share(cap, self.process, self.processes))
        return OpenGate(*common, lines, cap, self._feed)

    async def _prepare(self, gate: Gate, count: int) -> None:
        """Open the connections that the first requests need, and stage as many requests as there are hands."""
        if isinstance(gate, OpenGate):
            wanted = min(count, 64)
        else:
            wanted = min(count, (gate.hands + 1) // 2)
        per_pool = -(-wanted // len(self.pools))
        opened = sum([await pool.warm(per_pool) for pool in self.pools])
        if opened:
            # A connection is made before its server has taken it up; a window that opened at once would measure that.
            await asyncio.sleep(SETTLE_S + opened * SETTLE_S_A_CONNECTION)
        if isinstance(gate, OpenGate):
            self._feed()
        for hand in range(gate.hands):
            self._spawn(self._work(gate, hand))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _open(self, gate: Gate, at_ns: int) -> None:
        """Let the gate's requests go at at_ns and wait until all have ended."""
        shape, window_s = self.spec.shape, self.spec.deadlines.window_s
        opened = self.loop.create_future()
        self.alarms.at(at_ns, opened.set_result, None)
        await opened
        is_timed = self.phase == "timed"
        if self.why == "done":
            if is_timed:
                self.certificate.open()
                if shape.stop_after_s is not None:
                    gate.stop_ns = at_ns + round(shape.stop_after_s * 1e9)
                    self.alarms.at(gate.stop_ns, self._stop_starting, gate)
                if window_s is not None:
                    self.alarms.at(at_ns + round(window_s * 1e9), self._window_over, gate)
            gate.open(at_ns)
        else:
            gate.stop()
        watch = self.loop.create_task(self._watch())
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._failure is not None:
            raise self._failure
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch

    def _stop_starting(self, gate: Gate) -> None:
        if gate is self.gate and self.phase == "timed":
            if self.why == "done":
                self.why = "stopped"
            gate.stop()

    def _window_over(self, gate: Gate) -> None:
        if gate is self.gate and self.phase == "timed":
            if self.why == "stopped":
                self.why = "done"
            self.stop("deadline")

    # Requests

    def _spawn(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_over)

    def _task_over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()
            self.stop("aborted")

    def _feed(self) -> None:
        gate = self.gate
        assert isinstance(gate, OpenGate)
        missing = gate.LOOKAHEAD - gate.ahead
        while missing > 0 and not gate.is_stopped and (line := gate.next_line(0)) is not None:
            self._spawn(self._perform(line, gate))
            missing -= 1

    async def _work(self, gate: Gate, hand: int) -> None:
        while not gate.is_stopped and (line := gate.next_line(hand)) is not None:
            await self._perform(line, gate)

    async def _perform(self, line: PlanLine, gate: Gate) -> None:
        if len(self.pools) == 1:
            endpoint = 0
        elif line.session_id is not None:
            # A conversation stays on the replica that holds its KV, as a router that knows sessions would keep it.
            place = line.user if line.user is not None else zlib.crc32(line.session_id.encode())
            endpoint = place % len(self.pools)
        elif self.spec.balance == "turn":
            endpoint = line.index % len(self.pools)
        else:
            endpoint = CHOOSE_LATE
        capture = Capture(line, self.plan.body(line), gate, PATHS[line.kind], endpoint)
        request = httpx.Request(
            "POST",
            self._urls[line.kind],
            headers=self._headers[line.is_streamed],
            stream=_NOTHING,
            extensions={"capture": capture},
        )
        try:
            response = await self.http.send(request, stream=True)
            response.stream = (
                _NOTHING  # httpx ties both to each other: with collection off that would never be freed
            )
        except httpx.RequestError:
            pass  # the capture has it
        if capture.outcome != "unsent":
            self._put(capture)

    def _send(self, capture: Capture, planned_ns: int) -> None:
        self.running.add(capture)
        self.transport.send(capture, planned_ns)

    def _note_sent(self, capture: Capture) -> None:
        self.sent.mark(capture.line.position, capture.planned_ns or 0, capture.sent_ns or 0)

    def _ended(self, capture: Capture) -> None:
        self.running.discard(capture)
        if capture.endpoint >= 0:
            self.pools[capture.endpoint].outstanding -= 1

    def _put(self, capture: Capture) -> None:
        line, sent_ns, planned_ns = capture.line, capture.sent_ns, capture.planned_ns
        if sent_ns is not None and planned_ns is not None and line.phase == "timed":
            self.send_delays_ns.append(sent_ns - planned_ns)
            self.intervals_ns.append(sent_ns)
            self.intervals_ns.append(capture.end_ns or sent_ns)
        assert self.spool is not None
        self.spool.put(
            FrameHeader(
                position=line.position,
                outcome=capture.outcome,
                error_class=capture.error_class,
                error_detail=capture.detail,
                endpoint=max(0, capture.endpoint),
                planned_ns=planned_ns,
                sent_ns=sent_ns,
                end_ns=capture.end_ns,
                http_status=capture.status,
                retry_after_s=retry_after_s(capture.retry_after),
            ),
            capture.instants,
            capture.pieces,
        )

    # Deadlines

    async def _watch(self) -> None:
        """Look after running requests a slice at a time, so that a thousand of them never hold the loop."""
        limits = self.spec.deadlines
        shortest = min(
            (s for s in (limits.first_token_s, limits.between_chunks_s, limits.total_s) if s), default=10.0
        )
        tick_s = min(0.1, max(0.005, shortest / 10))
        told = 0.0
        while True:
            await asyncio.sleep(tick_s)
            for start, capture in enumerate(list(self.running)):
                if start % 64 == 63:
                    await asyncio.sleep(0)
                self._look_after(capture)
            self._keep_ready()
            if time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                self._progress()

    def _keep_ready(self) -> None:
        """Where requests come at their own instants, keep a fresh connection waiting, so that none pays for making it."""
        gate = self.gate
        if gate is None or isinstance(gate, ClosedGate) or gate.is_stopped or self._warming:
            return
        rate = self.spec.shape.rate_rps or 0.0
        wanted = 1 if rate <= 10 else 4
        for pool in self.pools:
            pool.prune()
            if pool.is_reusing and len(pool.idle) < wanted:
                self._warming = self.loop.create_task(pool.warm(wanted))
                self._warming.add_done_callback(self._warmed)
                return

    def _warmed(self, task: asyncio.Task[int]) -> None:
        self._warming = None

    def _look_after(self, capture: Capture) -> None:
        connection, sent_ns = capture.connection, capture.sent_ns
        if capture.end_ns is not None or connection is None or sent_ns is None:
            return
        if connection.capture is not capture:
            return
        instants, pieces = capture.instants, capture.pieces
        at, limits = now_ns(), self.spec.deadlines
        if limits.total_s is not None and at - sent_ns > limits.total_s * 1e9:
            connection.cancel("failed", "total_timeout", f"not ended within {limits.total_s} s")
            return
        if pieces and at - instants[-1] > 50_000_000 and _has_said_done(pieces):
            connection.finish_done()
            return
        first_s, between_s = limits.first_token_s, limits.between_chunks_s
        if first_s is not None and not capture.is_alive_said and at - sent_ns > first_s * 1e9:
            if not capture.is_flushed and not self._has_token(capture):
                connection.cancel("failed", "first_token_timeout", f"no token within {first_s} s")
                return
            capture.is_alive_said = True
        has_begun = bool(pieces) or capture.is_flushed
        if between_s is not None and has_begun and at - _last_data(capture) > between_s * 1e9:
            connection.cancel("failed", "chunk_timeout", f"no chunk within {between_s} s")
            return
        if len(pieces) > FLUSH_READS and self.spool is not None:
            instants, pieces = connection.release_pieces()
            if pieces:
                header = FrameHeader(position=capture.line.position, is_part=True)
                self.spool.put(header, instants, pieces)

    def _has_token(self, capture: Capture) -> bool:
        from flows.load.outcomes import unframe

        pieces, instants = unframe(b"".join(capture.pieces), capture.instants, map(len, capture.pieces))
        return bool(read_stream(list(zip(instants, pieces, strict=True)), capture.line.kind).token_ns)

    def _progress(self) -> None:
        assert self.spool is not None
        self.say(
            event="progress",
            phase=self.phase,
            done=self.spool.done,
            failed=self.spool.failed,
            in_flight=len(self.running),
        )

    def _on_rotate(self, number: int) -> None:
        """A spool file is full (called from the writer's thread): let an idle-priority process read it meanwhile."""
        self._reader_started = True
        start_reader(self.folder, self.process, number)


def _has_said_done(pieces: list[bytes]) -> bool:
    return b"[DONE]" in b"".join(pieces[-3:])[-256:]


def _last_data(capture: Capture) -> int:
    """When the answer last said something: pings and comments keep a socket busy, not an answer."""
    pieces = capture.pieces
    for back in range(len(pieces) - 1, max(-1, len(pieces) - 64), -1):
        piece = pieces[back]
        if b"data:" in piece or (len(piece) > 64 and b": " not in piece[:8]):
            capture.last_ns = max(capture.last_ns, capture.instants[back])
            break
    return capture.last_ns


def retry_after_s(value: str | None) -> float | None:
    """Retry-After as seconds; a date, or nonsense, is None."""
    try:
        seconds = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e9 else None


def _listen(client: LoadClient, loop: asyncio.AbstractEventLoop) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(client.take_order, line.strip())
    # The parent is gone. What has ended is written, then nothing of this window is left.
    if client.spool is not None:
        with contextlib.suppress(OSError):
            client.spool.close(timeout_s=2.0)
    os._exit(ORPHANED)


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _main(folder: Path, process: int, processes: int) -> None:
    client = LoadClient(folder, process, processes)
    loop = asyncio.get_running_loop()
    threading.Thread(target=_listen, args=(client, loop), name="leash", daemon=True).start()
    await client.run()


def main() -> None:
    """Run one load process; its arguments are the load folder, its number and how many there are."""
    folder, process, processes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    _lock = share_lock(folder)
    _raise_open_files()
    uvloop.run(_main(folder, process, processes))
    os._exit(0)  # the leash thread still reads; nothing is left to be written
