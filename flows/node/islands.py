"""Islands: maximal sets of GPUs in which every pair is linked by NVLink or XGMI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Pair = tuple[int, int]
MAX_ISLANDS = 4096  # a graph that has more is no machine


def pair_of(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def is_fast(link: str) -> bool:
    """Whether a link class is NVLink or XGMI (`NV18`, `XGMI`); chip-to-chip and PCIe classes are not."""
    return link == "XGMI" or (link.startswith("NV") and link[2:].isdigit() and int(link[2:]) > 0)


def find_islands(gpus: Iterable[int], linked: Iterable[Pair]) -> list[list[int]]:
    """Every maximal set of at least two GPUs in which all pairs are in `linked`, largest first.

    Sets may overlap (a hybrid cube mesh has two quads and four pairs across). A GPU without a link is in none.
    """
    neighbours: dict[int, set[int]] = {gpu: set() for gpu in gpus}
    for a, b in linked:
        if a != b and a in neighbours and b in neighbours:
            neighbours[a].add(b)
            neighbours[b].add(a)
    found: list[list[int]] = []
    _grow([], {g for g, near in neighbours.items() if near}, set(), neighbours, found)
    return sorted((sorted(clique) for clique in found), key=lambda clique: (-len(clique), clique))


def _grow(
    clique: list[int],
    candidates: set[int],
    done: set[int],
    neighbours: Mapping[int, set[int]],
    found: list[list[int]],
) -> None:
    """Bron-Kerbosch with pivoting (Tomita et al. 2006): maximal cliques, each once."""
    if not candidates and not done:
        if len(clique) > 1:
            found.append(list(clique))
        return
    if len(found) >= MAX_ISLANDS:
        return
    pivot = max(candidates | done, key=lambda gpu: len(candidates & neighbours[gpu]))
    for gpu in sorted(candidates - neighbours[pivot]):
        _grow([*clique, gpu], candidates & neighbours[gpu], done & neighbours[gpu], neighbours, found)
        candidates = candidates - {gpu}
        done = done | {gpu}


def split_disjoint(islands: Sequence[Sequence[int]]) -> list[list[int]]:
    """A placement of islands that do not overlap: the largest first, then what is whole beside it."""
    taken: set[int] = set()
    kept = []
    for island in islands:
        if not taken & set(island):
            kept.append(list(island))
            taken |= set(island)
    return kept


def overlapping(islands: Sequence[Sequence[int]]) -> list[int]:
    """GPUs that are in more than one island."""
    seen: set[int] = set()
    twice: set[int] = set()
    for island in islands:
        twice |= seen & set(island)
        seen |= set(island)
    return sorted(twice)


def tensor_parallel_warning(
    islands: Sequence[Sequence[int]], gpu_ids: Sequence[int], tensor_parallel: int | None = None
) -> str | None:
    """What to say before a tensor-parallel group starts on GPUs that are not all linked; null when it is fine.

    gpu_ids are cut into groups of `tensor_parallel` (all of them when null), as engines do.
    """
    size = tensor_parallel or len(gpu_ids)
    if size < 2:
        return None
    crossing = []
    for start in range(0, len(gpu_ids) - size + 1, size):
        group = list(gpu_ids[start : start + size])
        if not any(set(group) <= set(island) for island in islands):
            crossing.append(group)
    if not crossing:
        return None
    groups = ", ".join(str(group) for group in crossing)
    if not islands:
        return f"tensor parallel over {groups}: no GPU here has NVLink or XGMI, every all-reduce crosses PCIe"
    return (
        f"tensor parallel over {groups} crosses islands {[list(island) for island in islands]}: "
        f"every all-reduce takes the slow link; replicas inside an island, or gpu_ids from one, avoid it"
    )
