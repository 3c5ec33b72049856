"""Engine processes as the flow holds them: started on a leash, watched, ended, and swept after a crash."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.engines import leash
from flows.engines.base import ProcessSpec
from flows.engines.devices import oom_kills

GRACE_S = 20.0  # vLLM and SGLang free their GPU memory and end their workers within about ten seconds
RUN_MARK = "WEIGHBRIDGE_RUN_FOLDER"  # in the environment of every engine process, so that strays can be told


@dataclass
class Process:
    """One leashed server process. `log` is its standard output and error, still `.part`."""

    spec: ProcessSpec
    name: str
    log: Path
    status_path: Path
    leash: subprocess.Popen[bytes]
    started_monotonic: float
    run_folder: Path
    oom_kills_before: int | None = None
    first_output_s: float | None = None
    _last_status: dict[str, Any] = field(default_factory=dict)

    def status(self) -> dict[str, Any]:
        """What the leash last wrote: pid, pgid, start_ticks, exit_code (negative: signal), reason."""
        with contextlib.suppress(OSError, ValueError):
            self._last_status = json.loads(self.status_path.read_text()) or self._last_status
        return self._last_status

    @property
    def exit_code(self) -> int | None:
        """The server's own exit code, negative for a signal; None while it runs."""
        code = self.leash.poll()
        status = self.status()
        if status.get("exit_code") is not None:
            return int(status["exit_code"])
        if code is None:
            return None
        return code if code >= 0 else -signal.SIGKILL  # the leash was killed, and its child with it

    @property
    def is_alive(self) -> bool:
        return self.leash.poll() is None and self.exit_code is None

    def note_output(self) -> None:
        """Remember when the process first wrote something: its interpreter and imports are up by then."""
        if self.first_output_s is None and self.log.exists() and self.log.stat().st_size > 0:
            self.first_output_s = round(time.monotonic() - self.started_monotonic, 3)

    def end(self, grace_s: float = GRACE_S) -> str | None:
        """Let go of the leash and wait until everything below it is gone. Returns a note when it was not clean."""
        notes = []
        if self.leash.stdin is not None and not self.leash.stdin.closed:
            with contextlib.suppress(OSError):
                self.leash.stdin.close()
        try:
            self.leash.wait(grace_s + 15)
        except subprocess.TimeoutExpired:
            notes.append(f"{self.name}: the leash did not end in {grace_s + 15:.0f} s and was killed")
            self.leash.kill()
            self.leash.wait()
        if not self.status().get("is_over"):
            strays = _strays(self.run_folder, [self.status()])
            if strays:
                notes.append(f"{self.name}: {len(strays)} process(es) outlived the leash and were killed")
                _kill(strays)
        if self.spec.port is not None and not is_port_free(self.spec.port):
            notes.append(f"{self.name}: port {self.spec.port} is still taken")
        if not notes:
            # Nothing is left to sweep. The last status stays readable here.
            self.status()
            self.status_path.unlink(missing_ok=True)
        return "; ".join(notes) or None


def launch(spec: ProcessSpec, number: int, run_folder: Path, grace_s: float = GRACE_S) -> Process:
    """Start one process on a leash. Its output goes to `files/server-<n>.log.part` of the run folder."""
    files = run_folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    name = f"server-{number}"
    log, status_path = files / f"{name}.log.part", files / f"{name}.process.json.part"
    environment = {**os.environ, **spec.env, RUN_MARK: str(run_folder.resolve())}
    if spec.gpu_ids is not None:
        # Without PCI order, CUDA numbers the fastest device first and the ids differ from nvidia-smi's.
        environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, spec.gpu_ids))
    command = [sys.executable, "-I", leash.__file__, str(status_path), str(grace_s), str(os.getpid()), "--"]
    with log.open("ab") as stream:
        started = time.monotonic()
        process = subprocess.Popen(
            command + spec.argv,
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    return Process(spec, name, log, status_path, process, started, run_folder, oom_kills())


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_port_free(port: int) -> bool:
    """Whether a server could listen here now (connections in TIME_WAIT do not count as taken)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def sweep(run_folder: Path) -> list[int]:
    """End every engine process that an earlier flow left for this run folder, the leash included.

    A process is this run's when its environment carries the folder, or when pid and start instant are the ones
    that its leash wrote down. A recycled pid is left alone.
    """
    statuses = []
    for path in sorted((run_folder / "files").glob("server-*.process.json*")):
        with contextlib.suppress(OSError, ValueError):
            statuses.append(json.loads(path.read_text()))
    ended = _strays(run_folder, statuses)
    _kill(ended)
    return ended


def _strays(run_folder: Path, statuses: list[dict[str, Any]]) -> list[int]:
    mark = f"{RUN_MARK}={run_folder.resolve()}".encode()
    roots = set()
    for status in statuses:
        for pid_key, ticks_key in (("leash_pid", "leash_start_ticks"), ("pid", "start_ticks")):
            pid, ticks = status.get(pid_key), status.get(ticks_key)
            if pid and ticks and leash.start_ticks(pid) == ticks:
                roots.add(int(pid))
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as stream:
                if mark in stream.read().split(b"\0"):
                    roots.add(int(entry))
    found = set(roots)
    for root in roots:
        found.update(leash.descendants(root))
    return sorted(pid for pid in found if is_running(pid))


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return stream.read().rsplit(b")", 1)[1].split()[0] != b"Z"
    except (OSError, IndexError):
        return False


def _kill(pids: list[int]) -> None:
    deadline = time.monotonic() + 5
    while left := [pid for pid in pids if is_running(pid)]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
