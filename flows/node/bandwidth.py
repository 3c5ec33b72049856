"""Measures what links really carry, and says whether that confirms the islands that the topology names.

`python -m flows.node.bandwidth [--json] [--nccl]` needs torch and CUDA where it runs; the judging needs neither.
NVLink multicast (NVLS) is left off: NCCL_NVLS_ENABLE=0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.node.islands import Pair, find_islands, pair_of

COPY_BYTES = 256 << 20
REPEATS = 10
# A pair counts as fast when it carries at least this share of the fastest pair. NVLink carries 3 (NV4 against PCIe 4) to
# 15 times PCIe; pairs of one island differ by less than 2 (NV1 beside NV2). The geometric mean of the two gaps.
FAST_SHARE = 0.4
# Under this no pair is NVLink, however alike all pairs are: PCIe 5 x16 is 64 GB/s raw each way, about 55 measured; the
# slowest pair of NVLinks in use (NV2 of 25 GB/s each) is near 45, so a node of PCIe alone is told by the topology.
ALL_ALIKE_GB_S = 70.0


def islands_from_bandwidth(
    matrix: Sequence[Sequence[float | None]], gpus: Sequence[int] | None = None
) -> dict[str, Any]:
    """Islands that measured bandwidths show: {"islands", "fast_gb_s", "slow_gb_s", "threshold_gb_s"}.

    matrix[a][b]: GB/s from a to b, null or 0 on the diagonal or where it was not measured; the slower direction counts.
    Where all pairs carry alike, they are one island if they carry more than PCIe can, none if they do not.
    """
    ids = list(gpus) if gpus is not None else list(range(len(matrix)))
    pairs = _slower_way(matrix, ids)
    if not pairs:
        return {"islands": [], "fast_gb_s": None, "slow_gb_s": None, "threshold_gb_s": None}
    threshold = max(FAST_SHARE * max(pairs.values()), 0.0)
    fast = {pair: rate for pair, rate in pairs.items() if rate >= threshold}
    slow = [rate for pair, rate in pairs.items() if pair not in fast]
    if not slow and max(pairs.values()) < ALL_ALIKE_GB_S:
        fast, slow = {}, list(pairs.values())
        threshold = ALL_ALIKE_GB_S
    return {
        "islands": find_islands(ids, fast),
        "fast_gb_s": round(min(fast.values()), 1) if fast else None,
        "slow_gb_s": round(max(slow), 1) if slow else None,
        "threshold_gb_s": round(threshold, 1),
    }


def confirm_islands(
    islands: Sequence[Sequence[int]],
    matrix: Sequence[Sequence[float | None]],
    gpus: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Whether measured bandwidths confirm the topology's islands: true, false, or null where pairs were not measured."""
    ids = list(gpus) if gpus is not None else list(range(len(matrix)))
    measured = islands_from_bandwidth(matrix, ids)
    pairs = _slower_way(matrix, ids)
    missing = len(ids) * (len(ids) - 1) // 2 - len(pairs)
    stated = sorted(sorted(island) for island in islands)
    is_same = stated == sorted(measured["islands"])
    linked = {pair_of(a, b) for island in stated for i, a in enumerate(island) for b in island[i + 1 :]}
    threshold = measured["threshold_gb_s"] or 0.0
    return {
        "is_confirmed": None if missing else is_same,
        "stated": stated,
        "measured": measured["islands"],
        "fast_gb_s": measured["fast_gb_s"],
        "slow_gb_s": measured["slow_gb_s"],
        "slow_inside": [list(pair) for pair in sorted(linked) if pair in pairs and pairs[pair] < threshold],
        "fast_across": [list(pair) for pair in sorted(set(pairs) - linked) if pairs[pair] >= threshold],
        "pairs_not_measured": missing,
    }


def _slower_way(matrix: Sequence[Sequence[float | None]], ids: Sequence[int]) -> dict[Pair, float]:
    found: dict[Pair, float] = {}
    for a in range(len(ids)):
        for b in range(a + 1, len(ids)):
            ways = [matrix[a][b], matrix[b][a]]
            known = [rate for rate in ways if rate]
            if known:
                found[pair_of(ids[a], ids[b])] = min(known)
    return found


def measure_copies(size: int = COPY_BYTES, repeats: int = REPEATS) -> dict[str, Any]:
    """GB/s of peer copies between every ordered pair of GPUs, and of a copy inside each (reads and writes counted).

    {"gpus", "peer_access": matrix of bool, "copy_gb_s": matrix, "memory_gb_s": list}. Best of three.
    """
    import torch

    count = torch.cuda.device_count()
    buffers = [torch.empty(size, dtype=torch.uint8, device=f"cuda:{gpu}") for gpu in range(count)]
    matrix: list[list[float | None]] = [[None] * count for _ in range(count)]
    access = [
        [a == b or bool(torch.cuda.can_device_access_peer(a, b)) for b in range(count)] for a in range(count)
    ]
    for a in range(count):
        for b in range(count):
            if a != b:
                matrix[a][b] = round(_best_copy(torch, buffers[a], buffers[b], repeats), 2)
    inside = []
    for gpu in range(count):
        target = torch.empty(size, dtype=torch.uint8, device=f"cuda:{gpu}")
        inside.append(round(2 * _best_copy(torch, buffers[gpu], target, repeats * 5), 1))
    return {"gpus": count, "peer_access": access, "copy_gb_s": matrix, "memory_gb_s": inside}


def _best_copy(torch: Any, source: Any, target: Any, repeats: int) -> float:
    """GB/s of copying source into target, timed by events on the source's device; best of three."""
    best = 0.0
    with torch.cuda.device(source.device):
        target.copy_(source)
        for device in {source.device, target.device}:
            torch.cuda.synchronize(device)
        for _ in range(3):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(repeats):
                target.copy_(source, non_blocking=True)
            end.record()
            for device in {source.device, target.device}:
                torch.cuda.synchronize(device)
            best = max(best, repeats * source.numel() / (begin.elapsed_time(end) / 1000) / 1e9)
    return best


def measure_nccl(size: int = COPY_BYTES, repeats: int = REPEATS) -> dict[str, Any]:
    """GB/s of NCCL send and receive between every pair, one at a time, and of an all-reduce over all GPUs.

    {"send_gb_s": matrix, "all_reduce_bus_gb_s"}; bus bandwidth is 2 (n - 1) / n of the bytes over the time, as
    nccl-tests count it.
    """
    import tempfile

    import torch
    from torch import multiprocessing

    os.environ["NCCL_NVLS_ENABLE"] = "0"
    count = torch.cuda.device_count()
    if count < 2:
        return {"send_gb_s": None, "all_reduce_bus_gb_s": None}
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        answers = multiprocessing.get_context("spawn").SimpleQueue()
        multiprocessing.spawn(_nccl_rank, args=(count, meeting, size, repeats, answers), nprocs=count)
        return dict(answers.get())


def _nccl_rank(rank: int, count: int, meeting: str, size: int, repeats: int, answers: Any) -> None:
    import time

    import torch
    from torch import distributed

    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=meeting, rank=rank, world_size=count)
    data = torch.empty(size, dtype=torch.uint8, device="cuda")
    matrix: list[list[float | None]] = [[None] * count for _ in range(count)]
    for a in range(count):
        for b in range(count):
            if a == b:
                continue
            for _ in range(2):  # the first pass connects the pair
                distributed.barrier()
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(repeats):
                    if rank == a:
                        distributed.send(data, b)
                    elif rank == b:
                        distributed.recv(data, a)
                torch.cuda.synchronize()
                spent = torch.tensor([time.perf_counter() - begin], device="cuda")
            distributed.broadcast(spent, b)
            matrix[a][b] = round(repeats * size / float(spent.item()) / 1e9, 2)
    floats = data.view(torch.float32)
    floats.zero_()
    best = 0.0
    for _ in range(3):
        distributed.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(repeats):
            distributed.all_reduce(floats)
        torch.cuda.synchronize()
        best = max(best, repeats * size * 2 * (count - 1) / count / (time.perf_counter() - begin) / 1e9)
    if rank == 0:
        answers.put({"send_gb_s": matrix, "all_reduce_bus_gb_s": round(best, 1)})
    distributed.barrier()
    distributed.destroy_process_group()


def measure_apart(
    uses_nccl: bool = True, timeout_s: float = 300.0, python: str = sys.executable
) -> dict[str, Any] | None:
    """This module run in a process of its own, so that no CUDA context stays behind; null where it cannot measure.

    python: an interpreter that has torch, where this one has not. Keys as printed by `--json`.
    """
    command = [python, "-m", "flows.node.bandwidth", "--json", *(["--nccl"] if uses_nccl else [])]
    root = Path(__file__).resolve().parents[2]
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        )  # fmt: skip
        found = json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else None
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    return found if isinstance(found, dict) else None


def main(arguments: list[str] | None = None) -> int:
    """Measure this machine and print JSON (or a table); 1 without torch or a CUDA device."""
    parser = argparse.ArgumentParser(prog="python -m flows.node.bandwidth", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--nccl", action="store_true", help="also NCCL send/receive of every pair and an all-reduce"
    )
    options = parser.parse_args(arguments)
    try:
        import torch

        has_cuda = torch.cuda.is_available()
    except ImportError:
        has_cuda = False
    if not has_cuda:
        print("bandwidth: needs torch and a CUDA device, found none", file=sys.stderr)  # noqa: T201
        return 1
    os.environ["NCCL_NVLS_ENABLE"] = "0"
    from flows.node.read import read_topology

    measured = measure_copies()
    topology = read_topology() or {}
    measured["topology_islands"] = topology.get("islands")
    measured["islands_by_copies"] = confirm_islands(topology.get("islands") or [], measured["copy_gb_s"])
    if options.nccl:
        measured |= measure_nccl()
        if measured["send_gb_s"] is not None:
            measured["islands_by_nccl"] = confirm_islands(
                topology.get("islands") or [], measured["send_gb_s"]
            )
    if options.json:
        print(json.dumps(measured))  # noqa: T201
        return 0
    for gpu, row in enumerate(measured["copy_gb_s"]):
        cells = "  ".join("     -" if rate is None else f"{rate:6.1f}" for rate in row)
        print(f"GPU{gpu}  {cells}   memory {measured['memory_gb_s'][gpu]:7.1f} GB/s")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
