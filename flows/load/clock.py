"""Instants: the wall clock beside the monotonic one, timers that keep their instant, and the loop's own lag.

uvloop's timers count whole milliseconds. A planned send and a lag probe need better, so both wait on a
timerfd, which the kernel fires to the microsecond and the loop sees like any socket.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import struct
import time
from array import array
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec

now_ns = time.monotonic_ns


EPOCH_READINGS = 5


class Epoch(msgspec.Struct, frozen=True):
    """One reading of both clocks, taken together: turns monotonic instants into wall time."""

    monotonic_ns: int
    wall_ns: int

    @classmethod
    def read(cls) -> Epoch:
        """Read both clocks: the monotonic reading is the middle of two that enclose the wall's, the closest of a few.

        A process that is made to wait between them would otherwise see its wait as drift.
        """
        closest, epoch = 0, None
        for _ in range(EPOCH_READINGS):
            before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
            if epoch is None or after - before < closest:
                closest, epoch = after - before, cls((before + after) // 2, wall)
        assert epoch is not None
        return epoch

    def wall(self, at_ns: int) -> str:
        """A monotonic instant as UTC wall time, ISO 8601 with microseconds and `Z`."""
        at = (self.wall_ns + at_ns - self.monotonic_ns) // 1000
        seconds, microseconds = divmod(at, 1_000_000)
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def drift_ms_per_min(self, later: Epoch) -> float | None:
        """How far the wall clock ran ahead of the monotonic one between two readings, in ms a minute.

        None for less than a second: reading both clocks is itself good to a few microseconds only.
        """
        elapsed_ns = later.monotonic_ns - self.monotonic_ns
        if elapsed_ns < 1_000_000_000:
            return None
        ahead_ns = (later.wall_ns - self.wall_ns) - elapsed_ns
        return ahead_ns / 1e6 / (elapsed_ns / 60e9)


_libc = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1
_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_ITIMER = struct.Struct("@qqqq")  # interval s, ns; first expiry s, ns


class TimerFd:
    """A kernel timer on CLOCK_MONOTONIC, seen by the loop as a readable file.

    `callback(late_count)` runs when it fires; late_count is how many expiries have gathered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[int], None]) -> None:
        self._handle = _libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS)
        if self._handle < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop, self._callback = loop, callback
        loop.add_reader(self._handle, self._fired)

    def set(self, first_ns: int, interval_ns: int = 0) -> None:
        """Fire at the monotonic instant first_ns (at once if it has passed), then every interval_ns."""
        first_ns = max(first_ns, 1)  # 0 would disarm it
        setting = _ITIMER.pack(*divmod(interval_ns, 1_000_000_000), *divmod(first_ns, 1_000_000_000))
        if _libc.timerfd_settime(self._handle, _ABSOLUTE, setting, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)

    def _fired(self) -> None:
        try:
            expiries = int.from_bytes(os.read(self._handle, 8), "little")
        except BlockingIOError:
            return
        self._callback(expiries)


class Alarms:
    """Calls back at monotonic instants, any number of them, by one kernel timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._timer = TimerFd(loop, self._fire)
        self._armed: int | None = None

    def at(self, instant_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Call `callback(*args)` at instant_ns, or as soon as the loop runs when that has passed."""
        heapq.heappush(self._heap, (instant_ns, next(self._order), callback, args))
        if self._armed is None or instant_ns < self._armed:
            self._armed = instant_ns
            self._timer.set(instant_ns)

    def close(self) -> None:
        self._heap.clear()
        self._timer.close()

    def _fire(self, _expiries: int) -> None:
        self._armed = None
        heap = self._heap
        while heap and heap[0][0] <= now_ns():
            _, _, callback, args = heapq.heappop(heap)
            callback(*args)
        if heap and (self._armed is None or heap[0][0] < self._armed):
            self._armed = heap[0][0]
            self._timer.set(self._armed)


PROBE_INTERVAL_NS = 10_000_000


class LagProbe:
    """How late the loop comes to what is due: sampled every 10 ms by a kernel timer.

    A stall that swallows several expiries counts for each of them (50 ms late: 50, 40, 30, ...), as the requests
    that would have been due then would have waited. lags_ns grows by 8 bytes a sample.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lags_ns = array("q")
        self._timer = TimerFd(loop, self._sample)
        self._due = now_ns() + PROBE_INTERVAL_NS
        self._timer.set(self._due, PROBE_INTERVAL_NS)

    def restart(self) -> None:
        """Forget what was sampled so far (before the window opened)."""
        self.lags_ns = array("q")

    def close(self) -> None:
        self._timer.close()

    def _sample(self, expiries: int) -> None:
        at = now_ns()
        append = self.lags_ns.append
        for _ in range(expiries):
            append(at - self._due)
            self._due += PROBE_INTERVAL_NS


def percentile(ordered: Any, share: float) -> Any:
    """The nearest-rank percentile of an ordered, non-empty sequence: exact, one of its values."""
    rank = max(1, -(-round(share * 1_000_000) * len(ordered) // 1_000_000))
    return ordered[min(rank, len(ordered)) - 1]
