"""Killing anything at any moment loses no completed request and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from load_support import Reference, body, new_run, planned, records_of, reference_server, window_spec

from flows.landing import RunFolder
from flows.load import LoadProcessDied, left_over_windows, recover_window, run_window
from flows.load.plan import PlannedRequest, Shape

FLOW = """
import sys, msgspec
from pathlib import Path
from flows.landing import RunFolder
from flows.load import run_window
from flows.load.plan import PlannedRequest, WindowSpec
run = RunFolder(Path(sys.argv[1]))
spec = msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=WindowSpec)
requests = msgspec.json.decode(Path(sys.argv[3]).read_bytes(), type=list[PlannedRequest])
run_window(spec, requests, run, on_progress=lambda p: print(p.phase, p.done, flush=True))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    with reference_server(
        tmp_path_factory.mktemp("server"), {"timing": {"ttft_ms": 10, "itl_ms": 4}}
    ) as started:
        yield started


def _wait_for(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _load_processes(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if any(str(folder) in word for word in words) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def _check_recovered(run: RunFolder, count: int, truth: dict[str, dict[str, Any]], at_least: int) -> None:
    records = records_of(run)
    assert len(records) == count
    outcomes = [record.outcome for record in records.values()]
    assert outcomes.count("ok") >= at_least
    assert set(outcomes) <= {"ok", "cancelled", "unsent"}
    for record in records.values():
        told = truth.get(record.request_id)
        if record.outcome == "ok":
            assert told is not None
            assert told["output_tokens"] == record.output_tokens == 20
        elif record.outcome == "cancelled":
            assert record.sent_ns is not None
            assert record.error_class == "aborted"
            assert record.output_tokens is None
        else:
            assert told is None
            assert record.sent_ns is None


def test_a_killed_parent_takes_its_load_process_along_and_loses_nothing(
    server: Reference, tmp_path: Path
) -> None:
    import msgspec

    run = new_run(tmp_path)
    spec = window_spec(run, server.url, shape=Shape(concurrency=4))
    (tmp_path / "spec.json").write_bytes(msgspec.json.encode(spec))
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(_named(planned(400, 20), "parent")))
    command = [
        sys.executable,
        "-c",
        FLOW,
        str(run.path),
        str(tmp_path / "spec.json"),
        str(tmp_path / "plan.json"),
    ]
    flow = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert flow.stdout is not None
    done = 0
    for line in flow.stdout:
        done = int(line.split()[1])
        if done >= 20:
            break
    flow.send_signal(signal.SIGKILL)
    flow.wait()
    flow.stdout.close()
    _wait_for(lambda: not _load_processes(run.path))
    assert [folder.name for folder in left_over_windows(run)] == ["cell"]
    # The general recovery of a run may come first: it leaves the load's own files alone.
    assert run.recover() == []
    assert recover_window(run, "cell")
    _check_recovered(run, 400, server.truth(), at_least=done)
    assert not run.has_landed("windows/cell.jsonl")
    seals = run.seals()
    assert recover_window(run, "cell")
    assert run.seals() == seals
    assert left_over_windows(run) == []
    run.verify()


def _named(requests: list[PlannedRequest], prefix: str) -> list[PlannedRequest]:
    for request in requests:
        request.request_id = f"{prefix}-{request.request_id}"
    return requests


def test_a_killed_load_process_is_told_and_its_requests_land(server: Reference, tmp_path: Path) -> None:
    run = new_run(tmp_path)
    killed: list[int] = []

    def kill(progress: Any) -> None:
        if progress.done >= 15 and not killed:
            killed.append(progress.done)
            for process in _load_processes(run.path):
                os.kill(process.pid, signal.SIGKILL)

    with pytest.raises(LoadProcessDied) as told:
        run_window(window_spec(run, server.url), _named(planned(300, 20), "child"), run, on_progress=kill)
    assert "exit code -9" in str(told.value)
    _check_recovered(run, 300, server.truth(), at_least=killed[0])
    assert left_over_windows(run) == []


def test_a_parent_that_raises_leaves_no_process_and_can_be_recovered(
    server: Reference, tmp_path: Path
) -> None:
    run = new_run(tmp_path)

    def interrupt(progress: Any) -> None:
        if progress.phase == "timed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_window(
            window_spec(run, server.url), _named(planned(200, 20), "raise"), run, on_progress=interrupt
        )
    assert _load_processes(run.path) == []
    assert recover_window(run, "cell")
    _check_recovered(run, 200, server.truth(), at_least=0)


def test_a_plan_that_cannot_be_made_leaves_nothing(server: Reference, tmp_path: Path) -> None:
    run = new_run(tmp_path)

    def requests() -> Iterator[PlannedRequest]:
        yield PlannedRequest(request_id="r0", index=0, body=body())
        raise ValueError("the planner failed")

    with pytest.raises(ValueError, match="planner failed"):
        run_window(window_spec(run, server.url), requests(), run)
    assert left_over_windows(run) == []
    assert not recover_window(run, "cell")
    assert _load_processes(run.path) == []


def test_an_unfinished_plan_is_dropped_by_the_recovery(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    folder = run.path / ".load/cell"
    folder.mkdir(parents=True)
    (folder / "bodies.bin").write_bytes(b"{}")
    assert not recover_window(run, "cell")
    assert run.seals() == {}
    assert not folder.exists()


def test_an_engine_that_dies_ends_the_window_by_itself(tmp_path: Path) -> None:
    scenario = {"timing": {"ttft_ms": 10, "itl_ms": 5}, "life": {"dies_after_s": 0.5}}
    with reference_server(tmp_path / "dying", scenario) as dying:
        run = new_run(tmp_path)
        window = run_window(
            window_spec(run, dying.url, shape=Shape(concurrency=2)),
            planned(2000, 20),
            run,
            should_abort=lambda: dying.process.poll() is not None,
        )
    assert window.planned == 2000 == window.ok + window.failed + window.cancelled + window.unsent
    assert window.ok > 0
    assert len(records_of(run)) == 2000
