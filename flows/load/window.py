"""Runs one window: writes its plan, starts its processes together, watches them, lands what they wrote."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from contracts.records import Window
from flows.landing import RunFolder
from flows.load.clock import Epoch, now_ns
from flows.load.errors import LoadProcessDied
from flows.load.finish import OnText, land_window, recover_window
from flows.load.plan import PlannedRequest, WindowSpec
from flows.load.planfile import PlanFile, load_folder, write_plan
from flows.load.preflight import check_endpoint

POLL_S = 0.2
# From the order to open until the instant of opening: long enough for the order to reach every process.
OPEN_AFTER_NS = 5_000_000
OPEN_TOGETHER_AFTER_NS = 30_000_000


@dataclass(frozen=True)
class Progress:
    """How far a window is. done counts what is on disk, failed those of them that are known to have failed.

    phase: warmup; opening (once, just before the window opens, while nothing is in flight: what is read from the
    engine now is its state before the timed load); ready (once, connected and staged: the window opens when the
    callback returns); timed; closed (once, after the last request of every process, before anything is made of what
    they wrote); written.
    """

    phase: Literal["warmup", "opening", "ready", "timed", "closed", "written"]
    done: int
    failed: int
    planned: int
    in_flight: int = 0


OnProgress = Callable[[Progress], None]


def run_window(
    spec: WindowSpec,
    requests: Iterable[PlannedRequest],
    run: RunFolder,
    on_progress: OnProgress | None = None,
    should_abort: Callable[[], bool] | None = None,
    on_text: OnText | None = None,
) -> Window:
    """Send a window's requests from processes of their own; land `requests/` and `windows/` `<cell_id>.jsonl`.

    requests: taken one at a time while the plan is written, before the window opens. on_progress: a few times a
    second, from this thread. should_abort: polled; when true, what is in flight becomes `cancelled` and the rest
    `unsent`. on_text: gets the answers of a spec whose text is private. Timed requests always add up: planned = ok + failed + cancelled + unsent.

    Raises EndpointUnusable before the window opens (nothing lands), BadInput for a plan that cannot be run, and
    LoadProcessDied after landing what a dead load process had completed. When it is itself interrupted, its
    processes end and `recover_window` lands what they had.
    """
    folder = load_folder(run, spec.cell_id)
    if run.has_landed(f"requests/{spec.cell_id}.jsonl"):
        raise FileExistsError(f"requests/{spec.cell_id}.jsonl has landed already; raw is never rewritten")
    folder.mkdir(parents=True, exist_ok=False)
    with _Crew(folder, spec.processes) as crew:
        try:
            planned = write_plan(folder, spec, requests)
            plan = PlanFile(folder)
            first = next(plan.lines(), None)
            for url in dict.fromkeys(spec.endpoints):
                check_endpoint(url, spec.model, spec.api_key_env, first.kind if first else "chat")
        except BaseException:
            crew.kill()
            shutil.rmtree(folder)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()
            raise
        (folder / "epoch.json").write_bytes(msgspec.json.encode(Epoch.read()))
        watch = _Watch(crew, plan.count, on_progress, should_abort)
        try:
            crew.tell("plan")
            watch.until("warmed")
            watch.report("opening")
            crew.tell("connect")
            watch.until("ready")
            watch.report("ready")
            after = OPEN_AFTER_NS if spec.processes == 1 else OPEN_TOGETHER_AFTER_NS
            crew.tell(f"open {now_ns() + after}")
            watch.until("closed")
            watch.report("closed")
            crew.tell("write")
            watch.until("written")
        except _Died as death:
            crew.kill()
            recover_window(run, spec.cell_id)
            raise LoadProcessDied(
                f"a load process of {spec.cell_id} ended before its window did",
                measured=f"exit code {death.exit_code}"
                + (f", {death.last_words}" if death.last_words else ""),
                evidence=str(run.path / f"requests/{spec.cell_id}.jsonl"),
                next_step="what it had completed has landed; run the cell again",
            ) from None
        crew.join()
        window = land_window(folder, run, on_text)
        watch.report("written")
    assert window is not None and planned >= 0
    return window


class _Died(Exception):
    def __init__(self, exit_code: int | None, last_words: str) -> None:
        super().__init__()
        self.exit_code, self.last_words = exit_code, last_words


class _Crew:
    """The load processes of one window, on the leash of their standard input."""

    def __init__(self, folder: Path, processes: int) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            for process in range(processes):
                self.processes.append(self._start(process, processes))
        except BaseException:
            self.kill()
            raise

    def _start(self, process: int, processes: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "flows.load.process", str(self.folder), str(process), str(processes)]
        with (self.folder / f"process-{process}.log").open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                start_new_session=True,
            )

    def tell(self, order: str) -> None:
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(order.encode() + b"\n")

    def last_words(self, number: int) -> str:
        """The last line that a process wrote to its log."""
        path = self.folder / f"process-{number}.log"
        lines = path.read_text(errors="replace").split("\n") if path.exists() else []
        said = [line.strip() for line in lines if line.strip()]
        return said[-1][:300] if said else ""

    def join(self) -> None:
        for process in self.processes:
            process.wait(timeout=30)

    def kill(self) -> None:
        """End every process with all that it started."""
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: Any) -> None:
        self.kill()
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class _Watch:
    """Reads the processes' events, passes progress on, and aborts when asked."""

    def __init__(
        self,
        crew: _Crew,
        planned: int,
        on_progress: OnProgress | None,
        should_abort: Callable[[], bool] | None,
    ) -> None:
        self._crew, self._planned = crew, planned
        self._on_progress, self._should_abort = on_progress, should_abort
        self._selector = selectors.DefaultSelector()
        self._rest: list[bytes] = []
        self._latest: dict[int, dict[str, Any]] = {}
        self._is_aborted = False
        self._polled = 0.0
        self._seen: list[set[str]] = [set() for _ in crew.processes]
        for number, process in enumerate(crew.processes):
            assert process.stdout is not None
            self._rest.append(b"")
            self._selector.register(process.stdout, selectors.EVENT_READ, number)

    def until(self, wanted: str) -> None:
        """Wait until every process has said `wanted`. Raises _Died when one ends before."""
        while not all(wanted in seen for seen in self._seen):
            for key, _ in self._selector.select(POLL_S):
                self._read(int(key.data))
            self._poll_abort()

    def report(self, phase: Any) -> None:
        """Tell on_progress about a phase, with the latest counts."""
        if self._on_progress is None:
            return
        latest = self._latest.values()
        self._on_progress(
            Progress(
                phase,
                done=sum(event["done"] for event in latest),
                failed=sum(event["failed"] for event in latest),
                planned=self._planned,
                in_flight=sum(event["in_flight"] for event in latest),
            )
        )

    def _read(self, number: int) -> None:
        process = self._crew.processes[number]
        assert process.stdout is not None
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            self._selector.unregister(process.stdout)
            if "written" not in self._seen[number]:
                raise _Died(process.wait(), self._crew.last_words(number))
            return
        *lines, self._rest[number] = (self._rest[number] + data).split(b"\n")
        for line in lines:
            event = msgspec.json.decode(line)
            self._seen[number].add(event["event"])
            if event["event"] == "progress":
                self._latest[number] = event
                if event["phase"] in ("warmup", "timed"):
                    self.report(event["phase"])

    def _poll_abort(self) -> None:
        if self._should_abort is None or self._is_aborted or time.monotonic() - self._polled < POLL_S:
            return
        self._polled = time.monotonic()
        if self._should_abort():
            self._is_aborted = True
            self._crew.tell("abort")
