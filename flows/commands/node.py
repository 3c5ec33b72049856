"""`weighbridge node`: this machine, or a pasted topology, as facts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typer

from flows.node.links import RefusedTopology
from flows.node.read import read_node
from flows.node.report import describe_topology
from flows.node.topology import MAX_BYTES, parse_topology


def register(app: typer.Typer) -> None:
    """Add the command to the app."""

    @app.command()
    def node(
        topology: str | None = typer.Option(
            None,
            "--topology",
            help="A file with `nvidia-smi topo -m` or `rocm-smi --showtopo` output; - for stdin.",
        ),
        bandwidth: bool = typer.Option(
            False, "--bandwidth", help="Also measure bandwidths between GPUs (torch and idle GPUs needed)."
        ),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    ) -> None:
        """Say how GPUs are linked (islands, NUMA, NICs) and what this machine is.

        Without `--topology` this machine is read, by NVML, procfs and sysfs. A matrix that is cut off, glued or not
        square is refused, exit 2.
        """
        if topology is None:
            facts = read_node(measures_links=bandwidth)
        else:
            facts = describe_topology(parse_topology(*_read_text(topology)))
        typer.echo(json.dumps(facts) if as_json else describe(facts))


def _read_text(name: str) -> tuple[str, str]:
    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1) if name == "-" else _read_file(Path(name))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RefusedTopology(f"the topology cannot be read: {reason}", evidence=name) from error
    encoding = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
    return raw.decode(encoding, errors="replace"), "stdin" if name == "-" else name


def _read_file(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def describe(facts: dict[str, Any]) -> str:
    """The facts for a person, one thing a line."""
    lines = []
    names = facts.get("gpu_names") or []
    kinds = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    lines.append(f"GPUs      {facts['gpus']}" + (f" ({kinds})" if kinds else ""))
    if facts["gpus"]:
        islands = " ".join("{" + ",".join(str(gpu) for gpu in island) + "}" for island in facts["islands"])
        lines.append(
            f"islands   {islands} by {facts['island_link']}"
            if islands
            else "islands   none: no NVLink or XGMI"
        )
        if facts["between"]:
            lines.append(f"between   {facts['between']}")
        numa = facts["numa"]
        lines.append(
            "NUMA      "
            + ("not said" if numa is None else "  ".join(f"{n}: GPUs {g}" for n, g in numa.items()))
        )
    for gpu, nearest in (facts.get("nearest_nics") or {}).items():
        lines.append(f"NICs      GPU{gpu}: {', '.join(nearest['nics'])} ({nearest['link']})")
    if "cpu_model" in facts:
        lines += _describe_machine(facts)
    lines += [f"warning   {warning}" for warning in facts["warnings"]]
    return "\n".join(lines)


def _describe_machine(facts: dict[str, Any]) -> list[str]:
    def gb(value: float | None) -> str:
        return "not said" if value is None else f"{value / 1e9:.1f} GB"

    disks = ", ".join(f"{disk['name']} {gb(disk['bytes'])}" for disk in facts["nvme"]) or "none seen"
    return [
        f"CPU       {facts['cpu_model']}, {facts['cpu_usable_cores']} of {facts['cpu_threads']} threads usable",
        f"measured  {facts['cpu_bandwidth_gb_s']} GB/s memory, {facts['cpu_gflops']} GFLOP/s float32",
        f"RAM       {gb(facts['ram_bytes'])}, {gb(facts['ram_available_bytes'])} free",
        f"NVMe      {disks}",
        f"driver    {facts['driver'] or 'none'}, CUDA {facts['cuda'] or 'none'}, kernel {facts['kernel']}",
        f"IOMMU     {facts['iommu'] or 'not said'}",
        f"node id   {facts['node_id']}",
    ]
