"""An NVML of our own: two quads of four GPUs behind switches, answering only what a test needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NotSupported(Exception):
    """What NVML raises for a question that it does not answer."""


class FakeNvml:
    """`gpus` GPUs in islands of `island`, `links` NVLinks each. overrides: per-GPU answers by function name."""

    def __init__(
        self, gpus: int = 8, island: int = 4, links: int = 18, direct: dict[tuple[int, int], int] | None = None,
        overrides: dict[tuple[str, int], Any] | None = None, missing: set[str] | None = None,
    ) -> None:  # fmt: skip
        self.gpus, self.island, self.links, self.direct = gpus, island, links, direct
        self.overrides, self.missing = overrides or {}, missing or set()
        self.is_open = False
        self.energy = 1_000_000

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "missing"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def _of(self, function: str, gpu: int, usual: Any) -> Any:
        return self.overrides.get((function, gpu), usual)

    def nvmlInit(self) -> None:
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, gpu: int) -> int:
        if gpu >= self.gpus:
            raise NotSupported
        return gpu

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13000

    def nvmlDeviceGetName(self, gpu: int) -> str:
        return self._of("name", gpu, "NVIDIA H200 NVL")

    def nvmlDeviceGetPciInfo(self, gpu: int) -> Any:
        return SimpleNamespace(busId=f"00000000:{gpu + 16:02X}:00.0".encode())

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(total=150_000_000_000, used=2_000_000_000)

    def nvmlDeviceGetMemoryBusWidth(self, gpu: int) -> int:
        return 6144

    def nvmlDeviceGetMaxClockInfo(self, gpu: int, kind: int) -> int:
        return 3201 if kind == 2 else 1980

    def nvmlDeviceGetClockInfo(self, gpu: int, kind: int) -> int:
        return 3201 if kind == 2 else 1755

    def nvmlDeviceGetApplicationsClock(self, gpu: int, kind: int) -> int:
        return self._of("application_clock", gpu, 1980)

    def nvmlDeviceGetDefaultApplicationsClock(self, gpu: int, kind: int) -> int:
        return 1980

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:
        return 500_000

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: int) -> int:
        return self._of("power_limit", gpu, 600_000)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, gpu: int) -> int:
        return 600_000

    def nvmlDeviceGetTemperature(self, gpu: int, sensor: int) -> int:
        return 45

    def nvmlDeviceGetEccMode(self, gpu: int) -> list[int]:
        return self._of("ecc", gpu, [1, 1])

    def nvmlDeviceGetMigMode(self, gpu: int) -> list[int]:
        return self._of("mig", gpu, [0, 0])

    def nvmlDeviceGetPersistenceMode(self, gpu: int) -> int:
        return self._of("persistence", gpu, 1)

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: int) -> int:
        return self._of("reasons", gpu, 0)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: int) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self._of("processes", gpu, [])]

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        return SimpleNamespace(gpu=97, memory=60)

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:
        self.energy += 1_500
        return self.energy

    def nvmlDeviceGetMemoryAffinity(self, gpu: int, words: int, scope: int) -> list[int]:
        return [self._of("numa_mask", gpu, 1 << gpu // self.island)]

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:
        if self.direct is not None:
            return int(link < sum(n for pair, n in self.direct.items() if gpu in pair))
        if link >= self.links:
            raise NotSupported
        return 1

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: int, link: int) -> Any:
        if self.direct is None:
            return SimpleNamespace(busId=b"00000000:F0:00.0")  # a switch
        for (a, b), count in self.direct.items():
            if gpu in (a, b):
                if link < count:
                    return self.nvmlDeviceGetPciInfo(b if gpu == a else a)
                link -= count
        raise NotSupported

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: int, link: int) -> int:
        return 2 if self.direct is None else 0

    def nvmlDeviceGetP2PStatus(self, a: int, b: int, index: int) -> int:
        if index == 2:
            if self.direct is not None:
                return 0 if (min(a, b), max(a, b)) in self.direct else 5
            return 0 if a // self.island == b // self.island else 5
        return self._of("p2p", a, 0)

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:
        return 40 if a // self.island == b // self.island else 50


class NoDriver:
    """NVML where no driver is loaded."""

    def nvmlInit(self) -> None:
        raise NotSupported("driver not loaded")
