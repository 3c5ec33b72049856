"""Stops a process again and again while a window is open: a client, or a server, that does not get its processor."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from flows.cheats.scenario import Disturbance


@contextmanager
def disturbing(wanted: Disturbance | None, served: Any) -> Iterator[None]:
    """Pause the target's processes as `wanted` says until the block ends; nothing without one.

    served: flows.engines' Served, for a server's processes. The client's are the children that appear meanwhile.
    """
    if wanted is None:
        yield
        return
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    done = threading.Event()
    thread = threading.Thread(target=_pause, args=(wanted, before, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _pause(wanted: Disturbance, before: set[int], done: threading.Event) -> None:
    me = psutil.Process()
    while not done.wait(wanted.every_ms / 1e3):
        children = {child.pid for child in me.children(recursive=True)}
        pids = children & before if wanted.target == "server" else children - before
        stopped = [pid for pid in pids if _signal(pid, signal.SIGSTOP)]
        time.sleep(wanted.pause_ms / 1e3)
        for pid in stopped:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
