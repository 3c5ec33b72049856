"""Everything about this node in one flat dict, for `node.jsonl` and the command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from flows.node.gpus import gpu_warnings, read_gpus
from flows.node.machine import fingerprint, iommu_mode, read_machine
from flows.node.report import describe_topology
from flows.node.speed import measure_speed

_NO_GPUS: dict[str, Any] = {
    "gpus": 0,
    "islands": [],
    "island_link": None,
    "between": None,
    "numa": None,
    "warnings": [],
    "gpu_names": [],
    "driver": None,
    "cuda": None,
    "gpu_details": [],
    "p2p": None,
    "bandwidth": None,
    "is_islands_confirmed": None,
}


def read_node(
    nvml: Any = None,
    root: Path = Path("/"),
    *,
    measures_links: bool = False,
    torch_python: str = sys.executable,
) -> dict[str, Any]:
    """This machine's facts; keys are listed in docs/node.md. JSON-ready, null where the machine does not say.

    measures_links: also measure GPU bandwidths (needs idle GPUs and an interpreter with torch, `torch_python`; takes up
    to a minute) and say whether they confirm the islands. nvml: another module in NVML's place; root: where procfs and sysfs lie (both for tests).
    """
    machine = read_machine(root)
    facts = {**_NO_GPUS, **_read_gpu_facts(nvml, root, machine["iommu"]), **machine, **measure_speed()}
    if measures_links and facts["gpus"]:
        from flows.node.bandwidth import measure_apart  # here, since it also runs as a module of its own

        add_bandwidth(facts, measure_apart(python=torch_python))
    return {"node_id": fingerprint(facts), **facts}


def add_bandwidth(facts: dict[str, Any], measured: dict[str, Any] | None) -> None:
    """Put measured bandwidths (flows.node.bandwidth) into the facts, judged against the islands that they name."""
    from flows.node.bandwidth import confirm_islands

    facts["bandwidth"] = measured
    if measured is None:
        facts["warnings"].append("bandwidths between GPUs could not be measured (torch and CUDA are needed)")
        return
    matrix = measured.get("send_gb_s") or measured["copy_gb_s"]
    verdict = confirm_islands(facts["islands"], matrix, facts.get("gpu_ids"))
    facts["is_islands_confirmed"] = verdict["is_confirmed"]
    if verdict["is_confirmed"] is False:
        facts["warnings"].append(
            f"measured bandwidths show islands {verdict['measured']}, the topology names {verdict['stated']}"
        )


def read_topology(nvml: Any = None, root: Path = Path("/")) -> dict[str, Any] | None:
    """How this machine's GPUs are linked, without the rest; null without NVIDIA GPUs."""
    return _read_gpu_facts(nvml, root, iommu_mode(root)) or None


def _read_gpu_facts(nvml: Any, root: Path, iommu: str | None) -> dict[str, Any]:
    found = read_gpus(nvml, root)
    if found is None:
        return {}
    described = describe_topology(found["topology"], iommu)
    names = [detail["name"] for detail in found["details"]]
    described["warnings"] += gpu_warnings(found["details"], found["p2p"])
    return {
        **described,
        "gpu_names": names,
        "driver": found["driver"],
        "cuda": found["cuda"],
        "gpu_details": found["details"],
        "p2p": found["p2p"],
    }
