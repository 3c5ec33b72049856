"""Holds one engine process on a leash: when the flow dies in any way, the engine and all its children go.

Run as a file of its own (`python -I leash.py STATUS_PATH GRACE_S PARENT_PID -- argv...`), standard library only and
single-threaded: PR_SET_PDEATHSIG fires when the *thread* that forked ends, so the flow's own threads must not be
the engine's parent. Standard input is a pipe whose other end only the flow holds.

The leash is a child subreaper, so a grandchild that called setsid (Ray, NCCL helpers, EngineCore) is re-parented to
it and is ended too. STATUS_PATH gets one JSON object: pid, pgid, start ticks, and, at the end, exit code and reason.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
EXEC_FAILED = 127  # the shell's own code for a command that was not found

_libc = ctypes.CDLL(None, use_errno=True)


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the pid, its identity. None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return int(stream.read().rsplit(b")", 1)[1].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def descendants(root: int) -> list[int]:
    """Every live process below `root`, by parent links; zombies are not counted."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as stream:
                fields = stream.read().rsplit(b")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


class _Leash:
    def __init__(self, status_path: str, grace_s: float, parent: int, argv: list[str]) -> None:
        self.status_path, self.grace_s, self.parent, self.argv = status_path, grace_s, parent, argv
        self.child = 0
        self.exit_code: int | None = None
        self.reason: str | None = None
        self.wake, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self.wake, False)

    def run(self) -> int:
        with contextlib.suppress(OSError):
            os.setsid()
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.set_wakeup_fd(self._wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        asked_to_stop = False

        def stop(*_: object) -> None:
            nonlocal asked_to_stop
            asked_to_stop = True

        signal.signal(signal.SIGTERM, stop)
        self._fork()
        self._write_status()
        watches_pipe = True
        while self.exit_code is None:
            readable, _, _ = select.select([self.wake, 0] if watches_pipe else [self.wake], [], [], 1.0)
            if self.wake in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, 4096)
            self._reap()
            if self.exit_code is not None:
                break
            if 0 in readable and not os.read(0, 4096):
                watches_pipe = False
                self.reason = "stopped"
            elif os.getppid() != self.parent:
                self.reason = "flow_gone"
            elif asked_to_stop:
                self.reason = "stopped"
            if self.reason:
                break
        if self.reason is None:
            self.reason = "exited"
            self._write_status()
        self._end_everything()
        # A killed flow's pipe closes a moment before its children are re-parented.
        if self.reason == "stopped" and os.getppid() != self.parent:
            self.reason = "flow_gone"
        self._write_status(is_over=True)
        code = self.exit_code if self.exit_code is not None else 0
        return code if code >= 0 else 128 - code

    def _fork(self) -> None:
        leash_pid = os.getpid()
        self.child = os.fork()
        if self.child:
            return
        try:
            os.setsid()
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != leash_pid:
                os._exit(EXEC_FAILED)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.execvp(self.argv[0], self.argv)
        except OSError as error:
            os.write(2, f"leash: cannot run {self.argv[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(EXEC_FAILED)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.exit_code = os.waitstatus_to_exitcode(status)

    def _end_everything(self) -> None:
        """SIGTERM to all that is left, the grace, then SIGKILL until nothing answers."""
        me = os.getpid()
        # A server that spawned workers ends them in order itself: its own group first, strays after.
        if self.exit_code is None:
            _signal_all([self.child], signal.SIGTERM, group=True)
        else:
            _signal_all(descendants(me), signal.SIGTERM)
        deadline = time.monotonic() + self.grace_s
        while time.monotonic() < deadline:
            self._reap()
            left = descendants(me)
            if not left:
                return
            if self.exit_code is not None:
                _signal_all(left, signal.SIGTERM)
            time.sleep(0.02)
        for _ in range(500):
            self._reap()
            left = descendants(me)
            if not left:
                return
            _signal_all(left, signal.SIGKILL)
            time.sleep(0.02)

    def _write_status(self, is_over: bool = False) -> None:
        body = {
            "leash_pid": os.getpid(),
            "leash_start_ticks": start_ticks(os.getpid()),
            "pid": self.child,
            "pgid": self.child,
            "start_ticks": start_ticks(self.child),
            "exit_code": self.exit_code,
            "reason": self.reason,
            "is_over": is_over,
        }
        with contextlib.suppress(OSError), open(self.status_path, "w") as stream:
            stream.write(json.dumps(body) + "\n")


def _signal_all(pids: list[int], number: int, group: bool = False) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)


def main(arguments: list[str]) -> int:
    """argv: status path, grace in seconds, the flow's pid, `--`, then the engine's command line."""
    status_path, grace_s, parent, dashes, *argv = arguments
    if dashes != "--" or not argv:
        os.write(2, b"usage: leash.py STATUS_PATH GRACE_S PARENT_PID -- argv...\n")
        return 2
    return _Leash(status_path, float(grace_s), int(parent), argv).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
