"""How late waiting processes are woken beside busy ones, by what they asked the kernel for: `python -m benchmarks.load.wakeups`.

Eight processes compute 3 ms at a time, ten times a second each; eight wait as a load process does (a kernel timer every
10 ms, seen by the loop). Modes take turns, so that other work on the machine meets them alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time

from flows.load.clock import LagProbe, percentile
from flows.priority import ask_for_priority, ask_for_short_slices

MODES = ("nothing", "priority", "priority and slice")
PROCESSES, BUSY_S, PAUSE_S = 8, 0.003, (0.02, 0.18)


def compute(seconds: float, seed: int) -> None:
    """Be a neighbour for so long."""
    draw = random.Random(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(draw.uniform(*PAUSE_S))
        busy = time.monotonic() + BUSY_S
        while time.monotonic() < busy:
            pass


def wait(seconds: float, mode: str) -> list[int]:
    """Be a load process that has nothing to do for so long; how late it was woken each time, in ns."""
    import uvloop

    if mode != "nothing":
        ask_for_priority()
    if mode == "priority and slice":
        ask_for_short_slices()

    async def probe() -> list[int]:
        lags = LagProbe(asyncio.get_running_loop())
        await asyncio.sleep(seconds)
        lags.close()
        return list(lags.lags_ns)

    return uvloop.run(probe())


def measure(seconds: float, mode: str) -> list[int]:
    """All lags of one round."""

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "benchmarks.load.wakeups", "--seconds", str(seconds), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)

    busy = [start("--compute", str(seed)) for seed in range(PROCESSES)]
    waiting = [start("--wait", mode) for _ in range(PROCESSES)]
    lags = [lag for process in waiting for lag in json.loads(process.communicate()[0])]
    for process in busy:
        process.communicate()
    return lags


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.wakeups", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each mode in each round")
    parser.add_argument("--compute", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--wait", choices=MODES, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.compute is not None:
        compute(given.seconds, given.compute)
        return 0
    if given.wait is not None:
        print(json.dumps(wait(given.seconds, given.wait)))
        return 0
    print(f"Linux {os.uname().release}, {len(os.sched_getaffinity(0))} CPUs; lag in ms")
    found: dict[str, list[int]] = {mode: [] for mode in MODES}
    for _ in range(given.rounds):
        for mode in MODES:
            found[mode] += measure(given.seconds, mode)
    print(f"{'asked for':20} {'samples':>8} {'p50':>8} {'p99':>8} {'max':>8}")
    for mode, lags in found.items():
        ordered = sorted(lags)
        p50, p99 = (percentile(ordered, share) / 1e6 for share in (0.5, 0.99))
        print(f"{mode:20} {len(ordered):8} {p50:8.3f} {p99:8.3f} {ordered[-1] / 1e6:8.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
