"""Reads AMD's topologies: `rocm-smi --showtopo` (text or JSON) and `amd-smi topology`."""

from __future__ import annotations

import re

from flows.node.islands import Pair, pair_of
from flows.node.links import MAX_GPUS, RefusedTopology, Topology, refuse

_SECTIONS = (
    ("link", re.compile(r"link\s+type\s+(between\s+two\s+gpus|table)", re.I)),
    ("hops", re.compile(r"hops\s+(between\s+two\s+gpus|table)", re.I)),
    ("weight", re.compile(r"weight\s+(between\s+two\s+gpus|table)", re.I)),
    ("numa", re.compile(r"numa\s+nodes", re.I)),
)
_AMD_LABEL = r"(?:GPU\d{1,4}|[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])"


def find_amd(lines: list[str]) -> dict[str, tuple[int, int]]:
    """Where each section of AMD's output starts and ends (line indices); empty when it is not AMD's."""
    starts: list[tuple[int, str]] = []
    for index, line in enumerate(lines):
        if re.search(r"Link type between DRM devices", line):
            starts.append((index, "pairs"))
            continue
        for name, pattern in _SECTIONS:
            is_title = re.search(r"={3,}.*={3,}", line) or re.fullmatch(r"\W*[A-Z ]+TABLE\W*", line)
            if is_title and pattern.search(line):
                starts.append((index, name))
        if re.search(r"={3,}\s*End of ROCm|={3,}.*(Bandwidth|Accessible).*={3,}", line, re.I) or (
            re.fullmatch(r"\W*[A-Z -]+ TABLE\W*", line) and not any(p.search(line) for _, p in _SECTIONS)
        ):
            starts.append((index, "other"))
    sections: dict[str, tuple[int, int]] = {}
    for position, (index, name) in enumerate(starts):
        end = starts[position + 1][0] if position + 1 < len(starts) else len(lines)
        sections.setdefault(name, (index + 1, end))
    return {} if set(sections) <= {"other"} else sections


def parse_amd(lines: list[str], sections: dict[str, tuple[int, int]], where: str) -> Topology:
    if "pairs" in sections and "link" not in sections:
        return _parse_amd_pairs(lines, where)
    if "link" not in sections:
        raise refuse(
            "the table of link types is missing: weights and hops alone do not name a link",
            where,
            next_step="paste the whole output of `rocm-smi --showtopo`",
        )
    labels, cells = _amd_table(lines, sections["link"], where, "link type")
    gpus = [int(label[3:]) if label.startswith("GPU") else i for i, label in enumerate(labels)]
    links: dict[Pair, str] = {}
    for a in range(len(labels)):
        for b in range(len(labels)):
            if a == b:
                continue
            there, back = cells[a][b].upper(), cells[b][a].upper()
            if there != back:
                raise refuse(
                    f"the table contradicts itself at {labels[a]}, {labels[b]}", where, f"{there} and {back}"
                )
            if not re.fullmatch(r"[A-Z][A-Z0-9/_+-]{2,15}", there):
                raise refuse(f"{labels[a]} to {labels[b]} is no link type", where, there[:30], "XGMI or PCIE")
            links[pair_of(gpus[a], gpus[b])] = "XGMI" if "XGMI" in there else there
    topology = Topology(
        gpus, links, "rocm-smi --showtopo" if labels[0].startswith("GPU") else "amd-smi topology"
    )
    topology.numa = dict.fromkeys(gpus)
    for line in lines:
        if (said := re.search(r"GPU\s*\[?(\d{1,4})\]?\s*:.*Numa Node:\s*(-?\d+)", line, re.I)) and int(
            said.group(1)
        ) in topology.numa:
            node = int(said.group(2))
            topology.numa[int(said.group(1))] = node if node >= 0 else None
    for name in ("hops", "weight"):
        if name not in sections:
            continue
        try:
            other_labels, other = _amd_table(lines, sections[name], where, name)
        except RefusedTopology as error:
            topology.warnings.append(f"the table of {name} is not whole and was not used: {error.what}")
            continue
        if name == "hops" and other_labels == labels:
            for a in range(len(gpus)):
                for b in range(a + 1, len(gpus)):
                    if other[a][b].isdigit():
                        topology.hops[pair_of(gpus[a], gpus[b])] = int(other[a][b])
    far = [pair for pair, hops in topology.hops.items() if hops > 1 and topology.links.get(pair) == "XGMI"]
    if far:
        topology.warnings.append(
            f"{len(far)} pairs reach each other by XGMI through another GPU (more than one hop), such as {far[0]}"
        )
    return topology


def _amd_table(
    lines: list[str], section: tuple[int, int], where: str, title: str
) -> tuple[list[str], list[list[str]]]:
    labels: list[str] = []
    rows: dict[str, list[str]] = {}
    for index in range(*section):
        tokens = re.findall(r"\S+", lines[index])
        at = next((i for i, token in enumerate(tokens) if re.fullmatch(_AMD_LABEL, token)), None)
        if at is None:
            continue
        tokens = tokens[at:]
        if not labels:
            if not all(re.fullmatch(_AMD_LABEL, token) for token in tokens):
                raise refuse(f"the header of the {title} table is missing", f"{where}, line {index + 1}")
            labels = tokens
            if len(set(labels)) < len(labels):
                raise refuse(
                    f"the {title} table names a GPU twice: tables are glued", f"{where}, line {index + 1}"
                )
            continue
        if tokens[0] in rows or any(re.fullmatch(_AMD_LABEL, token) for token in tokens[1:]):
            raise refuse(f"the {title} table is glued at {tokens[0]}", f"{where}, line {index + 1}")
        rows[tokens[0]] = tokens[1:]
    if not labels or len(labels) > MAX_GPUS:
        raise refuse(
            f"the {title} table is empty or too large", where, f"{len(labels)} GPUs", f"1 to {MAX_GPUS}"
        )
    whole = [label for label in labels if len(rows.get(label, [])) == len(labels)]
    if len(whole) < len(labels) or len(rows) != len(labels):
        raise refuse(
            f"the {title} table is not square: it is cut off", where, f"{len(labels)} columns, {len(whole)} whole rows",
            f"{len(labels)} rows", "paste the whole output of `rocm-smi --showtopo`",
        )  # fmt: skip
    for position, label in enumerate(labels):
        if rows[label][position].upper() not in ("0", "SELF", "X", "N/A"):
            raise refuse(
                f"row {label} of the {title} table does not cross its own column at 0",
                where,
                rows[label][position][:20],
            )
    return labels, [rows[label] for label in labels]


def _parse_amd_pairs(lines: list[str], where: str) -> Topology:
    """`rocm-smi --showtopo --json`: one entry a pair."""
    links: dict[Pair, str] = {}
    numa: dict[int, int | None] = {}
    text = "\n".join(lines)
    for a, b, kind in re.findall(
        r"Link type between DRM devices (\d{1,4}) and (\d{1,4})\"?\s*:\s*\"?(\w+)", text
    ):
        if a != b:
            links[pair_of(int(a), int(b))] = "XGMI" if "XGMI" in kind.upper() else kind.upper()
    for card, node in re.findall(r"\"card(\d{1,4})\"\s*:\s*\{[^{}]*?Numa Node\"\s*:\s*\"?(-?\d+)", text):
        numa[int(card)] = int(node) if int(node) >= 0 else None
    gpus = sorted({gpu for pair in links for gpu in pair} | set(numa))
    if len(gpus) > MAX_GPUS or len(links) != len(gpus) * (len(gpus) - 1) // 2:
        raise refuse(
            "not every pair is named", where, f"{len(links)} pairs of {len(gpus)} GPUs", "every pair"
        )
    return Topology(gpus, links, "rocm-smi --showtopo --json", {gpu: numa.get(gpu) for gpu in gpus})
