"""How the GPUs of one node are linked: what every reader of a topology gives, and its refusal."""

from __future__ import annotations

from dataclasses import dataclass, field

from contracts.errors import BadInput
from flows.node.islands import Pair

MAX_GPUS = 128  # no node has more; a longer header is something else


class RefusedTopology(BadInput):
    """Text that is no whole topology matrix."""


@dataclass
class Topology:
    """How the GPUs of one node are linked.

    gpus: ids in the order of the matrix. links: class of every pair (`NV18`, `XGMI`, `SYS`, `PCIE`, ...). numa and
    cpus: per GPU, null where not said. nics: per GPU, class by NIC; nic_names: NIC0 -> mlx5_0. mig: GPUs cut into MIG
    devices, which have no peer access. hops: per pair, where the vendor counts them.
    """

    gpus: list[int]
    links: dict[Pair, str]
    source: str
    numa: dict[int, int | None] = field(default_factory=dict)
    cpus: dict[int, str | None] = field(default_factory=dict)
    nics: dict[int, dict[str, str]] = field(default_factory=dict)
    nic_names: dict[str, str] = field(default_factory=dict)
    hops: dict[Pair, int] = field(default_factory=dict)
    mig: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def refuse(
    what: str,
    where: str,
    measured: str | None = None,
    required: str | None = None,
    next_step: str | None = None,
) -> RefusedTopology:
    return RefusedTopology(
        what,
        measured=measured,
        required=required,
        evidence=where,
        next_step=next_step or "paste the whole output of `nvidia-smi topo -m` (or `rocm-smi --showtopo`)",
    )
