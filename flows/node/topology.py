"""Reads how GPUs are linked from what people paste: `nvidia-smi topo -m`, `rocm-smi --showtopo`, `amd-smi topology`.

A matrix is used only when it is whole: every GPU has a row, every row every GPU cell, both halves agree. Anything else
is refused with the reason, since an island read from half a matrix places a model wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from flows.node.islands import Pair, is_fast, pair_of
from flows.node.links import MAX_GPUS, Topology, refuse
from flows.node.rocm import find_amd, parse_amd

# nvidia-smi's classes, near to far; SOC and PSB are what old drivers printed.
PCIE_CLASSES = ("PIX", "PXB", "PSB", "PHB", "NODE", "SOC", "SYS")
# Far to near for both vendors: what `between` picks from.
DISTANCE = ("SYS", "SOC", "NODE", "PHB", "PSB", "PXB", "PIX", "PCIE")
MAX_BYTES = 8 << 20

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|\[\d{0,2}m(?=GPU|$)")
_LINK = re.compile(r"X|NV\d{1,3}|SYS|NODE|PHB|PXB|PIX|SOC|PSB|C2C")
_PEER_WORDS = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U", "NOK"}
_GPU = re.compile(r"GPU\d{1,4}")
_AFFINITY = (("CPU Affinity", "cpu"), ("NUMA Affinity", "numa"), ("GPU NUMA ID", "gpu_numa"))
_AFFINITY_TOKEN = {"cpu": "\x01cpu", "numa": "\x01numa", "gpu_numa": "\x01gpu_numa"}


def parse_topology(text: str, where: str = "topology") -> Topology:
    """A whole topology from pasted text. Raises RefusedTopology with what is wrong, where, and what to do."""
    if len(text) > MAX_BYTES:
        raise refuse(
            "the text is too long for a topology", where, f"{len(text)} characters", f"<= {MAX_BYTES}"
        )
    lines = [_clean(line) for line in re.split(r"\r\n|\r|\n", text)]
    amd = find_amd(lines)
    topology = parse_amd(lines, amd, where) if amd else _parse_nvidia(lines, where)
    topology.mig = sorted(set(topology.mig) | (_mig_gpus(lines) & set(topology.gpus)))
    return topology


def _clean(line: str) -> str:
    line = (
        _ANSI.sub("", line)
        .replace("\ufeff", "")
        .replace("\u200b", "")
        .replace("\u00a0", " ")
        .replace("\x00", "")
    )
    return line.rstrip()


# nvidia-smi topo -m


@dataclass
class _Header:
    columns: list[str]  # GPU and NIC labels, in order
    tail: list[str]  # cpu, numa, gpu_numa: those that the header names
    positions: dict[str, int]  # where each tail column starts, from the first GPU column
    is_aligned: bool


@dataclass
class _Row:
    label: str
    cells: list[str]
    rest: str  # what follows the links, as written
    rest_at: int  # where it starts, from where the first column would
    broken: str | None  # a token that is no link and no affinity: a cut cell
    line: int


def _parse_nvidia(lines: list[str], where: str) -> Topology:
    if (
        asked := next((n for n, line in enumerate(lines, 1) if re.search(r"topo\s+-mp\b", line)), None)
    ) is not None:
        raise refuse(
            "this is the PCIe-only matrix (`nvidia-smi topo -mp`): it leaves NVLink out",
            f"{where}, line {asked}",
            next_step="run `nvidia-smi topo -m`",
        )
    lines = [
        line.replace("|", "\t") if re.search(r"\|\s*GPU\d", line) else line for line in lines
    ]  # Markdown
    header, rows, warnings = _read_matrix(lines, where)
    gpus = [label for label in header.columns if _GPU.fullmatch(label)]
    nics = [label for label in header.columns if label not in gpus]
    if len(set(header.columns)) < len(header.columns):
        raise refuse("the header names a column twice: matrices are glued together", where)
    if len(gpus) > MAX_GPUS:
        raise refuse("no node has so many GPUs", where, f"{len(gpus)} GPU columns", f"<= {MAX_GPUS}")
    by_label = _one_row_each(rows, gpus, where)
    _check_square(by_label, gpus, header, where)
    ids = [int(label.removeprefix("GPU")) for label in gpus]
    links: dict[Pair, str] = {}
    for a, first in enumerate(gpus):
        for b, second in enumerate(gpus):
            if a == b:
                continue
            there, back = by_label[first].cells[b], by_label[second].cells[a]
            if there != back:
                raise refuse(
                    f"the matrix contradicts itself: {first} to {second} is {there}, {second} to {first} is {back}",
                    f"{where}, lines {by_label[first].line} and {by_label[second].line}",
                )
            links[pair_of(ids[a], ids[b])] = there
    topology = Topology(ids, links, "nvidia-smi topo -m", warnings=warnings)
    topology.nic_names = _nic_legend(lines, nics)
    legend = [line for line in lines if re.match(r"\W*(X|SYS|PIX|PHB|NV#)\s+=", line)]
    if (
        len(legend) >= 3
        and not any("NV#" in line for line in legend)
        and not any(map(is_fast, links.values()))
    ):
        topology.warnings.append(
            "the legend has no NV#: this may be the PCIe-only matrix (topo -mp), without NVLink"
        )
    for label, gpu in zip(gpus, ids, strict=True):
        row = by_label[label]
        cells = row.cells[len(gpus) :]
        topology.nics[gpu] = dict(zip(nics, cells, strict=False))
        if len(cells) < len(nics):
            topology.warnings.append(f"row {label} is cut off after {len(cells)} of {len(nics)} NICs")
        affinity = _affinity(row, header)
        topology.cpus[gpu] = affinity.get("cpu")
        topology.numa[gpu] = _numa_number(affinity.get("numa"))
        if topology.numa[gpu] is None and re.fullmatch(r"\d+(?:[-,]\d+)+", affinity.get("numa") or ""):
            topology.warnings.append(
                f"{label} has affinity to several NUMA nodes ({affinity['numa']}): taken as unknown"
            )
    for nic in nics:
        cut = [row for row in rows if row.label == nic]
        if not cut or len(cut[0].cells) < len(header.columns):
            have = len(cut[0].cells) if cut else 0
            topology.warnings.append(
                f"row {nic} is cut off: {have} of {len(header.columns)} cells; the GPU block is whole"
            )
    return topology


def _read_matrix(lines: list[str], where: str) -> tuple[_Header, list[_Row], list[str]]:
    """The one matrix of the text: its header, its rows, and what to warn of. Peer-access matrices are set aside."""
    headers: list[tuple[int, _Header]] = []
    rows: list[_Row] = []
    peers: list[int] = []
    labels: set[str] = set()
    for number, line in enumerate(lines, 1):
        if re.search(r"GPU\d+GPU\d+", line):
            raise refuse(
                "the header is glued: columns run into each other",
                f"{where}, line {number}",
                line.strip()[:60],
            )
        row = _as_row(line, labels, number)
        if row is None and re.search(r"\bGPU\d+\s+(?:OK|CNS|GNS|TNS|NS|DR|U|NOK)\b", line):
            peers.append(number)
        elif row is not None:
            if row.broken in _PEER_WORDS:
                peers.append(number)
            rows.append(row)
        elif (found := _as_header(line)) is not None:
            headers.append((number, found))
            labels |= set(found.columns)
    warnings: list[str] = []
    ends = [*(number for number, _ in headers[1:]), 1 << 60][: len(headers)]
    blocks = [
        (head, [r for r in rows if begin < r.line < end], any(begin < n < end for n in peers), begin)
        for (begin, head), end in zip(headers, ends, strict=True)
    ]
    matrices = [block for block in blocks if not block[2]]
    if blocks and not matrices:
        raise refuse(
            "this is a peer-access matrix (`nvidia-smi topo -p2p`), not a topology: it says which copies are allowed, "
            "not which link they take",
            f"{where}, line {peers[0]}",
            next_step="run `nvidia-smi topo -m`",
        )
    if not matrices:
        seen = [row for row in rows if _GPU.fullmatch(row.label) and row.cells]
        if seen:
            raise refuse("the header of the matrix is missing", where, f"{len(seen)} rows without a header")
        raise refuse(
            "there is no topology matrix in this text", where, required="a header GPU0 GPU1 ... and its rows"
        )
    if len(matrices) < len(blocks):
        warnings.append("a peer-access matrix (topo -p2p) beside it was not used: it names no links")
    header, own, _, _ = matrices[0]
    if len(matrices) > 1:
        content = [
            (other.columns, [(row.label, row.cells) for row in its_rows])
            for other, its_rows, _, _ in matrices
        ]
        if any(other != content[0] for other in content[1:]):
            at = ", ".join(str(block[3]) for block in matrices)
            raise refuse(
                "two different matrices are glued together", f"{where}, headers at lines {at}",
                next_step="give one matrix",
            )  # fmt: skip
        warnings.append("the same matrix is there more than once; read once")
    return header, own, warnings


def _as_header(line: str) -> _Header | None:
    first = re.search(r"(?<![\w.])GPU\d+(?!\w)", line)
    if first is None:
        return None
    text = line[first.start() :]
    positions: dict[str, int] = {}
    for title, name in _AFFINITY:
        if found := re.search(title.replace(" ", r"\s+"), text, re.I):
            positions[name] = len(text[: found.start()].expandtabs(8)) if "\t" not in line else found.start()
            text = (
                text[: found.start()]
                + _AFFINITY_TOKEN[name].ljust(found.end() - found.start())
                + text[found.end() :]
            )
    tokens = text.split()
    columns, tail = [], []
    for token in tokens:
        if token.startswith("\x01"):
            tail.append(token[1:])
        elif tail or not re.fullmatch(r"[A-Za-z][\w.:-]*", token):
            return None  # words after the affinities, or no label: prose
        else:
            columns.append(token)
    gpus = [c for c in columns if _GPU.fullmatch(c)]
    if (
        not gpus
        or (len(columns) > 1 and _LINK.fullmatch(columns[1]))
        or (len(columns) == 1 and not tail and line.strip() != columns[0])
    ):
        return None
    if any(c in _PEER_WORDS for c in columns):
        return None
    if len(gpus) < len(columns) and not tail and not all(re.search(r"\d", c) for c in columns):
        return None  # a sentence that begins with a GPU's name
    return _Header(columns, tail, positions, bool(re.search(r"GPU\d+ {2,}|\S {2,}\S", line)))


def _as_row(line: str, labels: set[str], number: int) -> _Row | None:
    """A row of the matrix: a label, then links. What stands before the label (a prompt, a log prefix) is skipped."""
    others = "|".join(
        re.escape(label) for label in sorted(labels, key=len, reverse=True) if not _GPU.fullmatch(label)
    )
    name = rf"GPU\d{{1,4}}|{others}" if others else r"GPU\d{1,4}"
    found = re.search(
        rf"(?<![\w.])({name})(?=[ \t]+(?:X|NV\d+|SYS|NODE|PHB|PXB|PIX|SOC|PSB|C2C)(?![\w])|\s*$)", line
    )
    if found is None:
        return None
    label, at = found.group(1), found.end()
    if not line[at:].strip() and (not labels or re.search(r"GPU\d", line[: found.start()])):
        return None  # one word alone before any header (a header of one GPU, perhaps), or the end of a header
    cells: list[str] = []
    broken = None
    while token := re.compile(r"[ \t]+(\S+)").match(line, at):
        if not _LINK.fullmatch(token.group(1)):
            broken = token.group(1)
            break
        cells.append(token.group(1))
        at = token.end()
    rest = line[at:]
    if broken is not None and re.fullmatch(r"[\d,\-]+|N/A", broken):
        broken = None
    return _Row(label, cells, rest, at - found.start(1) - 8, broken, number)


def _one_row_each(rows: list[_Row], gpus: list[str], where: str) -> dict[str, _Row]:
    by_label: dict[str, _Row] = {}
    for row in rows:
        if row.label in by_label:
            raise refuse(
                f"row {row.label} is there twice: matrices are glued together", f"{where}, line {row.line}"
            )
        if _GPU.fullmatch(row.label) and row.label not in gpus:
            raise refuse(
                f"row {row.label} has no column: the header is cut off", f"{where}, line {row.line}",
                f"{len(gpus)} GPU columns",
            )  # fmt: skip
        by_label[row.label] = row
    return by_label


def _check_square(by_label: dict[str, _Row], gpus: list[str], header: _Header, where: str) -> None:
    whole = [g for g in gpus if g in by_label and len(by_label[g].cells) >= len(gpus)]
    if len(whole) < len(gpus):
        seen = sum(1 for g in gpus if g in by_label)
        missing = [g for g in gpus if g not in whole]
        cut = next((by_label[g] for g in missing if g in by_label), None)
        at = f"{where}, line {cut.line}" if cut is not None else where
        looks = _first_look([by_label[g] for g in whole], len(gpus))
        raise refuse(
            f"the matrix is not square: it is cut off ({looks})"
            if looks
            else "the matrix is not square: it is cut off",
            at,
            f"{len(gpus)} GPU columns, {seen} GPU rows of which {len(whole)} are whole (not {', '.join(missing[:8])})",
            f"{len(gpus)} whole rows",
        )
    for index, gpu in enumerate(gpus):
        row = by_label[gpu]
        at = f"{where}, line {row.line}"
        if re.search(r"GPU\d", row.rest):
            raise refuse(f"row {gpu} is glued to the next", at, row.rest.strip()[:60])
        if len(row.cells) > len(header.columns):
            raise refuse(
                f"row {gpu} has more cells than the header has columns: rows or columns are glued", at,
                f"{len(row.cells)} cells", f"{len(header.columns)}",
            )  # fmt: skip
        if (
            row.broken is not None
            and len(row.cells) < len(header.columns)
            and not re.match(r"[\d,\-]+$|N/A", row.broken)
        ):
            is_cut = any(name.startswith(row.broken) for name in (*PCIE_CLASSES, "NV", "N/A"))
            if not is_cut:
                raise refuse(
                    f"row {gpu} holds a cell that is no link class",
                    at,
                    row.broken[:40],
                    "X, NV#, " + ", ".join(PCIE_CLASSES),
                )
        if row.cells[index] != "X" or row.cells[: len(gpus)].count("X") != 1:
            raise refuse(
                f"row {gpu} does not cross its own column at X: cells have shifted",
                at,
                " ".join(row.cells[: len(gpus)])[:80],
            )


def _first_look(rows: list[_Row], count: int) -> str:
    cells = {cell for row in rows for cell in row.cells[:count] if cell != "X"}
    if rows and cells and all(cell.startswith("NV") for cell in cells):
        return (
            f"what is there looks like a full {'/'.join(sorted(cells))} mesh, which half a matrix cannot show"
        )
    if rows and cells and not any(cell.startswith("NV") for cell in cells):
        return "what is there shows no NVLink, which half a matrix cannot show"
    return ""


def _affinity(row: _Row, header: _Header) -> dict[str, str | None]:
    """CPU and NUMA affinity of a row; a blank cell stays blank and shifts nothing."""
    found: dict[str, str | None] = dict.fromkeys(header.tail)
    if not header.tail:
        return found
    cells = [cell.strip() for cell in row.rest.split("\t")]
    if "\t" in row.rest and not any(re.search(r"\S\s+\S", cell) for cell in cells):
        values = cells[1:]
        for index, name in enumerate(header.tail[:2]):
            if index < len(values) and values[index]:
                found[name] = values[index]
        if len(header.tail) == 2 and not found[header.tail[1]]:
            # Older drivers put one tab too many between CPU and NUMA affinity.
            found[header.tail[1]] = next((value for value in values[1:] if value), None)
        return {name: None if value in (None, "", "N/A") else value for name, value in found.items()}
    tokens = [(m.start() + row.rest_at, m.group()) for m in re.finditer(r"\S+", row.rest)]
    tokens = [(at, token) for at, token in tokens if re.fullmatch(r"[\d,\-]+|N/A", token)]
    if len(tokens) >= len(header.tail):
        for name, (_, token) in zip(header.tail, tokens, strict=False):
            found[name] = token
    else:
        # A blank cell is one tab, narrower than its title, so what follows does not stand under its own title. The last
        # column is never blank; of the others a range is a CPU list, and a number alone is one only under that title.
        if tokens and header.tail[-1] == "gpu_numa":
            found["gpu_numa"] = tokens.pop()[1]
        for at, token in tokens:
            is_under = "cpu" in header.positions and abs(header.positions["cpu"] - at) <= 2
            name = "cpu" if "-" in token or "," in token or (is_under and header.is_aligned) else "numa"
            if name in found:
                found[name] = token
    return {name: None if value == "N/A" else value for name, value in found.items()}


def _numa_number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,4}", text) else None


def _nic_legend(lines: Iterable[str], nics: list[str]) -> dict[str, str]:
    names = {}
    for line in lines:
        if (found := re.fullmatch(r"\W*(NIC\d+)\s*:\s*(\S+)", line)) and found.group(1) in nics:
            names[found.group(1)] = found.group(2)
    return names


def _mig_gpus(lines: list[str]) -> set[int]:
    """GPUs that the text shows cut into MIG devices (`nvidia-smi -L`, or the MIG table of `nvidia-smi`)."""
    found: set[int] = set()
    gpu: int | None = None
    in_table = False
    for line in lines:
        if listed := re.match(r"\W*GPU (\d{1,4}):", line):
            gpu = int(listed.group(1))
        elif re.match(r"\s+MIG \S+\s+Device\s+\d+:", line) and gpu is not None:
            found.add(gpu)
        in_table = in_table or "MIG devices:" in line
        if in_table and (row := re.match(r"\|\s+(\d{1,4})\s+\d+\s+\d+\s+\d+\s+\|", line)):
            found.add(int(row.group(1)))
        if in_table and "Processes:" in line:
            in_table = False
    return found
