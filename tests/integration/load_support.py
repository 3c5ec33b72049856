"""A reference server in a process of its own, and windows against it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.records import Request, Window
from flows.landing import RunFolder, read_records
from flows.load import run_window
from flows.load.plan import Deadlines, PlannedRequest, Shape, WindowSpec

READY_S = 60.0


@dataclass
class Reference:
    """A running reference server. truth(): what it did, by request id."""

    url: str
    truth_path: Path
    process: subprocess.Popen[bytes]

    def truth(self, count: int | None = None) -> dict[str, dict[str, Any]]:
        deadline = time.monotonic() + 10
        while True:
            lines = self.truth_path.read_bytes().splitlines()
            rows = [json.loads(line) for line in lines]
            found = {row["request_id"]: row for row in rows if row["number"] is not None}
            if count is None or len(found) >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.05)


@contextmanager
def reference_server(folder: Path, scenario: dict[str, Any], *more: str) -> Iterator[Reference]:
    """Start a server, wait until it says where it listens, and end it."""
    folder.mkdir(parents=True, exist_ok=True)
    path, truth, log = folder / "scenario.json", folder / "truth.jsonl", folder / "server.log"
    path.write_text(json.dumps(scenario))
    command = [
        sys.executable,
        "-m",
        "flows.engines.reference",
        "--scenario",
        str(path),
        "--truth",
        str(truth),
    ]
    with log.open("wb") as stream:
        process = subprocess.Popen([*command, *more], stderr=stream)
    try:
        deadline = time.monotonic() + READY_S
        while "startup complete" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "the reference server did not start"
            time.sleep(0.02)
        found = re.search(r"listening on (\S+)", log.read_text())
        assert found is not None
        yield Reference(found.group(1), truth, process)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def body(text: str = "hello there", tokens: int | None = 8, **extra: Any) -> dict[str, Any]:
    """A streamed chat request."""
    made: dict[str, Any] = {
        "model": "reference",
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if tokens is not None:
        made["max_tokens"] = tokens
    return made | extra


def planned(count: int, tokens: int = 8, **fields: Any) -> list[PlannedRequest]:
    """`count` requests, each with a prompt of its own."""
    return [
        PlannedRequest(
            request_id=f"r{index}", index=index, body=body(f"number {index} please", tokens), asked_output_tokens=tokens,
            **fields,
        )
        for index in range(count)
    ]  # fmt: skip


@dataclass
class Result:
    window: Window
    records: dict[str, Request]
    run: RunFolder


def new_run(folder: Path) -> RunFolder:
    """A run folder of its own under `folder`."""
    number = len(list(folder.glob("raw/c/*"))) if (folder / "raw").exists() else 0
    return RunFolder.create(folder / "raw", "c", f"run{number}")


def window_spec(run: RunFolder, url: str | list[str], **fields: Any) -> WindowSpec:
    """A spec for one window; a closed loop of 4 where no shape is given."""
    fields.setdefault("shape", Shape(concurrency=4))
    fields.setdefault("deadlines", Deadlines(connect_s=5, first_token_s=20, between_chunks_s=10, total_s=60))
    return WindowSpec(
        campaign=run.campaign,
        run_id=run.run_id,
        cell_id="cell",
        endpoints=[url] if isinstance(url, str) else url,
        model="reference",
        **fields,
    )


def measure(folder: Path, url: str | list[str], requests: list[PlannedRequest], **fields: Any) -> Result:
    """Run one window and read back what landed."""
    callbacks = {name: fields.pop(name) for name in ("on_progress", "should_abort") if name in fields}
    run = new_run(folder)
    window = run_window(window_spec(run, url, **fields), requests, run, **callbacks)
    return Result(window, records_of(run), run)


def records_of(run: RunFolder) -> dict[str, Request]:
    """What landed, by request id; asserts that no request has two records."""
    records = read_records(run.path / "requests/cell.jsonl", Request)
    found = {record.request_id: record for record in records}
    assert len(found) == len(records)
    return found
