"""A deadline timer for the reference server: a kernel timer on CLOCK_MONOTONIC that the loop sees as a file.

uvloop's own timers count whole milliseconds; a token due every 10 ms would wander by a tenth of that.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1
_SETTING = struct.Struct("@qqqq")


class DeadlineTimer:
    """Calls back once the armed instant has come; arming again replaces a later instant."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._handle = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._callback = callback
        self._armed_ns = 0
        loop.add_reader(self._handle, self._fired)

    def arm(self, at_ns: int) -> None:
        """Fire at the monotonic instant at_ns, or sooner if that was armed before."""
        if self._armed_ns and self._armed_ns <= at_ns:
            return
        self._armed_ns = at_ns
        setting = _SETTING.pack(0, 0, *divmod(max(1, at_ns), 1_000_000_000))
        if _libc.timerfd_settime(self._handle, _ABSOLUTE, setting, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _fired(self) -> None:
        try:
            os.read(self._handle, 8)
        except BlockingIOError:
            return
        self._armed_ns = 0
        self._callback()
