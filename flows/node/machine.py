"""The machine beside its GPUs, from procfs and sysfs: CPU, memory, NUMA, IOMMU, NVMe, NICs. Null: not said.

Nothing here tells one machine of a kind from another: no serial numbers, addresses or names; the host name is hashed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import socket
from pathlib import Path
from typing import Any

from flows.node.speed import usable_cores


def read_machine(root: Path = Path("/")) -> dict[str, Any]:
    """CPU, memory, NUMA, kernel, IOMMU, NVMe and NICs of the machine whose procfs and sysfs lie under `root`."""
    cpu = _cpu(_text(root / "proc/cpuinfo") or "")
    memory = _memory(_text(root / "proc/meminfo") or "")
    limit = _integer(_text(root / "sys/fs/cgroup/memory.max"))
    return {
        **cpu,
        "cpu_usable_cores": usable_cores(),
        "ram_bytes": memory.get("MemTotal"),
        "ram_available_bytes": memory.get("MemAvailable"),
        "ram_limit_bytes": limit,
        "swap_bytes": memory.get("SwapTotal"),
        "numa_nodes": _numa(root),
        "kernel": platform.release(),
        "os": _os_name(root),
        "hostname_sha256": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        "iommu": iommu_mode(root),
        "nvme": _nvme(root),
        "nics": _nics(root),
        "open_file_limit": _open_file_limit(),
        "python": platform.python_version(),
    }


def fingerprint(facts: dict[str, Any]) -> str:
    """A stable id of this kind of machine: CPU, cores, memory, GPUs. Two machines of one kind share it."""
    ram = facts.get("ram_bytes")
    # Kernels reserve a little more or less: two digits survive a reboot.
    ram_rounded = None if not ram else float(f"{ram / 1e9:.1e}")
    parts = [
        facts.get("cpu_model"),
        facts.get("cpu_threads"),
        ram_rounded,
        sorted(str(name) for name in facts.get("gpu_names") or []),
        sorted(len(island) for island in facts.get("islands") or []),
    ]
    return "node-" + hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def iommu_mode(root: Path = Path("/")) -> str | None:
    """passthrough, translated, off, or null when the machine does not say.

    From the groups' own type (identity, DMA, DMA-FQ), else from the kernel's command line.
    """
    groups = {
        text.strip()
        for path in _glob(root / "sys/kernel/iommu_groups", "*/type")
        if (text := _text(path)) is not None
    }
    if groups:
        return "passthrough" if groups == {"identity"} else _mode_of_command_line(root) or "translated"
    said = _mode_of_command_line(root)
    if said is not None:
        return said
    if (root / "sys/class/iommu").is_dir():
        return "translated" if any(_glob(root / "sys/class/iommu", "*")) else "off"
    return None


def _mode_of_command_line(root: Path) -> str | None:
    words = set((_text(root / "proc/cmdline") or "").split())
    if words & {"iommu=pt", "iommu.passthrough=1", "intel_iommu=pt", "amd_iommu=pt"}:
        return "passthrough"
    if words & {"intel_iommu=off", "amd_iommu=off", "iommu=off"}:
        return "off"
    return None


def _cpu(cpuinfo: str) -> dict[str, Any]:
    model = re.search(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", cpuinfo, re.M)
    threads = len(re.findall(r"^processor\s*:", cpuinfo, re.M)) or os.cpu_count()
    sockets = set(re.findall(r"^physical id\s*:\s*(\d+)", cpuinfo, re.M))
    cores = set(re.findall(r"^physical id\s*:\s*(\d+)(?:.*\n)*?core id\s*:\s*(\d+)", cpuinfo, re.M))
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.M)
    known = set(flags.group(1).split()) if flags else set()
    telling = (
        "avx2",
        "avx512f",
        "avx512_vnni",
        "avx_vnni",
        "avx512_bf16",
        "amx_int8",
        "amx_bf16",
        "asimd",
        "sve",
    )
    return {
        "cpu_model": model.group(1).strip() if model else platform.processor() or None,
        "cpu_architecture": platform.machine(),
        "cpu_threads": threads,
        "cpu_cores": len(cores) or None,
        "cpu_sockets": len(sockets) or None,
        "cpu_flags": [flag for flag in telling if flag in known],
        "is_virtual": ("hypervisor" in known) if known else None,
    }


def _memory(meminfo: str) -> dict[str, int]:
    return {
        name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+):\s+(\d+) kB$", meminfo, re.M)
    }  # fmt: skip


def _numa(root: Path) -> dict[str, dict[str, Any]] | None:
    nodes = {}
    for path in _glob(root / "sys/devices/system/node", "node[0-9]*"):
        meminfo = _text(path / "meminfo") or ""
        total = re.search(r"MemTotal:\s+(\d+) kB", meminfo)
        nodes[path.name.removeprefix("node")] = {
            "cpus": (_text(path / "cpulist") or "").strip() or None,
            "ram_bytes": int(total.group(1)) * 1024 if total else None,
        }
    return nodes or None


def _nvme(root: Path) -> list[dict[str, Any]]:
    disks = []
    for path in _glob(root / "sys/block", "nvme*n*"):
        sectors = _integer(_text(path / "size"))
        disks.append(
            {
                "name": path.name,
                "bytes": None
                if sectors is None
                else sectors * 512,  # sysfs counts in 512 bytes, whatever the disk
                "model": (_text(path / "device/model") or "").strip() or None,
                "numa": _numa_of(path / "device"),
            }
        )
    return disks


def _nics(root: Path) -> list[dict[str, Any]]:
    nics = []
    for path in _glob(root / "sys/class/infiniband", "*"):
        rate = re.match(r"([\d.]+) Gb/sec", _text(path / "ports/1/rate") or "")
        nics.append(
            {
                "name": path.name,
                "kind": (_text(path / "ports/1/link_layer") or "").strip() or "InfiniBand",
                "gbit_s": float(rate.group(1)) if rate else None,
                "numa": _numa_of(path / "device"),
            }
        )
    for path in _glob(root / "sys/class/net", "*"):
        if not (path / "device").exists():
            continue  # loopback, bridges, tunnels
        mbit = _integer(_text(path / "speed"))
        nics.append(
            {
                "name": path.name,
                "kind": "Ethernet",
                "gbit_s": mbit / 1000 if mbit is not None and mbit > 0 else None,
                "numa": _numa_of(path / "device"),
            }
        )
    return nics


def _numa_of(device: Path) -> int | None:
    node = _integer(_text(device / "numa_node"))
    return node if node is not None and node >= 0 else None  # -1: the firmware does not say


def _os_name(root: Path) -> str | None:
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', _text(root / "etc/os-release") or "", re.M)
    return name.group(1) if name else platform.system() or None


def _open_file_limit() -> int | None:
    try:
        import resource

        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, ValueError, OSError):
        return None


def _glob(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):
        return None


def _integer(text: str | None) -> int | None:
    try:
        return int((text or "").strip())
    except ValueError:
        return None
