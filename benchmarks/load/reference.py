"""The reference server for the benchmark, and a client's instants held against its own."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contracts.records import Request


@dataclass
class Timing:
    """Errors against the server's own instants, in ms.

    ttft: what the client adds between the planned send and its first token beside the time that the request and its
    answer were with the server: its delay in sending and its delay in reading. unread: how long requests lay in the
    server's socket, which is the server's.
    """

    ttft_p50_ms: float
    ttft_p99_ms: float
    unread_p50_ms: float
    unread_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    wrong_counts: int
    server_s: float


@contextmanager
def reference_server(folder: Path, ttft_ms: float, itl_ms: float) -> Iterator[tuple[str, Path]]:
    """(url, truth file) of a reference server."""
    folder.mkdir(parents=True, exist_ok=True)
    truth, log = folder / "truth.jsonl", folder / "server.log"
    scenario = {
        "model": "mock",
        "timing": {"ttft_ms": ttft_ms, "itl_ms": itl_ms},
        "cache": {"enabled": False},
    }
    command = [
        sys.executable,
        "-m",
        "flows.engines.reference",
        "--truth",
        str(truth),
        "--set",
        json.dumps(scenario),
    ]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stderr=stream)
    try:
        while "startup complete" not in log.read_text():
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.02)
        found = re.search(r"listening on (\S+)", log.read_text())
        assert found is not None
        yield found.group(1), truth
    finally:
        process.terminate()
        process.wait()


def compare(records: list[Request], truth: Path, tokens: int) -> Timing:
    """Hold every request against what the server did for it."""
    rows = [json.loads(line) for line in truth.read_bytes().splitlines()]
    told = {row["request_id"]: row for row in rows if row["number"] is not None}
    ttfts, unread, gaps, wrong = [], [], [], 0
    for record in records:
        row = told[record.request_id]
        exact = record.output_tokens == row["output_tokens"] == tokens == record.chunk_count
        wrong += not exact
        if record.first_token_ns is None or record.planned_ns is None or row["first_token_ns"] is None:
            continue
        assert record.sent_ns is not None
        mine = record.first_token_ns - record.planned_ns
        ttfts.append((mine - (row["first_token_ns"] - record.sent_ns)) / 1e6)
        unread.append((row["received_ns"] - record.sent_ns) / 1e6)
        written = row["token_ns"]
        theirs = [later - sooner for sooner, later in itertools.pairwise(written)]
        gaps += [abs(a - b) / 1e6 for a, b in zip(record.chunk_gap_ns[1:], theirs, strict=False)]
    for values in (ttfts, unread, gaps):
        values.sort()
    first = min(row["received_ns"] for row in told.values())
    last = max(row["end_ns"] for row in told.values())
    return Timing(
        _rank(ttfts, 0.5),
        _rank(ttfts, 0.99),
        _rank(unread, 0.5),
        _rank(unread, 0.99),
        _rank(gaps, 0.5),
        _rank(gaps, 0.99),
        wrong,
        (last - first) / 1e9,
    )


def _rank(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
