"""A rehearsal: the same campaign through the same flow, with reference servers in the engines' place.

Before a node is borrowed by the hour, everything but the engines themselves can be tried on a laptop: planning, layouts,
probes, raw, marts and report. What a rehearsal lands is `synthetic`, and never stands beside measured rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from contracts.errors import BadInput
from flows.recipe import Strict

SUFFIX = "-rehearsal"


class Rehearsal(Strict):
    """What plays the node and the engines.

    topology: a file beside the campaign with `nvidia-smi topo -m` output; null: this machine's own. gpu: the name of its
    devices. bandwidth_gb_s: what a measurement of the links would have said, GB/s from each device to each, null on the
    diagonal. server: what every reference server does (docs/reference-server.md); recipes: what one recipe's does
    besides. workloads: settings that differ, by the workload's name; probes: the same for probes.
    """

    topology: str | None = None
    gpu: str | None = None
    bandwidth_gb_s: list[list[float | None]] | None = None
    server: dict[str, Any] = Field(default={})
    recipes: dict[str, dict[str, Any]] = Field(default={})
    workloads: dict[str, dict[str, Any]] = Field(default={})
    probes: dict[str, Any] = Field(default={})


def played_node(facts: dict[str, Any], rehearsal: Rehearsal, beside: Path) -> dict[str, Any]:
    """This machine's facts with the rehearsal's devices in it. beside: the folder of the campaign file.

    Raises RefusedTopology for text that is no whole matrix, BadInput for a file that cannot be read or for bandwidths
    that do not fit it.
    """
    if rehearsal.topology is None:
        return {**facts, "is_rehearsal": True}
    from flows.node.machine import fingerprint
    from flows.node.read import add_bandwidth
    from flows.node.report import describe_topology
    from flows.node.topology import parse_topology

    path = beside / rehearsal.topology
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(
            f"the rehearsal's topology cannot be read: {error.strerror}", evidence=str(path)
        ) from None
    played = {**facts, **describe_topology(parse_topology(text, str(path)), facts.get("iommu"))}
    played |= {"is_rehearsal": True, "gpu_names": [rehearsal.gpu or "rehearsed GPU"] * played["gpus"]}
    if rehearsal.bandwidth_gb_s is not None:
        matrix = rehearsal.bandwidth_gb_s
        if len(matrix) != played["gpus"] or any(len(row) != played["gpus"] for row in matrix):
            raise BadInput(
                "the rehearsal's bandwidths and its topology do not fit together",
                measured=f"{len(matrix)} row(s)",
                required=f"{played['gpus']} rows of {played['gpus']}",
                evidence=str(path),
            )
        add_bandwidth(played, {"gpus": len(matrix), "copy_gb_s": matrix})
    return {**played, "node_id": fingerprint(played)}
