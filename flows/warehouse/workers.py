"""Worker processes for digesting: plain interpreters that run functions of this package, one call at a time.

Not multiprocessing: its spawned children import the caller's main module again, which a script without a guard does
not survive, and its forked ones inherit the threads and locks of whoever builds.
"""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from contracts.errors import BuildFailed

_ROOT = Path(__file__).resolve().parents[2]


class Workers:
    """As many processes as asked for. A context manager: none of them outlives it."""

    def __init__(self, count: int) -> None:
        self._free: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._all = [_start() for _ in range(count)]
        for process in self._all:
            self._free.put(process)
        self._threads = ThreadPoolExecutor(count)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._all:
            if kind is not None:
                process.kill()
            elif process.stdin:
                process.stdin.close()
        self._threads.shutdown(cancel_futures=kind is not None)
        for process in self._all:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Call a module-level function in whichever worker is free; its result, or its exception."""
        return self._threads.submit(self._call, (function.__module__, function.__name__, arguments))

    def _call(self, call: tuple[str, str, tuple[Any, ...]]) -> Any:
        process = self._free.get()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            _send(process.stdin, call)
            is_error, value = _receive(process.stdout)
        except (OSError, EOFError) as error:
            raise BuildFailed(
                f"a worker that digests raw died (exit {process.poll()})",
                next_step="look for the kernel's out-of-memory killer, then build again",
            ) from error
        finally:
            self._free.put(process)
        if is_error:
            raise value
        return value


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.Popen(
        [sys.executable, "-m", "flows.warehouse.workers"],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _send(stream: BinaryIO | Any, value: Any) -> None:
    content = pickle.dumps(value, protocol=5)
    stream.write(struct.pack("<Q", len(content)) + content)
    stream.flush()


def _receive(stream: BinaryIO | Any) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (size,) = struct.unpack("<Q", head)
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return pickle.loads(content)


def serve() -> None:
    """A worker: calls until its input closes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed may mix with the answers
    while True:
        try:
            module, name, arguments = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (False, getattr(importlib.import_module(module), name)(*arguments))
        except Exception as error:  # noqa: BLE001  # handed to the caller, who raises it
            answer = (True, error)
        _send(answers, answer)


if __name__ == "__main__":
    serve()
