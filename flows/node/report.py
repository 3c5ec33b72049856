"""A topology as the command prints it: islands, links, NUMA, NICs, and what to be warned of."""

from __future__ import annotations

from typing import Any

from flows.node.islands import Pair, find_islands, is_fast, overlapping, split_disjoint
from flows.node.links import Topology
from flows.node.topology import DISTANCE


def describe_topology(topology: Topology, iommu: str | None = None) -> dict[str, Any]:
    """JSON-ready facts of a topology; keys are explained in docs/node.md.

    iommu: the machine's mode where it is known; null when only text was given.
    """
    fast = {
        pair: link
        for pair, link in topology.links.items()
        if is_fast(link) and not set(pair) & set(topology.mig)
    }
    islands = find_islands(topology.gpus, fast)
    inside = {pair for pair in fast if any(set(pair) <= set(island) for island in islands)}
    across = {pair: link for pair, link in topology.links.items() if pair not in inside}
    links = [_island_link(island, fast) for island in islands]
    weakest = min(links, key=_strength) if links else None
    numa = _numa(topology)
    return {
        "gpus": len(topology.gpus),
        "islands": islands,
        "island_link": weakest,
        "between": _farthest(across.values()),
        "numa": numa,
        "warnings": [*topology.warnings, *_warnings(topology, islands, links, across, iommu)],
        "source": topology.source,
        "gpu_ids": topology.gpus,
        "island_links": links,
        "islands_overlap": bool(overlapping(islands)),
        "disjoint_islands": split_disjoint(islands),
        "unlinked_gpus": [g for g in topology.gpus if not any(g in island for island in islands)],
        "pairs_between": _pairs_by_class(across),
        "cpu_affinity": {str(gpu): cpus for gpu, cpus in topology.cpus.items()} or None,
        "nearest_nics": _nearest_nics(topology),
        "nic_names": topology.nic_names,
        "mig_gpus": topology.mig,
    }


def _strength(link: str) -> int:
    return int(link[2:]) if link.startswith("NV") else 1000


def _island_link(island: list[int], fast: dict[Pair, str]) -> str:
    """The weakest link inside an island: what an all-reduce waits for."""
    return min((fast[(a, b)] for i, a in enumerate(island) for b in island[i + 1 :]), key=_strength)


def _farthest(links: Any) -> str | None:
    """The slowest class among links; of fast ones (islands that overlap) the weakest."""
    listed = list(links)
    for name in DISTANCE:
        if name in listed:
            return name
    others = sorted(set(listed) - {""}, key=lambda link: _strength(link) if is_fast(link) else 0)
    return others[0] if others else None


def _pairs_by_class(across: dict[Pair, str]) -> dict[str, list[list[int]]]:
    found: dict[str, list[list[int]]] = {}
    for pair, link in sorted(across.items()):
        found.setdefault(link, []).append(list(pair))
    return found


def _numa(topology: Topology) -> dict[str, list[int]] | None:
    nodes: dict[int, list[int]] = {}
    for gpu, node in topology.numa.items():
        if node is not None:
            nodes.setdefault(node, []).append(gpu)
    return {str(node): gpus for node, gpus in sorted(nodes.items())} or None


def _nearest_nics(topology: Topology) -> dict[str, dict[str, Any]]:
    """Per GPU: the NICs of the nearest class, and that class."""
    nearest = {}
    for gpu, links in topology.nics.items():
        classes = [link for link in reversed(DISTANCE) if link in links.values()]
        if classes:
            nics = [nic for nic, link in links.items() if link == classes[0]]
            nearest[str(gpu)] = {"link": classes[0], "nics": nics}
    return nearest


def _warnings(
    topology: Topology, islands: list[list[int]], links: list[str], across: dict[Pair, str], iommu: str | None
) -> list[str]:
    warnings = []
    if topology.mig:
        warnings.append(
            f"GPUs {topology.mig} are cut into MIG devices: no peer access over NVLink or PCIe between them, so they are in no island"
        )
    shared = overlapping(islands)
    if shared:
        warnings.append(
            f"islands overlap: GPUs {shared} are in more than one; not every pair of the node is linked"
        )
    if len(set(links)) > 1:
        warnings.append(f"islands differ in their links: {', '.join(links)}")
    for island, link in zip(islands, links, strict=True):
        own = {topology.links[(a, b)] for i, a in enumerate(island) for b in island[i + 1 :]}
        if len(own) > 1:
            warnings.append(f"island {island} has unequal links ({', '.join(sorted(own))}); {link} bounds it")
        nodes = {topology.numa.get(gpu) for gpu in island} - {None}
        if len(nodes) > 1:
            warnings.append(f"island {island} crosses NUMA nodes {sorted(n for n in nodes if n is not None)}")
    unknown = [gpu for gpu in topology.gpus if topology.numa.get(gpu) is None]
    if unknown and topology.gpus and len(unknown) < len(topology.gpus):
        warnings.append(f"NUMA node of GPUs {unknown} is not said")
    blank = [gpu for gpu in topology.gpus if topology.cpus and topology.cpus.get(gpu) is None]
    if blank and topology.source.startswith("nvidia"):
        warnings.append(
            f"CPU affinity of GPUs {blank} is blank: this process may not use their cores (a cpuset)"
        )
    if {"SYS", "SOC"} & set(across.values()) and iommu != "passthrough":
        known = f"IOMMU is {iommu}" if iommu else "the IOMMU's mode is not known from this text"
        if iommu != "off":
            warnings.append(
                f"GPUs lie across sockets and {known}: cross-socket copies between GPUs failed until it was set to "
                "passthrough (iommu=pt)"
            )
    slow = [pair for pair, link in across.items() if link in ("PIX", "PXB", "PSB", "PHB")]
    if slow and not islands:
        warnings.append(
            f"peer copies run over PCIe ({len(slow)} pairs): with ACS or an IOMMU in the way they can hang or return wrong "
            "data; test them, or set NCCL_P2P_DISABLE=1"
        )
    return warnings
