"""Reads NVIDIA GPUs through NVML: what they are, how they are set, how they are linked, and who else uses them.

NVML may be missing (no driver, a sandbox) or answer only part of what is asked: what it does not say is null.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.node.islands import Pair, pair_of
from flows.node.links import Topology

_ANCESTORS = {
    0: "PIX",
    10: "PIX",
    20: "PXB",
    30: "PHB",
    40: "NODE",
    50: "SYS",
}  # nvml.h, nvmlGpuTopologyLevel_t
_P2P = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3}  # nvmlGpuP2PCapsIndex_t
_P2P_STATUS = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}  # nvmlGpuP2PStatus_t
_MAX_LINKS = (
    36  # NVML_NVLINK_MAX_LINKS of today's headers; asking past a GPU's own links is an error, not an answer
)
# Bits of nvmlDeviceGetCurrentClocksEventReasons, nvml.h
CLOCK_REASONS = {
    0x1: "gpu_idle", 0x2: "applications_clocks", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display_clock",
}  # fmt: skip


@contextmanager
def open_nvml(nvml: Any = None) -> Iterator[Any]:
    """NVML, started and shut down again; yields None where there is none. `nvml`: another module in its place."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            yield None
            return
    try:
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no library, no driver, no permission: whatever is raised, there are no GPUs here
        yield None
        return
    try:
        yield nvml
    finally:
        ask(nvml, "nvmlShutdown")


def ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """One NVML answer, or null: not supported, not permitted, or not known to this driver."""
    found: Callable[..., Any] | None = getattr(nvml, function, None)
    if found is None:
        return None
    try:
        return found(*arguments)
    except Exception:  # noqa: BLE001 - NVML has an exception class per code, made at run time
        return None


def handles(nvml: Any, gpu_ids: list[int] | None = None) -> dict[int, Any]:
    """NVML handles by GPU id; ids that NVML does not know are left out."""
    count = ask(nvml, "nvmlDeviceGetCount") or 0
    wanted = range(count) if gpu_ids is None else gpu_ids
    found = {gpu: ask(nvml, "nvmlDeviceGetHandleByIndex", gpu) for gpu in wanted}
    return {gpu: handle for gpu, handle in found.items() if handle is not None}


def read_gpus(nvml: Any = None, root: Path = Path("/")) -> dict[str, Any] | None:
    """Driver, every GPU's settings, the topology and the peer-access matrix; null without NVML or GPUs.

    {"driver", "cuda", "details": [one dict a GPU], "topology": Topology, "p2p": {"read": [[...]], ...}}. Serial numbers
    and UUIDs are not read.
    """
    with open_nvml(nvml) as opened:
        if opened is None:
            return None
        devices = handles(opened)
        if not devices:
            return None
        details = [_detail(opened, gpu, handle, root) for gpu, handle in devices.items()]
        return {
            "driver": _text(ask(opened, "nvmlSystemGetDriverVersion")),
            "cuda": _cuda(ask(opened, "nvmlSystemGetCudaDriverVersion_v2") or ask(opened, "nvmlSystemGetCudaDriverVersion")),
            "details": details,
            "topology": _topology(opened, devices, details),
            "p2p": _peer_access(opened, devices),
        }  # fmt: skip


def _detail(nvml: Any, gpu: int, handle: Any, root: Path) -> dict[str, Any]:
    memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    capability = ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    bus = _bus(ask(nvml, "nvmlDeviceGetPciInfo", handle))
    width = ask(nvml, "nvmlDeviceGetMemoryBusWidth", handle)
    memory_clock = ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, 2)
    ecc = ask(nvml, "nvmlDeviceGetEccMode", handle)
    mig = ask(nvml, "nvmlDeviceGetMigMode", handle)
    return {
        "gpu": gpu,
        "name": _text(ask(nvml, "nvmlDeviceGetName", handle)),
        "memory_bytes": getattr(memory, "total", None),
        "memory_used_bytes": getattr(memory, "used", None),
        "compute_capability": ".".join(str(part) for part in capability) if capability else None,
        "memory_bus_bits": width,
        # two transfers a clock: what the data sheet's bandwidth is made of
        "memory_bandwidth_gb_s": round(2 * memory_clock * width / 8 / 1000, 1)
        if memory_clock and width
        else None,
        "sm_clock_mhz": ask(nvml, "nvmlDeviceGetClockInfo", handle, 1),
        "max_sm_clock_mhz": ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, 1),
        "mem_clock_mhz": ask(nvml, "nvmlDeviceGetClockInfo", handle, 2),
        "max_mem_clock_mhz": memory_clock,
        "application_clock_mhz": ask(nvml, "nvmlDeviceGetApplicationsClock", handle, 1),
        "default_application_clock_mhz": ask(nvml, "nvmlDeviceGetDefaultApplicationsClock", handle, 1),
        "clock_reasons": clock_reasons(nvml, handle),
        "power_w": _thousandth(ask(nvml, "nvmlDeviceGetPowerUsage", handle)),
        "power_limit_w": _thousandth(
            ask(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle)
            or ask(nvml, "nvmlDeviceGetPowerManagementLimit", handle)
        ),
        "default_power_limit_w": _thousandth(ask(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        "temperature_c": ask(nvml, "nvmlDeviceGetTemperature", handle, 0),
        "is_ecc_on": _first_flag(ecc),
        "is_mig_on": _first_flag(mig),
        "is_persistent": _flag(ask(nvml, "nvmlDeviceGetPersistenceMode", handle)),
        "pcie_generation": ask(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "max_pcie_generation": ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_lanes": ask(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle),
        "numa": _numa(nvml, handle, bus, root),
        "nvlinks_active": _active_links(nvml, handle),
        "other_processes": _other_processes(nvml, handle),
    }


def clock_reasons(nvml: Any, handle: Any) -> list[str] | None:
    """Why clocks are below their maximum right now, by name; null when NVML does not say."""
    bits = ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:
        bits = ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return None if bits is None else [name for bit, name in CLOCK_REASONS.items() if bits & bit]


def _other_processes(nvml: Any, handle: Any) -> int | None:
    """Processes on the GPU that are not this one; names and owners are nobody's business."""
    running: list[Any] = []
    answered = False
    for function in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        found = ask(nvml, function, handle)
        if found is not None:
            answered = True
            running += list(found)
    return (
        sum(1 for pid in {getattr(p, "pid", None) for p in running} if pid != os.getpid())
        if answered
        else None
    )


def _active_links(nvml: Any, handle: Any) -> int | None:
    states = [ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) for link in range(_MAX_LINKS)]
    known = [state for state in states if state is not None]
    return sum(1 for state in known if state == 1) if known else None


def _topology(nvml: Any, devices: dict[int, Any], details: list[dict[str, Any]]) -> Topology:
    """NVLink by the links' own remote ends, checked against peer status; else the PCIe ancestor."""
    buses = {_bus(ask(nvml, "nvmlDeviceGetPciInfo", handle)): gpu for gpu, handle in devices.items()}
    direct: dict[Pair, int] = {}
    switched: dict[int, int] = {}
    for gpu, handle in devices.items():
        for link in range(_MAX_LINKS):
            if ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) != 1:
                continue
            remote = buses.get(_bus(ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)))
            kind = ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
            if remote is not None and remote != gpu:
                direct[pair_of(gpu, remote)] = direct.get(pair_of(gpu, remote), 0) + 1
            elif kind == 2 or remote is None:  # a switch; its address is no GPU's
                switched[gpu] = switched.get(gpu, 0) + 1
    links: dict[Pair, str] = {}
    warnings = []
    gpus = list(devices)
    for position, a in enumerate(gpus):
        for b in gpus[position + 1 :]:
            # A direct link is seen from both ends.
            count = -(-direct.get(pair_of(a, b), 0) // 2) or min(switched.get(a, 0), switched.get(b, 0))
            status = ask(nvml, "nvmlDeviceGetP2PStatus", devices[a], devices[b], _P2P["nvlink"])
            if count and status not in (None, 0):
                said = _P2P_STATUS.get(status, status)
                warnings.append(f"GPU{a} and GPU{b} have NVLinks up but no peer access over them ({said})")
                count = 0
            ancestor = ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", devices[a], devices[b])
            links[pair_of(a, b)] = f"NV{count}" if count else _ANCESTORS.get(ancestor, "unknown")
    topology = Topology(gpus, links, "nvml", warnings=warnings)
    topology.numa = {detail["gpu"]: detail["numa"] for detail in details}
    topology.mig = [detail["gpu"] for detail in details if detail["is_mig_on"]]
    return topology


def _peer_access(nvml: Any, devices: dict[int, Any]) -> dict[str, list[list[str | None]]] | None:
    """Per capability a matrix in GPU order: OK, CNS, GNS, TNS, DR, NS, U; X on the diagonal; null: not said."""
    if len(devices) < 2:
        return None
    found: dict[str, list[list[str | None]]] = {}
    for name, index in _P2P.items():
        matrix: list[list[str | None]] = []
        for a, first in devices.items():
            row: list[str | None] = []
            for b, second in devices.items():
                status = None if a == b else ask(nvml, "nvmlDeviceGetP2PStatus", first, second, index)
                row.append("X" if a == b else None if status is None else _P2P_STATUS.get(status, "U"))
            matrix.append(row)
        found[name] = matrix
    return found


def gpu_warnings(details: list[dict[str, Any]], p2p: dict[str, Any] | None = None) -> list[str]:
    """What a measurement on these GPUs should be warned of."""
    warnings = []
    for d in details:
        who = f"GPU{d['gpu']}"
        if d["other_processes"]:
            used = f", {d['memory_used_bytes'] / 1e9:.1f} GB in use" if d["memory_used_bytes"] else ""
            warnings.append(
                f"{who} has {d['other_processes']} other processes on it{used}: other tenants disturb a measurement"
            )
        if d["is_ecc_on"] is False:
            warnings.append(f"{who} runs with ECC off")
        limit, default = d["power_limit_w"], d["default_power_limit_w"]
        if limit is not None and default is not None and limit < default:
            warnings.append(f"{who} is limited to {limit:.0f} W, below its default of {default:.0f} W")
        clock, usual = d["application_clock_mhz"], d["default_application_clock_mhz"]
        if clock is not None and usual is not None and clock < usual:
            warnings.append(f"{who} has its clock set to {clock} MHz, below its default of {usual} MHz")
        elif "applications_clocks" in (d["clock_reasons"] or []):
            warnings.append(f"{who} has its clock locked by a setting")
        slow = set(d["clock_reasons"] or []) & {"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"}
        if slow:
            warnings.append(f"{who} is slowed down now: {', '.join(sorted(slow))}")
        if d["is_persistent"] is False:
            warnings.append(f"{who} is not in persistence mode: the first start after idling is slower")
    names = {d["name"] for d in details}
    if len(names) > 1:
        warnings.append(f"the GPUs are not of one kind: {', '.join(sorted(str(n) for n in names))}")
    if p2p and any(cell not in ("OK", "X", None) for row in p2p.get("read", []) for cell in row):
        warnings.append("not every pair of GPUs may read the other's memory (p2p.read)")
    return warnings


def _numa(nvml: Any, handle: Any, bus: str | None, root: Path) -> int | None:
    if bus is not None:
        try:
            node = int((root / "sys/bus/pci/devices" / bus / "numa_node").read_text())
            if node >= 0:
                return node
        except (OSError, ValueError):
            pass
    # nvmlDeviceGetNumaNodeId is of the GPU's own memory (Grace); its affinity to host memory is a bit mask.
    mask = ask(nvml, "nvmlDeviceGetMemoryAffinity", handle, 1, 0)
    bits = int(mask[0]) if mask is not None and len(mask) else 0
    return bits.bit_length() - 1 if bits and bits & (bits - 1) == 0 else None


def _bus(info: Any) -> str | None:
    """A PCI address as sysfs writes it: domain of four digits, lower case."""
    text = _text(getattr(info, "busId", None))
    found = re.fullmatch(r"0*([0-9A-Fa-f]{4}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-9A-Fa-f])", text or "")
    return f"{found[1]}:{found[2]}:{found[3]}.{found[4]}".lower() if found else None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.split(b"\0")[0].decode(errors="replace")
    return value if isinstance(value, str) and value else None


def _cuda(number: Any) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if isinstance(number, int) and number > 0 else None


def _thousandth(milli: Any) -> float | None:
    return None if milli is None else milli / 1000


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _first_flag(pair: Any) -> bool | None:
    """The current one of NVML's [current, pending]."""
    return bool(pair[0]) if isinstance(pair, (list, tuple)) and pair else _flag(pair)
