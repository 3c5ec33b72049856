"""make bench-warehouse: from raw to judged marts at size, and one run added to many.

Prints wall seconds, peak memory of all processes, and the ratio to DuckDB's own scan of the same files, with the
machine's load before and after. Exit 1 when a bound is missed on a machine that was quiet enough to say so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psutil

from flows.synthetic import write_bulk
from flows.warehouse import build_warehouse

FULL_S, FULL_GB, ADD_S, GROWTH = 60.0, 4.0, 8.0, 11.0
AIM_RATIO = 4.0
SCAN = (
    "select count(*), sum(list_sum(chunk_gap_ns)), max(last_token_ns - first_token_ns) from read_json($files,"
    " format = 'newline_delimited', columns = {'run_id': 'varchar', 'cell_id': 'varchar', 'request_id': 'varchar',"
    " 'outcome': 'varchar', 'planned_ns': 'bigint', 'sent_ns': 'bigint', 'first_token_ns': 'bigint',"
    " 'last_token_ns': 'bigint', 'end_ns': 'bigint', 'prompt_tokens': 'bigint', 'cached_tokens': 'bigint',"
    " 'output_tokens': 'bigint', 'finish_reason': 'varchar', 'chunk_gap_ns': 'bigint[]'})"
)


@dataclass
class Measured:
    """One timed call: wall seconds, peak resident memory of this process and its children, load before and after."""

    wall_s: float
    peak_gb: float
    load_before: float
    load_after: float
    value: Any


def measure(call: Callable[[], Any]) -> Measured:
    """Run `call`, sampling memory ten times a second."""
    here = psutil.Process()
    peak = [0]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.1):
            total = 0
            for process in [here, *here.children(recursive=True)]:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            peak[0] = max(peak[0], total)

    watcher = threading.Thread(target=sample, daemon=True)
    before = os.getloadavg()[0]
    watcher.start()
    started = time.monotonic()
    value = call()
    wall = time.monotonic() - started
    done.set()
    watcher.join()
    return Measured(wall, peak[0] / 1e9, before, os.getloadavg()[0], value)


def scan_s(raw: Path) -> float:
    """Seconds of DuckDB's own scan of the request files, with the columns named."""
    started = time.monotonic()
    with duckdb.connect() as connection:
        connection.execute(SCAN, {"files": f"{raw}/*/*/requests/*.jsonl"}).fetchall()
    return time.monotonic() - started


def main() -> int:
    """Run the benchmark; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("tmp/bench-warehouse"))
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=1000, help="of each run")
    parser.add_argument("--tokens", type=int, default=200, help="of each request")
    parser.add_argument(
        "--more-runs", type=int, default=3000, help="small runs added before the second adding"
    )
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    raw, warehouse = given.folder / "raw", given.folder / "warehouse"
    found: dict[str, Any] = {"cpus": os.cpu_count()}

    small, tenth = given.folder / "small", max(given.runs // 10, 1)
    write_bulk(small / "raw", tenth, given.requests, given.tokens)
    tenth_run = measure(lambda: build_warehouse(small / "raw", small / "warehouse"))
    shutil.rmtree(small)

    size = write_bulk(raw, given.runs, given.requests, given.tokens)
    found |= {"requests": given.runs * given.requests, "request_gb": round(size / 1e9, 2)}
    scans = [scan_s(raw) for _ in range(2)]
    full = measure(lambda: build_warehouse(raw, warehouse))
    scans.append(scan_s(raw))
    found["full"] = _shown(full)
    found["duckdb_scan_s"] = [round(one, 2) for one in scans]
    found["ratio_to_scan"] = round(full.wall_s / min(scans), 1)
    found["tenth"] = _shown(tenth_run)
    found["growth_of_ten"] = round(full.wall_s / tenth_run.wall_s, 2)

    adds = {}
    first = given.runs
    for more in (0, given.more_runs):
        if more:
            write_bulk(raw, more, 100, 20, first=first)
            first += more
            build_warehouse(raw, warehouse)
        walls = []
        for _ in range(3):
            write_bulk(raw, 1, 1000, given.tokens, first=first)
            first += 1
            walls.append(measure(lambda: build_warehouse(raw, warehouse)))
        best = min(walls, key=lambda one: one.wall_s)
        adds[f"to_{first - 3}_runs"] = _shown(best) | {"all_s": [round(one.wall_s, 2) for one in walls]}
    found["add_one_run"] = adds
    print(json.dumps(found, indent=2))
    if not given.keep:
        shutil.rmtree(given.folder, ignore_errors=True)
    return _judge(found)


def _shown(one: Measured) -> dict[str, Any]:
    result = one.value
    return {
        "wall_s": round(one.wall_s, 2),
        "steps_s": {name: round(value, 2) for name, value in result.seconds.items()},
        "peak_gb": round(one.peak_gb, 2),
        "load": [round(one.load_before, 2), round(one.load_after, 2)],
        "rows": result.rows,
    }


def _judge(found: dict[str, Any]) -> int:
    adds = list(found["add_one_run"].values())
    bounds = [
        ("full build, s", found["full"]["wall_s"], FULL_S),
        ("full build, peak GB", found["full"]["peak_gb"], FULL_GB),
        ("ten times the data, times the time", found["growth_of_ten"], GROWTH),
        *[("one run added, s", one["wall_s"], ADD_S) for one in adds],
    ]
    missed = 0
    for what, measured, bound in bounds:
        verdict = "ok" if measured <= bound else "MISSED"
        missed += verdict != "ok"
        print(f"{verdict:>6}  {what}: {measured} (at most {bound})")
    print(f"        ratio to DuckDB's own scan: {found['ratio_to_scan']} (aim {AIM_RATIO})")
    busy = max(found["full"]["load"][0], *(one["load"][0] for one in adds)) > (found["cpus"] or 1)
    if missed and busy:
        print("        the machine was busy with other work: these times say little")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
