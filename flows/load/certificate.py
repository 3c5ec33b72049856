"""The client's certificate: what one window's measuring cost and did, per process and put together."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from array import array
from pathlib import Path
from typing import Any

import msgspec

from contracts.records import Window
from flows.load.clock import Epoch, LagProbe, now_ns, percentile
from flows.load.plan import WindowSpec

CURVE_POINTS = 2_000  # contracts.records.Window.concurrency_ns


class Share(msgspec.Struct):
    """One process's part. Arrays are int64 bytes; intervals_ns holds sent, end, sent, end, ..."""

    opened_ns: int
    closed_ns: int
    why: str
    lags_ns: bytes
    send_delays_ns: bytes
    intervals_ns: bytes
    cpu_s: float
    gc_pauses: int
    gc_pause_ns: int
    peak_rss_mb: float | None
    open_file_limit: int | None
    load_before: float | None
    load_after: float | None
    epoch_opened: Epoch
    epoch_closed: Epoch


class Certificate:
    """Observes one load process from `open` to `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pauses = 0
        self._pause_ns = 0
        self._gc_since = 0
        self._load_before = machine_load()

    def open(self) -> None:
        """The window opens."""
        self._epoch = Epoch.read()
        self._cpu = _cpu_s()
        gc.callbacks.append(self._on_gc)
        self._probe = LagProbe(self._loop)

    def close(self) -> None:
        """The window has closed."""
        if not hasattr(self, "_probe"):  # aborted before it opened
            self.open()
        self._cpu_used = _cpu_s() - self._cpu
        self._probe.close()
        self._epoch_closed = Epoch.read()
        gc.callbacks.remove(self._on_gc)

    def write(
        self,
        path: Path,
        *,
        opened_ns: int,
        closed_ns: int,
        why: str,
        send_delays_ns: array[int],
        intervals_ns: array[int],
    ) -> None:
        """Leave this process's share for whoever puts the window together."""
        share = Share(
            opened_ns=opened_ns,
            closed_ns=closed_ns,
            why=why,
            lags_ns=self._probe.lags_ns.tobytes(),
            send_delays_ns=send_delays_ns.tobytes(),
            intervals_ns=intervals_ns.tobytes(),
            cpu_s=self._cpu_used,
            gc_pauses=self._pauses,
            gc_pause_ns=self._pause_ns,
            peak_rss_mb=peak_rss_mb(),
            open_file_limit=_open_file_limit(),
            load_before=self._load_before,
            load_after=machine_load(),
            epoch_opened=self._epoch,
            epoch_closed=self._epoch_closed,
        )
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.msgpack.encode(share))
        os.rename(part, path)

    def _on_gc(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_since = now_ns()
        else:
            self._pauses += 1
            self._pause_ns += now_ns() - self._gc_since


def read_share(path: Path) -> Share:
    return msgspec.msgpack.decode(path.read_bytes(), type=Share)


def machine_load() -> float | None:
    """The one-minute load average; None where the system has none."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def usable_cpus() -> int | None:
    """CPUs that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _open_file_limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def window_record(spec: WindowSpec, epoch: Epoch, shares: list[Share], counts: dict[str, int]) -> Window:
    """Put the shares of a window's processes together. counts: timed requests by outcome.

    Percentiles are exact over the samples of all processes. cpu_share: CPU seconds a process and second of window.
    """
    opened = min(share.opened_ns for share in shares)
    closed = max(share.closed_ns for share in shares)
    lags = _sorted(share.lags_ns for share in shares)
    delays = _sorted(share.send_delays_ns for share in shares)
    intervals = array("q")
    for share in shares:
        intervals.frombytes(share.intervals_ns)
    curve, peak, mean = concurrency_curve(intervals, opened, closed)
    cpu_s = sum(share.cpu_s for share in shares)
    window_s = (closed - opened) / 1e9
    limits = [share.open_file_limit for share in shares if share.open_file_limit is not None]
    first = shares[0]
    return Window(
        campaign=spec.campaign,
        run_id=spec.run_id,
        cell_id=spec.cell_id,
        opened_ns=opened,
        closed_ns=closed,
        opened_at=epoch.wall(opened),
        closed_at=epoch.wall(closed),
        processes=len(shares),
        cpus=usable_cpus(),
        open_file_limit=min(limits) if limits else None,
        asked_concurrency=spec.shape.concurrency,
        mean_concurrency=mean,
        max_concurrency=peak,
        concurrency_ns=curve,
        loop_lag_p50_ms=percentile(lags, 0.5) / 1e6 if lags else None,
        loop_lag_p99_ms=percentile(lags, 0.99) / 1e6 if lags else None,
        loop_lag_max_ms=lags[-1] / 1e6 if lags else None,
        send_delay_p50_ms=percentile(delays, 0.5) / 1e6 if delays else None,
        send_delay_p99_ms=percentile(delays, 0.99) / 1e6 if delays else None,
        cpu_share=cpu_s / window_s / len(shares) if window_s > 0 else None,
        cpu_s=cpu_s,
        gc_pauses=sum(share.gc_pauses for share in shares),
        gc_pause_ms=sum(share.gc_pause_ns for share in shares) / 1e6,
        peak_rss_mb=_sum_known([share.peak_rss_mb for share in shares]),
        drift_ms_per_min=first.epoch_opened.drift_ms_per_min(first.epoch_closed),
        planned=sum(counts.values()),
        ok=counts.get("ok", 0),
        failed=counts.get("failed", 0),
        cancelled=counts.get("cancelled", 0),
        unsent=counts.get("unsent", 0),
        machine_load_before=first.load_before,
        machine_load_after=first.load_after,
    )


def _sorted(parts: Any) -> list[int]:
    values = array("q")
    for part in parts:
        values.frombytes(part)
    return sorted(values)


def concurrency_curve(
    intervals_ns: array[int], opened_ns: int, closed_ns: int
) -> tuple[list[list[int]], int | None, float | None]:
    """Requests in flight over time from sent, end, sent, end, ...: (curve, highest, mean over the window).

    The curve is [[ns since opened, in flight], ...] at every change, thinned to CURVE_POINTS; the mean is exact.
    """
    if not intervals_ns or closed_ns <= opened_ns:
        return [], None, None
    changes = sorted([(at, 1) for at in intervals_ns[::2]] + [(at, -1) for at in intervals_ns[1::2]])
    curve: list[list[int]] = []
    level = peak = 0
    for at, step in changes:
        level += step
        peak = max(peak, level)
        since = at - opened_ns
        if curve and curve[-1][0] == since:
            curve[-1][1] = level
        else:
            curve.append([since, level])
    stride = -(-len(curve) // CURVE_POINTS)
    thinned = curve[::stride]
    if thinned[-1] is not curve[-1]:
        thinned[-1] = curve[-1]
    busy = sum(intervals_ns[1::2]) - sum(intervals_ns[::2])
    return thinned, peak, busy / (closed_ns - opened_ns)


def _sum_known(values: list[float | None]) -> float | None:
    """The sum, or None when any part is unknown: a part that was not observed is not 0."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def peak_rss_mb() -> float | None:
    """This program's own peak of resident memory, in MiB; None where the kernel does not tell.

    getrusage's figure survives exec, so a process that a large parent started would carry its parent's peak.
    """
    try:
        with open("/proc/self/status") as status:
            peak = next((line for line in status if line.startswith("VmHWM:")), None)
    except OSError:
        return None
    return int(peak.split()[1]) / 1024 if peak else None
