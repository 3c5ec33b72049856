"""Samples GPUs while a window runs: power, clocks, why they are held back, temperature, memory, energy."""

from __future__ import annotations

import itertools
import threading
import time
from types import TracebackType
from typing import Any

from flows.node.gpus import ask, clock_reasons, handles, open_nvml


class Sampler:
    """Samples `gpu_ids` (all when null) every `period_s` seconds on a thread, from entering to leaving.

    `samples` holds dicts with the fields of contracts.records.Telemetry beside its keys: at_ns (CLOCK_MONOTONIC), gpu,
    power_w, sm_clock_mhz, mem_clock_mhz, temperature_c, utilization_pct, memory_used_mb, throttle_reasons, energy_mj
    (millijoules since the driver was loaded). What a GPU does not say is null. Without GPUs there are no samples. One
    sample is taken on entering and one on leaving, so energy covers the whole window.
    """

    def __init__(self, gpu_ids: list[int] | None = None, period_s: float = 1.0, nvml: Any = None) -> None:
        self.samples: list[dict[str, Any]] = []
        self._gpu_ids, self._period_s, self._nvml = gpu_ids, period_s, nvml
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Sampler:
        if self._gpu_ids == []:  # a recipe on the CPU: nothing to watch, whatever the machine has
            return self
        self._stop.clear()
        self._ready.clear()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()
        self._ready.wait(timeout=10.0)  # the first sample, or the finding that there is nothing to sample
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)  # a driver that hangs must not hold up the end of a window
            self._thread = None

    def take(self) -> list[dict[str, Any]]:
        """The samples so far, which are then forgotten."""
        taken, self.samples = self.samples, []
        return taken

    def _run(self) -> None:
        try:
            with open_nvml(self._nvml) as nvml:
                devices = handles(nvml, self._gpu_ids) if nvml is not None else {}
                while devices:
                    started = time.monotonic()
                    self.samples += [sample(nvml, gpu, handle) for gpu, handle in devices.items()]
                    self._ready.set()
                    if self._stop.wait(max(0.0, self._period_s - (time.monotonic() - started))):
                        self.samples += [sample(nvml, gpu, handle) for gpu, handle in devices.items()]
                        return
        finally:
            self._ready.set()


def sample(nvml: Any, gpu: int, handle: Any) -> dict[str, Any]:
    """One GPU now; units are in the names."""
    utilization = ask(nvml, "nvmlDeviceGetUtilizationRates", handle)
    memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    power = ask(nvml, "nvmlDeviceGetPowerUsage", handle)
    used = getattr(memory, "used", None)
    return {
        "at_ns": time.monotonic_ns(),
        "gpu": gpu,
        "power_w": None if power is None else power / 1000,
        "sm_clock_mhz": ask(nvml, "nvmlDeviceGetClockInfo", handle, 1),
        "mem_clock_mhz": ask(nvml, "nvmlDeviceGetClockInfo", handle, 2),
        "temperature_c": ask(nvml, "nvmlDeviceGetTemperature", handle, 0),
        "utilization_pct": getattr(utilization, "gpu", None),
        "memory_used_mb": None if used is None else used / 1e6,
        "throttle_reasons": clock_reasons(nvml, handle),
        "energy_mj": ask(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle),
    }


def energy_j(samples: list[dict[str, Any]]) -> float | None:
    """Joules used by all sampled GPUs between their first and last sample; null where energy is not known.

    From the energy counter; a GPU without one is integrated from its power by the trapezium rule.
    """
    by_gpu: dict[int, list[dict[str, Any]]] = {}
    for one in samples:
        by_gpu.setdefault(one["gpu"], []).append(one)
    total = 0.0
    for taken in by_gpu.values():
        counted = [one["energy_mj"] for one in taken if one["energy_mj"] is not None]
        if len(counted) >= 2:
            total += (counted[-1] - counted[0]) / 1000
            continue
        powered = [(one["at_ns"], one["power_w"]) for one in taken if one["power_w"] is not None]
        if len(powered) < 2:
            return None
        for (t0, p0), (t1, p1) in itertools.pairwise(powered):
            total += (p0 + p1) / 2 * (t1 - t0) / 1e9
    return total if by_gpu else None
