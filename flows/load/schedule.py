"""When each request of a plan is sent: gates that hold staged captures and let them go.

Everything httpx does for a request is done while the one before still streams: a gate only has to write. So a
slot's next request leaves in the socket callback that ended the one before, and planned_ns is that very instant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from flows.load.clock import Alarms, now_ns
from flows.load.plan import Shape
from flows.load.planfile import PlanFile, PlanLine
from flows.load.transport import Capture

Send = Callable[[Capture, int], None]


class Gate:
    """What the gates share: whether requests may start, and how many are in flight.

    `hands` coroutines of the client each take the next line with `next_line`, stage it, and wait for its end
    (0: one coroutine a request, made while few are ahead). send(capture, planned_ns) writes. on_ended(capture) is told of every end.
    """

    hands = 0

    def __init__(self, send: Send, on_ended: Callable[[Capture], None], alarms: Alarms) -> None:
        self._send, self._on_ended, self._alarms = send, on_ended, alarms
        self.is_open = False
        self.is_stopped = False
        self.stop_ns: int | None = None
        self.in_flight = 0
        self.staged: deque[Capture] = deque()

    def next_line(self, hand: int) -> PlanLine | None:
        """The next request for this hand, or None when there is none left for it."""
        raise NotImplementedError

    def open(self, at_ns: int) -> None:
        """Let requests go; the window's time counts from at_ns."""
        raise NotImplementedError

    def stage(self, capture: Capture) -> None:
        """Take a capture that is ready to be written."""
        raise NotImplementedError

    def ended(self, capture: Capture) -> None:
        """A request is over. Runs inside the socket callback, so it only counts and lets the next one go."""
        if capture.planned_ns is not None:
            self.in_flight -= 1
            self._on_ended(capture)
            if not self.is_stopped:
                self._next_after(capture)

    def stop(self) -> None:
        """No request starts any more: let go of what is staged."""
        self.is_stopped = True
        while self.staged:
            self.staged.popleft().end(now_ns(), "unsent")

    def _next_after(self, capture: Capture) -> None:
        raise NotImplementedError

    def _start(self, capture: Capture, planned_ns: int) -> None:
        if self.is_stopped or (self.stop_ns is not None and now_ns() >= self.stop_ns):
            self.is_stopped = True
            capture.end(now_ns(), "unsent")
            return
        self.in_flight += 1
        self._send(capture, planned_ns)


class ClosedGate(Gate):
    """`concurrency` slots. A slot that becomes free takes the request that was staged first."""

    def __init__(
        self,
        send: Send,
        on_ended: Callable[[Capture], None],
        alarms: Alarms,
        lines: Iterator[PlanLine],
        count: int,
        concurrency: int,
        ramp_up_s: float = 0.0,
        first_slot: int = 0,
        all_slots: int | None = None,
    ) -> None:
        super().__init__(send, on_ended, alarms)
        self._lines = lines
        self._concurrency = concurrency
        self._ramp_ns = round(ramp_up_s * 1e9)
        self._first = first_slot
        self._all = all_slots or concurrency
        self._free: deque[int] = deque()
        self.hands = min(count, 2 * concurrency)

    def next_line(self, hand: int) -> PlanLine | None:
        return next(self._lines, None)

    def open(self, at_ns: int) -> None:
        self.is_open = True
        step_ns = self._ramp_ns / self._all
        for slot in range(self._concurrency):
            due = at_ns + round((self._first + slot) * step_ns)
            if due <= at_ns:
                self._take_slot(due)
            else:
                self._alarms.at(due, self._take_slot, due)

    def stage(self, capture: Capture) -> None:
        if self.is_stopped:
            capture.end(now_ns(), "unsent")
        elif self._free:
            self._start(capture, self._free.popleft())
        else:
            self.staged.append(capture)

    def _take_slot(self, free_ns: int) -> None:
        if self.staged:
            self._start(self.staged.popleft(), free_ns)
        else:
            self._free.append(free_ns)

    def _next_after(self, capture: Capture) -> None:
        assert capture.end_ns is not None
        self._take_slot(capture.end_ns)


class OpenGate(Gate):
    """Instants come with the plan. Behind `max_in_flight` a request waits, and that wait is part of its TTFT.

    on_due is called whenever a request has become due, so that another can be staged in its place.
    """

    LOOKAHEAD = 256  # staged before they are due; at 5,000 a second that is 50 ms ahead

    def __init__(
        self,
        send: Send,
        on_ended: Callable[[Capture], None],
        alarms: Alarms,
        lines: Iterator[PlanLine],
        max_in_flight: int | None,
        on_due: Callable[[], None],
    ) -> None:
        super().__init__(send, on_ended, alarms)
        self._lines = lines
        self._cap = max_in_flight
        self._on_due = on_due
        self._opened_ns = 0
        self._waiting: deque[tuple[Capture, int]] = deque()
        self._held: set[Capture] = set()

    @property
    def ahead(self) -> int:
        """How many are staged and not due yet."""
        return len(self.staged) + len(self._held)

    def next_line(self, hand: int) -> PlanLine | None:
        return next(self._lines, None)

    def open(self, at_ns: int) -> None:
        self.is_open = True
        self._opened_ns = at_ns
        while self.staged:
            self._hold(self.staged.popleft())

    def stage(self, capture: Capture) -> None:
        if self.is_stopped:
            capture.end(now_ns(), "unsent")
        elif self.is_open:
            self._hold(capture)
        else:
            self.staged.append(capture)

    def stop(self) -> None:
        self.is_stopped = True
        for capture in [*self.staged, *self._held, *(capture for capture, _ in self._waiting)]:
            capture.end(now_ns(), "unsent")
        self.staged.clear()
        self._held.clear()
        self._waiting.clear()

    def _hold(self, capture: Capture) -> None:
        self._held.add(capture)
        due = self._opened_ns + (capture.line.planned_offset_ns or 0)
        self._alarms.at(due, self._due, capture, due)

    def _due(self, capture: Capture, due: int) -> None:
        self._held.discard(capture)
        if capture.end_ns is not None:
            return
        if self._cap is not None and self.in_flight >= self._cap:
            self._waiting.append((capture, due))
        else:
            self._start(capture, due)
        self._on_due()

    def _next_after(self, capture: Capture) -> None:
        if self._waiting and (self._cap is None or self.in_flight < self._cap):
            self._start(*self._waiting.popleft())


class _Seat:
    """One of the sessions that may run at once."""

    __slots__ = ("free_ns", "is_busy", "session", "staged", "turn")

    def __init__(self) -> None:
        self.session: deque[int] = deque()
        self.turn = 0
        self.staged: deque[Capture] = deque()
        self.is_busy = False
        self.free_ns: int | None = None


class SessionGate(Gate):
    """Sessions run their turns in order; a turn starts think_time_s after the one before ended."""

    def __init__(
        self,
        send: Send,
        on_ended: Callable[[Capture], None],
        alarms: Alarms,
        plan: PlanFile,
        sessions: list[list[int]],
        concurrency: int,
    ) -> None:
        super().__init__(send, on_ended, alarms)
        self._plan = plan
        self._sessions = deque(sessions)
        self._seats = [_Seat() for _ in range(min(concurrency, max(1, len(sessions))))]
        self._is_first: set[int] = {session[0] for session in sessions if session}
        self.hands = 2 * len(self._seats)
        self._positions: dict[int, tuple[_Seat, bool]] = {}
        self._thinking: set[Capture] = set()

    def next_line(self, hand: int) -> PlanLine | None:
        seat = self._seats[hand % len(self._seats)]
        while not seat.session:
            if not self._sessions:
                return None
            seat.session = deque(self._sessions.popleft())
        at = seat.session.popleft()
        line = self._plan.line(self._plan.timed[at])
        self._positions[line.position] = (seat, at in self._is_first)
        return line

    def open(self, at_ns: int) -> None:
        self.is_open = True
        for seat in self._seats:
            seat.free_ns = at_ns
            self._advance(seat)

    def stage(self, capture: Capture) -> None:
        if self.is_stopped:
            capture.end(now_ns(), "unsent")
            return
        seat, is_first = self._positions.pop(capture.line.position)
        capture.slot = (seat, is_first)
        seat.staged.append(capture)
        if self.is_open:
            self._advance(seat)

    def _advance(self, seat: _Seat) -> None:
        if seat.is_busy or not seat.staged or seat.free_ns is None:
            return
        capture = seat.staged.popleft()
        seat.is_busy = True
        think_ns = 0 if capture.slot[1] else round(capture.line.think_time_s * 1e9)
        due = seat.free_ns + think_ns
        if think_ns == 0:
            self._start(capture, due)
        else:
            self._thinking.add(capture)
            self._alarms.at(due, self._think_over, capture, due)

    def _think_over(self, capture: Capture, due: int) -> None:
        self._thinking.discard(capture)
        if capture.end_ns is None:
            self._start(capture, due)

    def _next_after(self, capture: Capture) -> None:
        seat = capture.slot[0]
        seat.is_busy = False
        seat.free_ns = capture.end_ns
        self._advance(seat)

    def stop(self) -> None:
        self.is_stopped = True
        waiting = [*self._thinking, *(capture for seat in self._seats for capture in seat.staged)]
        for capture in waiting:
            capture.end(now_ns(), "unsent")
        self._thinking.clear()
        for seat in self._seats:
            seat.staged.clear()


def shard(plan: PlanFile, shape: Shape, process: int, processes: int) -> list[int]:
    """The positions in `timed` that one process of the window sends: every processes-th, sessions kept whole."""
    if shape.kind == "sessions":
        return [at for session in plan.sessions()[process::processes] for at in session]
    return list(range(process, len(plan.timed), processes))


def share(whole: int, process: int, processes: int) -> int:
    """How many of `whole` slots one process has."""
    return whole // processes + (process < whole % processes)
