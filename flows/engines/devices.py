"""GPU memory and kernel kills around an engine's life: what a clean teardown and a silent death are told by."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

LEFT_MB = 300.0  # a context of another process may come or go; an engine's weights are never this small
WAIT_S = 10.0  # the driver frees a dead process's memory a moment later


def used_memory_mb(gpu_ids: list[int] | None) -> dict[int, float] | None:
    """Memory in use by GPU, in MB, for the ids given or all. None without an NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no driver, no library, no permission: all mean that nothing is observed
        return None
    try:
        ids = gpu_ids if gpu_ids is not None else range(pynvml.nvmlDeviceGetCount())
        return {
            i: pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(i)).used / 1e6 for i in ids
        }
    except pynvml.NVMLError:
        return None
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def memory_check(gpu_ids: list[int] | None) -> Callable[[], str | None] | None:
    """Remember the memory in use now; the check returned says what is not free again after a teardown."""
    before = used_memory_mb(gpu_ids)
    if not before:
        return None

    def check() -> str | None:
        deadline = time.monotonic() + WAIT_S
        while True:
            now = used_memory_mb(gpu_ids) or {}
            left = {i: used - before[i] for i, used in now.items() if used - before.get(i, used) > LEFT_MB}
            if not left:
                return None
            if time.monotonic() > deadline:
                return "; ".join(f"GPU {i}: {mb:.0f} MB more in use than before" for i, mb in left.items())
            time.sleep(0.2)

    return check


def oom_kills() -> int | None:
    """How often the kernel's out-of-memory killer has struck in this control group; None when it does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        group = Path("/proc/self/cgroup").read_text().strip().split("\n")[-1].split(":", 2)[2].lstrip("/")
        for folder in (Path("/sys/fs/cgroup") / group, Path("/sys/fs/cgroup")):
            path = folder / "memory.events"
            if path.is_file():
                for line in path.read_text().splitlines():
                    name, _, value = line.partition(" ")
                    if name == "oom_kill":
                        return int(value)
    return None
