"""Being woken in time: what a process asks the kernel for, so that its own waiting is not reported as a server's.

Imports next to nothing: every window waits for a load process that starts here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys

PRIORITY = -10
# Shorter than what Linux gives by itself (0.7 ms and more), long enough to send a wave of requests without a pause.
SLICE_NS = 400_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # syscall numbers; Python has no call for it
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")  # size, policy, flags, nice, priority, runtime, deadline, period


def ask_to_be_woken() -> None:
    """What every process that stamps instants asks for: priority, and short slices."""
    ask_for_priority()
    ask_for_short_slices()


def ask_for_priority() -> None:
    """A larger share of busy processors than others get, where that is permitted."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    # Where the kernel groups processes by session, a priority counts within the group only; the group has its own.
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as stream:
        stream.write(str(PRIORITY))


def ask_for_short_slices(slice_ns: int = SLICE_NS) -> bool:
    """Run often and briefly (sched_setattr(2), which needs no permission). False where the kernel was not asked.

    Since Linux 6.12 a waking process runs at once if it asked for a shorter slice than the running one. Otherwise it
    waits for that one's slice to end, up to 3 ms, whatever its priority. Older kernels ignore it.
    """
    number = _SCHED_SETATTR.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
    return ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0
