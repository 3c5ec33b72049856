"""Pasted topologies are read whole or refused. Expected values: the public cases' own answers, or worked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.node.islands import find_islands, split_disjoint, tensor_parallel_warning
from flows.node.links import RefusedTopology
from flows.node.report import describe_topology
from flows.node.topology import parse_topology

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "node" / "topology"

# name: islands, island_link, between, numa (ANSWERS of the public cases)
PUBLIC = {
    "01": ([[0, 1, 2, 3, 4, 5, 6, 7]], "NV18", None, {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}),
    "02": ([], None, "SYS", {"0": [0, 1], "1": [2, 3]}),
    "03": ([[0, 1], [2, 3]], "NV12", "SYS", {"0": [0], "1": [1], "2": [2], "3": [3]}),
    "05": ([[0, 1], [2, 3], [4, 5], [6, 7]], "NV12", "SYS", {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}),
    "08": ([[0, 1, 2, 3]], "NV6", None, {"1": [1], "3": [0], "5": [3], "7": [2]}),
    "10": ([[0, 1, 2, 3]], "NV18", None, {"0": [0], "1": [1, 2, 3]}),
    "11": ([[0, 1, 2, 3, 4, 5, 6, 7]], "NV18", None, {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}),
    "12": ([[0, 1, 2, 3], [4, 5, 6, 7]], "XGMI", "PCIE", {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}),
    "13": ([], None, None, None),
    "14": ([[0, 1, 2, 3]], "NV4", None, {"0": [3], "1": [2], "2": [1], "3": [0]}),
    "16": ([[0, 1]], "NV3", None, None),
    "17": ([[0, 1, 2, 3]], "NV18", None, {"0": [0, 1], "1": [2, 3]}),
    "18": ([[0, 1]], "NV12", None, None),
    "22": ([], None, "PHB", {"0": [0, 1]}),
}
REFUSED = {"06": "not square", "20": "peer-access", "21": "not square"}


def read(text: str) -> dict:
    return describe_topology(parse_topology(text))


def fixture(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text()


def core(facts: dict) -> tuple:
    return facts["islands"], facts["island_link"], facts["between"], facts["numa"]


@pytest.mark.shared_cases
@pytest.mark.parametrize("number", PUBLIC)
def test_public_topology_gives_its_answer(shared_cases: Path, number: str) -> None:
    (path,) = (shared_cases / "topology").glob(f"{number}-*")
    facts = read(path.read_text())
    assert core(facts) == PUBLIC[number]
    assert facts["gpus"] == len(facts["gpu_ids"])


@pytest.mark.shared_cases
@pytest.mark.parametrize("number", REFUSED)
def test_public_topology_that_is_no_whole_matrix_is_refused(shared_cases: Path, number: str) -> None:
    (path,) = (shared_cases / "topology").glob(f"{number}-*")
    with pytest.raises(RefusedTopology, match=REFUSED[number]) as caught:
        read(path.read_text())
    assert caught.value.exit_code == 2
    assert caught.value.next_step


@pytest.mark.shared_cases
def test_every_public_topology_has_an_answer_here(shared_cases: Path) -> None:
    assert {path.name[:2] for path in (shared_cases / "topology").iterdir()} == PUBLIC.keys() | REFUSED.keys()


@pytest.mark.shared_cases
def test_public_details_of_nics_pairs_and_warnings(shared_cases: Path) -> None:
    def of(number: str) -> dict:
        return read(next((shared_cases / "topology").glob(f"{number}-*")).read_text())

    nearest = {gpu: entry["nics"] for gpu, entry in of("01")["nearest_nics"].items()}
    assert nearest == {
        "0": ["NIC3"], "1": ["NIC5"], "2": ["NIC4"], "3": ["NIC0", "NIC1", "NIC2"], "4": ["NIC7"], "5": ["NIC9"],
        "6": ["NIC8"], "7": ["NIC6"],
    }  # fmt: skip
    assert of("02")["pairs_between"] == {
        "PXB": [[0, 1]], "PIX": [[2, 3]], "SYS": [[0, 2], [0, 3], [1, 2], [1, 3]],
    }  # fmt: skip
    assert any("NIC1 is cut off" in warning for warning in of("05")["warnings"])
    assert any("island [0, 1] crosses NUMA" in warning for warning in of("03")["warnings"])
    assert of("18")["nearest_nics"]["0"] == {"link": "PXB", "nics": ["NIC6", "NIC7"]}
    assert of("10")["cpu_affinity"] == {"0": "44-51,148-155", "1": None, "2": None, "3": None}
    assert of("08")["cpu_affinity"]["0"] == "6,14,22,30"


def test_two_quads_are_two_islands_joined_by_the_socket_link() -> None:
    facts = read(fixture("two_quads"))
    assert core(facts) == (
        [[0, 1, 2, 3], [4, 5, 6, 7]], "NV18", "SYS", {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]},
    )  # fmt: skip
    assert facts["nearest_nics"]["0"] == {"link": "PIX", "nics": ["NIC0"]}
    assert facts["nic_names"] == {"NIC0": "mlx5_0", "NIC1": "mlx5_1"}
    assert any("passthrough" in warning for warning in facts["warnings"])
    assert not any("NUMA" in warning for warning in facts["warnings"])


def test_hybrid_cube_mesh_is_two_quads_and_four_pairs_never_one_island() -> None:
    facts = read(fixture("hybrid_cube_mesh"))
    assert facts["islands"] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 4], [1, 5], [2, 6], [3, 7]]
    assert facts["islands_overlap"] is True
    assert facts["disjoint_islands"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert facts["between"] == "SYS"
    assert facts["island_link"] == "NV1"
    assert any("overlap" in warning for warning in facts["warnings"])


def test_without_nvlink_there_are_no_islands_and_each_class_keeps_its_pairs() -> None:
    facts = read(fixture("pcie_only"))
    assert core(facts) == ([], None, "SYS", {"0": [0, 1, 2], "1": [3, 4, 5]})
    assert facts["pairs_between"]["PIX"] == [[0, 1], [3, 4]]
    assert len(facts["pairs_between"]["SYS"]) == 9
    assert any("peer copies run over PCIe" in warning for warning in facts["warnings"])


def test_blank_affinity_cells_shift_no_column() -> None:
    facts = read(fixture("blank_affinity_spaces"))
    assert core(facts) == ([[0, 1], [2, 3]], "NV12", "NODE", {"1": [3]})
    assert facts["cpu_affinity"] == {"0": "0-7", "1": None, "2": None, "3": None}
    assert any("NUMA node of GPUs [0, 1, 2] is not said" in warning for warning in facts["warnings"])


def test_a_card_without_a_bridge_is_in_no_island() -> None:
    facts = read(fixture("consumer_bridge"))
    assert core(facts) == ([[1, 2]], "NV4", "PHB", None)
    assert facts["unlinked_gpus"] == [0]


def test_cut_nic_rows_warn_and_cut_gpu_rows_refuse() -> None:
    facts = read(fixture("nic_rows_cut"))
    assert facts["islands"] == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert any("mlx5_2 is cut off" in warning for warning in facts["warnings"])
    assert any("mlx5_3 is cut off: 0" in warning for warning in facts["warnings"])
    with pytest.raises(RefusedTopology, match=r"not square.*full NV18 mesh") as caught:
        read(fixture("gpu_rows_cut"))
    assert "8 GPU columns, 7 GPU rows of which 6 are whole" in str(caught.value)


def test_peer_matrix_is_refused_by_what_it_is() -> None:
    with pytest.raises(RefusedTopology, match="peer-access matrix"):
        read(fixture("peer_matrix"))


def test_a_peer_matrix_beside_a_topology_is_set_aside() -> None:
    both = fixture("consumer_bridge") + "\n### topo -p2p rw\n\n" + fixture("peer_matrix")
    facts = read(both)
    assert facts["islands"] == [[1, 2]]
    assert any("peer-access matrix" in warning for warning in facts["warnings"])
    assert read(fixture("peer_matrix") + both)["islands"] == [[1, 2]]


def test_the_pcie_only_matrix_cannot_show_islands() -> None:
    with pytest.raises(RefusedTopology, match="leaves NVLink out"):
        read("$ nvidia-smi topo -mp\n" + fixture("pcie_only"))
    without_nv = "\n".join(line for line in fixture("pcie_only").split("\n") if "NV#" not in line)
    assert any("PCIe-only" in warning for warning in read(without_nv)["warnings"])
    assert not any("PCIe-only" in warning for warning in read(fixture("pcie_only"))["warnings"])


def test_weaker_links_bound_their_island() -> None:
    facts = read(
        "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\tX\tNV18\tNV16\t0-3\t0\t\tN/A\nGPU1\tNV18\tX\tNV16\t0-3\t0\t\tN/A\n"
        "GPU2\tNV16\tNV16\tX\t0-3\t0\t\tN/A\n"
    )
    assert (facts["islands"], facts["island_link"]) == ([[0, 1, 2]], "NV16")
    assert any("unequal links" in warning for warning in facts["warnings"])


def test_old_headers_with_device_names_and_no_numa_are_read() -> None:
    facts = read(
        "\tGPU0\tGPU1\tmlx5_0\tmlx4_1\tCPU Affinity\nGPU0\t X \tSOC\tPHB\tSOC\t0-9,20-29\n"
        "GPU1\tSOC\t X \tSOC\tPHB\t10-19,30-39\nmlx5_0\tPHB\tSOC\t X \tSOC\t\nmlx4_1\tSOC\tPHB\tSOC\t X \t\n"
        "\nLegend:\n\n  X   = Self\n  SOC = Path traverses a socket-level link (e.g. QPI)\n"
    )
    assert core(facts) == ([], None, "SOC", None)
    assert facts["nearest_nics"]["1"] == {"link": "PHB", "nics": ["mlx4_1"]}
    assert facts["cpu_affinity"] == {"0": "0-9,20-29", "1": "10-19,30-39"}


def test_a_numa_range_is_no_place() -> None:
    text = fixture("consumer_bridge").replace("0-23    N/A", "0-23    0-1")
    facts = read(text)
    assert facts["numa"] is None
    assert any("several NUMA nodes (0-1)" in warning for warning in facts["warnings"])


def test_a_mig_gpu_is_in_no_island_whatever_the_matrix_says() -> None:
    facts = read(fixture("mig"))
    assert facts["mig_gpus"] == [0]
    assert facts["islands"] == [[1, 2]]
    assert any("MIG" in warning for warning in facts["warnings"])


def test_amd_link_types_decide_and_weights_alone_are_refused() -> None:
    assert core(read(fixture("mi300x"))) == (
        [[0, 1, 2, 3, 4, 5, 6, 7]], "XGMI", None, {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]},
    )  # fmt: skip
    assert core(read(fixture("mi210_pairs"))) == ([[0, 1], [2, 3]], "XGMI", "PCIE", None)
    assert core(read(fixture("amd_smi"))) == ([[0, 1]], "XGMI", None, None)
    with pytest.raises(RefusedTopology, match="link types is missing"):
        read(fixture("rocm_no_link_types"))
    with pytest.raises(RefusedTopology, match="not square"):
        read(fixture("rocm_cut"))


def test_amd_json_is_read() -> None:
    text = """{"system": {"(Topology) Link type between DRM devices 0 and 1": "XGMI",
        "(Topology) Link type between DRM devices 0 and 2": "PCIE",
        "(Topology) Link type between DRM devices 1 and 2": "PCIE"},
        "card0": {"(Topology) Numa Node": "0", "(Topology) Numa Affinity": "0"}, "card1": {"(Topology) Numa Node": "0"},
        "card2": {"(Topology) Numa Node": "1"}}"""
    assert core(read(text)) == ([[0, 1]], "XGMI", "PCIE", {"0": [0, 1], "1": [2]})


def _as_markdown(text: str) -> str:
    lines = text.split("\n\n")[0].split("\n")
    rows = [
        "| " + " | ".join(cell.strip() for cell in line.split("\t") if cell or i == 0) + " |"
        for i, line in enumerate(lines)
    ]
    return "\n".join([rows[0], "|---" * 13 + "|", *rows[1:]]) + "\n"


def _prefixed(text: str, prefix: str) -> str:
    return "\n".join(prefix + line for line in text.split("\n"))


@pytest.mark.parametrize(
    "paste",
    [
        pytest.param(lambda t: t.replace("\n", "\r\n"), id="crlf"),
        pytest.param(lambda t: "```text\n" + t + "\n```", id="fence"),
        pytest.param(lambda t: _prefixed(t, "> "), id="quoted"),
        pytest.param(lambda t: _prefixed(t, "    "), id="indented"),
        pytest.param(lambda t: _prefixed(t, "(worker pid=12) "), id="log-prefix"),
        pytest.param(lambda t: _prefixed(t, "2025-01-31 10:11:12 node1 "), id="stamped"),
        pytest.param(lambda t: "root@host:~# nvidia-smi topo -m\n" + t + "root@host:~#\n", id="prompt"),
        pytest.param(
            lambda t: "My GPU0 is fine.\nHere is the topology of GPU0 to GPU7:\n" + t + "\nWhy SYS?",
            id="prose",
        ),
        pytest.param(lambda t: t.expandtabs(8), id="tabs-expanded"),
        pytest.param(lambda t: "\ufeff" + t, id="bom"),
        pytest.param(lambda t: t.replace("\t", "\u00a0\u00a0"), id="no-break-spaces"),
        pytest.param(lambda t: t + "\n\n" + t, id="printed-twice"),
        pytest.param(_as_markdown, id="markdown-table"),
        pytest.param(lambda t: t.replace("\x1b", ""), id="escape-lost"),
    ],
)
def test_the_way_it_was_pasted_does_not_matter(paste) -> None:
    facts = read(paste(fixture("two_quads")))
    assert core(facts) == core(read(fixture("two_quads")))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(lambda t: t.replace("GPU0\tGPU1", "GPU0GPU1"), "glued", id="glued-header"),
        pytest.param(lambda t: t.replace("\nGPU3\t", " GPU3\t"), "glued|not square", id="glued-rows"),
        pytest.param(lambda t: t + t.replace("NV18", "NV6"), "two different matrices", id="two-matrices"),
        pytest.param(lambda t: t.replace("\nGPU3\tNV18", "\nGPU3\tSYS", 1), "contradicts itself", id="halves-differ"),
        pytest.param(lambda t: "\n".join(line for line in t.split("\n") if not line.startswith("GPU5")), "not square", id="row-lost"),
        pytest.param(lambda t: t.split("\n", 1)[1], "header of the matrix is missing", id="header-lost"),
        pytest.param(lambda t: t.replace("\tGPU7", "", 1), "no column|more cells|cross its own", id="column-lost"),
        pytest.param(lambda t: t.replace("\nGPU2\tNV18\tNV18\t X ", "\nGPU2\tNV18\t X \tNV18"), "own column", id="shifted"),
        pytest.param(lambda t: "", "no topology matrix", id="empty"),
        pytest.param(lambda t: "GPU 0: NVIDIA H200", "no topology matrix", id="another-command"),
        pytest.param(lambda t: t.replace("\nGPU6", "\nGPU5", 1), "twice", id="row-twice"),
    ],
)  # fmt: skip
def test_a_spoilt_matrix_is_refused_with_the_reason(spoil, reason: str) -> None:
    with pytest.raises(RefusedTopology, match=reason):
        read(spoil(fixture("two_quads")))


def test_every_cut_of_a_matrix_is_refused_or_keeps_its_islands() -> None:
    text = fixture("two_quads")
    whole = read(text)["islands"]
    end_of_gpu_block = text.index("\nNIC0")
    for length in range(0, len(text), 7):
        try:
            islands = read(text[:length])["islands"]
        except RefusedTopology:
            assert length < end_of_gpu_block
        else:
            assert islands == whole


def test_single_gpu_is_read() -> None:
    facts = read("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\t0\t\tN/A\n")
    assert (facts["gpus"], core(facts)) == (1, ([], None, None, {"0": [0]}))


def test_islands_are_maximal_cliques() -> None:
    assert find_islands(range(3), [(0, 1), (1, 2)]) == [[0, 1], [1, 2]]
    assert find_islands(range(4), [(0, 1), (1, 2), (0, 2)]) == [[0, 1, 2]]
    assert split_disjoint([[0, 1], [1, 2], [2, 3]]) == [[0, 1], [2, 3]]


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=28))
@settings(max_examples=60, deadline=None)
def test_every_pair_of_an_island_is_linked_and_no_gpu_could_join_it(pairs: set[tuple[int, int]]) -> None:
    linked = {(min(p), max(p)) for p in pairs if p[0] != p[1]}
    islands = find_islands(range(8), linked)
    covered = {(a, b) for island in islands for a in island for b in island if a < b}
    assert covered == linked
    for island in islands:
        outside = set(range(8)) - set(island)
        assert not any(all((min(a, b), max(a, b)) in linked for b in island) for a in outside)


def test_tensor_parallel_group_across_islands_is_warned_of() -> None:
    quads = [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert tensor_parallel_warning(quads, [4, 5, 6, 7]) is None
    assert tensor_parallel_warning(quads, list(range(8)), 4) is None
    assert tensor_parallel_warning(quads, [0]) is None
    assert "[2, 3, 4, 5] crosses islands" in (tensor_parallel_warning(quads, [2, 3, 4, 5]) or "")
    assert "[0, 1, 2, 3, 4, 5, 6, 7]" in (tensor_parallel_warning(quads, list(range(8)), 8) or "")
    assert "no GPU here has NVLink" in (tensor_parallel_warning([], [0, 1]) or "")


_WORDS = st.sampled_from(
    ["GPU0", "GPU1", "GPU2", "NIC0", "X", " X ", "NV18", "NV4", "SYS", "PHB", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID",
     "0-15", "0", "N/A", "\t", "\n", "  ", "XGMI", "PCIE", "=== Link Type between two GPUs ===", "=== Numa Nodes ===",
     "GPU[0]\t: (Topology) Numa Node: 0", "OK", "MIG", "LINK TYPE TABLE:", "0000:0c:00.0", "SELF", "\x1b[4m"]
)  # fmt: skip


@given(
    st.one_of(
        st.text(max_size=300), st.lists(st.one_of(_WORDS, st.text(max_size=3)), max_size=60).map("".join)
    )
)
@settings(max_examples=300, deadline=None)
def test_no_text_crashes_the_reader(text: str) -> None:
    try:
        facts = read(text)
    except RefusedTopology:
        return
    assert facts["gpus"] == len(facts["gpu_ids"])


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_no_edit_of_a_real_matrix_crashes_the_reader(data: st.DataObject) -> None:
    text = fixture(
        data.draw(
            st.sampled_from(["two_quads", "mi300x", "blank_affinity_spaces", "consumer_bridge", "amd_smi"])
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(st.one_of(_WORDS, st.text(max_size=4))) + text[stop:]
    try:
        facts = read(text)
    except RefusedTopology:
        return
    assert all(len(island) > 1 for island in facts["islands"])
