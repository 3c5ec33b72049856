"""Who works in a load folder: a window's processes share its lock while they live, a recovery needs it alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from contracts.errors import WeighbridgeError

LOCK_FILE = "lock"
RECOVERY_WAIT_S = 60.0  # reading one full spool file at idle priority takes a few seconds


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock alone. Raises WeighbridgeError when a process of the window outlives the wait."""
    with (folder / LOCK_FILE).open("ab") as stream:
        deadline = time.monotonic() + RECOVERY_WAIT_S
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise WeighbridgeError(
                        f"a load process of {folder.name} is still running",
                        evidence=str(folder),
                        next_step="stop it, then resume",
                    ) from None
                time.sleep(0.05)
        yield


def share_lock(folder: Path) -> int:
    """Mark this process as one of the window's, until it ends in any way. Returns the open file."""
    handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle
