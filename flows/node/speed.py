"""What this machine's cores can move and compute, measured: the ceilings of a CPU node.

A ceiling must not be lowered by a busy neighbour, or honest rows would pass it. So a trial is rated by the CPU time
it took (which leaves out time spent preempted), and the best of many short trials counts. Needs about one second.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

GEMM_SIDE = 768  # three float32 matrices of 2.4 MB: compute-bound, a few milliseconds a product
ARRAY_BYTES = 48 << 20  # a thread's own array, larger than a core's share of any last-level cache of today
CACHED_BYTES = 1 << 20  # stays in a core's second-level cache
MAX_THREADS = 32  # saturates the memory of one node's sockets; more threads only need more memory
BUDGET_S = 0.4  # for each of the three trials

# Multiply-adds a cycle against float32, by what the instruction set offers: an upper bound for engines that compute
# in 8 bit or bfloat16, not a measurement. AMX: 2,048 int8 against 64 float32 (two 16-lane units); VNNI: 4 int8 a
# lane; AVX512-BF16: 2 a lane; AVX2 without VNNI: maddubs + madd + add, 32 products in three instructions against 8 a
# multiply-add, at most 4/3, taken as 2.
LOW_PRECISION_FACTORS = (("amx_int8", 32.0), ("avx512_vnni", 4.0), ("avx_vnni", 4.0), ("avx512_bf16", 2.0))


@cache
def measure_speed() -> dict[str, Any]:
    """Measured ceilings of the CPU cores that this process may use; kept for the life of the process.

    cpu_bandwidth_gb_s: reads of main memory, GB (1e9 bytes) per second, summed over threads that read at once, each
    its own array, rated by its own CPU time. cpu_cache_bandwidth_gb_s: the same from an array that stays in cache (a
    model smaller than the caches is bound by this one). cpu_gflops: float32 matrix product, 1e9 floating-point
    operations per CPU second of one core, times the cores. cpu_gflops_low_precision: that times what the instruction set could
    give 8-bit or bfloat16 arithmetic at most; a bound, not measured.
    """
    cores = usable_cores()
    threads = min(cores, MAX_THREADS)
    gflops = _gemm_gflops(cores)
    factor = low_precision_factor(_cpu_flags())
    return {
        "cpu_bandwidth_gb_s": round(_read_gb_s(threads, ARRAY_BYTES), 2),
        "cpu_cache_bandwidth_gb_s": round(_read_gb_s(threads, CACHED_BYTES) * cores / threads, 2),
        "cpu_gflops": round(gflops, 1),
        "cpu_gflops_low_precision": round(gflops * factor, 1),
        "cpu_low_precision_factor": factor,
        "cpu_speed_method": (
            f"numpy, best of {BUDGET_S} s of short trials rated by CPU time: {threads} threads reading "
            f"{ARRAY_BYTES >> 20} MiB (memory) and {CACHED_BYTES >> 20} MiB (cache) each; "
            f"float32 matrix product of side {GEMM_SIDE} on one core, times {cores} cores"
        ),
    }


def usable_cores() -> int:
    """Cores that this process may use: its affinity, cut by a container's CPU quota (rounded up)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        allowed = min(allowed, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass
    return max(1, allowed)


def low_precision_factor(flags: set[str]) -> float:
    """How many times float32's rate 8-bit or bfloat16 arithmetic can reach at most with these CPU flags."""
    for flag, factor in LOW_PRECISION_FACTORS:
        if flag in flags:
            return factor
    return 2.0


def _gemm_gflops(cores: int) -> float:
    """One core's best float32 product rate times the cores, in GFLOP/s.

    In a process of its own with one BLAS thread: threads that wait for a preempted sibling spin, and their spinning
    would count as CPU time.
    """
    alone = {
        name: "1"
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
    }
    try:
        script = (
            f"import sys, time\nimport numpy as np\n{inspect.getsource(_best_product_rate)}"
            "print(_best_product_rate(int(sys.argv[1]), float(sys.argv[2])))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(GEMM_SIDE), str(BUDGET_S)],
            env={**os.environ, **alone},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return float(done.stdout) * cores / 1e9
    except (OSError, subprocess.SubprocessError, ValueError):
        return _best_product_rate(GEMM_SIDE, BUDGET_S) * cores / 1e9


def _best_product_rate(side: int, budget_s: float) -> float:
    a = np.full((side, side), 0.5, dtype=np.float32)
    out = np.empty_like(a)
    np.matmul(a, a, out=out)
    best, deadline = 0.0, time.perf_counter() + budget_s
    while time.perf_counter() < deadline:
        before = time.process_time()
        np.matmul(a, a, out=out)
        spent = time.process_time() - before
        if spent > 0:
            best = max(best, 2 * side**3 / spent)
    return best


def _read_gb_s(threads: int, array_bytes: int) -> float:
    """Summed over `threads`: the best bytes per CPU second of each, while all of them read."""
    best = [0.0] * threads
    start = threading.Barrier(threads)

    def read(slot: int) -> None:
        data = np.ones(array_bytes // 8, dtype=np.int64)
        repeats = max(1, (8 << 20) // array_bytes)  # a trial of at least 8 MiB, so that the clock resolves it
        start.wait()
        deadline = time.perf_counter() + BUDGET_S
        while time.perf_counter() < deadline:
            before = time.thread_time()
            for _ in range(repeats):
                np.bitwise_or.reduce(data)
            spent = time.thread_time() - before
            if spent > 0:
                best[slot] = max(best[slot], repeats * data.nbytes / spent)

    running = [threading.Thread(target=read, args=(slot,)) for slot in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(best) / 1e9


def _cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    for line in text.splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()
