"""`make bench-load`: what the load core costs and how exact it is, against a native client and against httpx.

Every figure is a ratio or an error of one run on one machine: clients take turns, the median of the rounds counts, and the
machine's load is printed before and after. Exits 1 when a figure that must be reached is missed, 2 when a figure could
not be measured at all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load.clients import (
    Cost,
    build_native,
    installed_peers,
    mock_server,
    run_native,
    run_peer,
    run_plain_httpx,
    run_weighbridge,
)  # fmt: skip
from benchmarks.load.reference import Timing, compare, reference_server
from flows.priority import ask_to_be_woken

TOKENS = 128
# streams -> requests a round: long enough that start-up is a small part, short enough for five rounds.
FULL_RATE = {32: 4_000, 256: 4_000, 1_024: 6_144}
HTTPX_REQUESTS = {32: 600, 256: 1_024, 1_024: 2_048}
PACED_TOKENS = 64
# The bounds of the project's own requirement for its load core.
NATIVE_AT_MOST = 2.2
HTTPX_AT_MOST = {32: 0.15, 1_024: 0.22}
PEERS_AT_MOST = {"vllm bench serve": 0.4, "aiperf": 0.1, "guidellm": 0.1}
TTFT_P50_MS, TTFT_P99_MS, ITL_P50_MS = 0.5, 5.0, 0.05
RATE_AT_LEAST = 0.95
WINDOW_EXTRA_S = 1.0


@dataclass
class Report:
    """What was found; `missed` and `skipped` in words."""

    lines: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)

    def judge(self, name: str, value: float, bound: float, at_most: bool = True) -> None:
        """Hold one figure against its bound."""
        self.figures[name] = value
        is_reached = value <= bound if at_most else value >= bound
        sign = "<=" if at_most else ">="
        self.say(f"  {'reached' if is_reached else 'MISSED '}  {name}: {value:.3f} ({sign} {bound})")
        if not is_reached:
            self.missed.append(f"{name}: {value:.3f}, required {sign} {bound}")


def _median(values: list[float]) -> float:
    return statistics.median(values)


def full_rate(report: Report, native: tuple[Path, Path], rounds: int, scale: float) -> None:
    """CPU per token at full rate, clients in turn on one server."""
    mock, goldc = native
    peers = installed_peers()
    for name in PEERS_AT_MOST:
        if name not in peers:
            report.skipped.append(f"{name} is not installed")
    for streams, wanted in FULL_RATE.items():
        requests = max(2 * streams, int(wanted * scale))
        costs: dict[str, list[Cost]] = {"native": [], "weighbridge": [], "httpx": []}
        with mock_server(mock, 0, 0, TOKENS) as port:
            for _ in range(rounds):
                costs["native"].append(run_native(goldc, port, streams, requests, TOKENS))
                found = run_weighbridge(f"http://127.0.0.1:{port}", "mock", streams, requests, TOKENS)
                costs["weighbridge"].append(found.cost)
                if found.cost.tokens != requests * TOKENS:
                    report.missed.append(
                        f"{streams} streams: {found.cost.tokens} tokens of {requests * TOKENS}"
                    )
                few = max(2 * streams, int(HTTPX_REQUESTS[streams] * scale))
                costs["httpx"].append(run_plain_httpx(port, streams, few, TOKENS))
                for name, runner in peers.items():
                    try:
                        costs.setdefault(name, []).append(run_peer(runner, port, streams, few, TOKENS))
                    except (OSError, RuntimeError) as error:
                        report.skipped.append(f"{name}: {error}")
                        peers = {other: r for other, r in peers.items() if other != name}
                        break
        report.say(f"\n{streams} streams of {TOKENS} tokens at full rate, median of {rounds}")
        for name, found_costs in costs.items():
            if found_costs:
                cpu = _median([cost.cpu_us_per_token for cost in found_costs])
                rate = _median([cost.tokens / cost.wall_s for cost in found_costs])
                report.say(f"  {name:18} {cpu:8.2f} CPU us/token {rate:10,.0f} tokens/s")
        ours = [cost.cpu_us_per_token for cost in costs["weighbridge"]]
        bounds = {"native": NATIVE_AT_MOST, **PEERS_AT_MOST}
        if streams in HTTPX_AT_MOST:
            bounds["httpx"] = HTTPX_AT_MOST[streams]
        for name, bound in bounds.items():
            theirs = [cost.cpu_us_per_token for cost in costs.get(name, [])]
            if theirs:
                ratio = _median([a / b for a, b in zip(ours, theirs, strict=False)])
                report.judge(f"CPU per token, {streams} streams, against {name}", ratio, bound)


def exactness(report: Report, rounds: int, folder: Path) -> None:
    """Timing errors against the reference server's own instants, 50 ms TTFT and 10 ms ITL."""
    for streams, requests in ((1, 12), (64, 640), (256, 1_280)):
        found: list[Timing] = []
        for number in range(rounds):
            with reference_server(folder / f"{streams}-{number}", 50, 10) as (url, truth):
                measured = run_weighbridge(url, "mock", streams, requests, PACED_TOKENS)
            found.append(compare(measured.records, truth, PACED_TOKENS))
        values = {
            "TTFT error p50": _median([timing.ttft_p50_ms for timing in found]),
            "TTFT error p99": _median([timing.ttft_p99_ms for timing in found]),
            "in the server's socket p50": _median([timing.unread_p50_ms for timing in found]),
            "p99": _median([timing.unread_p99_ms for timing in found]),
            "ITL error p50": _median([timing.itl_p50_ms for timing in found]),
            "ITL error p99": _median([timing.itl_p99_ms for timing in found]),
        }
        report.say(
            f"\n{streams} streams, 50 ms TTFT and 10 ms ITL against the server's own instants, median of {rounds}"
        )
        report.say("  " + ", ".join(f"{name} {value:.3f} ms" for name, value in values.items()))
        wrong = sum(timing.wrong_counts for timing in found)
        report.judge(f"wrong token counts, {streams} streams", wrong, 0)
        if streams == 64:
            report.judge("TTFT error p50 in ms, 64 streams", values["TTFT error p50"], TTFT_P50_MS)
            report.judge("TTFT error p99 in ms, 64 streams", values["TTFT error p99"], TTFT_P99_MS)
            report.judge("ITL error p50 in ms, 64 streams", values["ITL error p50"], ITL_P50_MS)


def paced(report: Report, native: tuple[Path, Path], rounds: int) -> None:
    """Requests per second at 1,024 paced streams against the native client's, and its TTFT beside it at 64."""
    mock, goldc = native
    for streams, requests in ((64, 640), (1_024, 4_096)):
        ratios, gold, ours = [], [], []
        with mock_server(mock, 50, 10, PACED_TOKENS) as port:
            for _ in range(rounds):
                one = run_native(goldc, port, streams, requests, PACED_TOKENS)
                other = run_weighbridge(
                    f"http://127.0.0.1:{port}", "mock", streams, requests, PACED_TOKENS
                ).cost
                gold.append(one)
                ours.append(other)
                ratios.append((other.requests_per_s or 0) / (one.requests_per_s or 1))
        report.say(f"\n{streams} streams on the native server, 50 ms and 10 ms, median of {rounds}")
        for name, costs in (("native", gold), ("weighbridge", ours)):
            rate = _median([cost.requests_per_s or 0 for cost in costs])
            p50 = _median([cost.ttft_p50_ms or 0 for cost in costs]) - 50
            p99 = _median([cost.ttft_p99_ms or 0 for cost in costs]) - 50
            report.say(f"  {name:18} {rate:8.1f} requests/s, TTFT beyond 50 ms: p50 {p50:.2f}, p99 {p99:.2f}")
        if streams == 1_024:
            report.judge(
                "requests/s at 1,024 streams against native", _median(ratios), RATE_AT_LEAST, at_most=False
            )


def small_window(report: Report, rounds: int, folder: Path) -> None:
    """What a 200-request window takes beyond the server's own time, from the call to its return."""
    extra = []
    for number in range(rounds):
        with reference_server(folder / f"small-{number}", 50, 10) as (url, truth):
            measured = run_weighbridge(url, "mock", 32, 200, PACED_TOKENS)
        extra.append(measured.wall_s - compare(measured.records, truth, PACED_TOKENS).server_s)
    report.say(f"\nA window of 200 requests, median of {rounds}")
    report.judge("seconds beyond the server's own time", _median(extra), WINDOW_EXTRA_S)


def _ask_for_priority() -> None:
    """The servers and every client here get the priority that a load process asks for, so that other work on the
    machine disturbs none of them more than another."""
    with contextlib.suppress(OSError):
        os.setsid()
    ask_to_be_woken()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the requests, for a quick look")
    parser.add_argument(
        "--only", choices=["full-rate", "exactness", "paced", "small-window"], action="append"
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    given = parser.parse_args(argv)
    parts = given.only or ["full-rate", "exactness", "paced", "small-window"]
    _ask_for_priority()
    report = Report()
    report.say(f"machine load before: {os.getloadavg()[0]:.2f} on {len(os.sched_getaffinity(0))} CPUs")
    with tempfile.TemporaryDirectory(prefix="bench-load-") as scratch:
        folder = Path(scratch)
        native = build_native(folder)
        if native is None:
            report.skipped.append("the native server and client: no rustc on this machine")
        if "exactness" in parts:
            exactness(report, given.rounds, folder)
        if "small-window" in parts:
            small_window(report, given.rounds, folder)
        if native is not None and "full-rate" in parts:
            full_rate(report, native, given.rounds, given.scale)
        if native is not None and "paced" in parts:
            paced(report, native, given.rounds)
    report.say(f"\nmachine load after: {os.getloadavg()[0]:.2f}")
    for words in dict.fromkeys(report.skipped):
        report.say(f"skipped: {words}")
    for words in report.missed:
        report.say(f"MISSED: {words}")
    if given.json is not None:
        told = {
            "figures": report.figures,
            "missed": report.missed,
            "skipped": report.skipped,
            "rounds": given.rounds,
        }
        given.json.write_text(json.dumps(told, indent=1) + "\n")
    return 1 if report.missed else 2 if native is None else 0


if __name__ == "__main__":
    sys.exit(main())
