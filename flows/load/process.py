"""Starts a load process: `python -m flows.load.process FOLDER PROCESS PROCESSES`.

What is done here is done before anything large is imported, because every window waits for it.
"""

from __future__ import annotations

import contextlib
import os
import sys

PRIORITY = -10


def ask_for_priority() -> None:
    """Be woken before whatever keeps the processors busy, where that is permitted.

    A client that waits for a processor would report its wait as the engine's. It uses a few percent of one.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    # Where the kernel groups processes by session, a priority counts within the group only; the group has its own.
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as stream:
        stream.write(str(PRIORITY))


def main() -> None:
    """Run one load process; its arguments are the load folder, its number and how many there are."""
    ask_for_priority()
    # httpx imports its command line (click, rich) where these are installed, which is most of a load process's start.
    # Without click it takes its documented way around it, so this process has none.
    sys.modules.setdefault("click", None)  # type: ignore[arg-type]
    from flows.load import worker

    worker.main()


if __name__ == "__main__":
    main()
