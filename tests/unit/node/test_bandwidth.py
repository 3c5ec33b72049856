"""Measured bandwidths confirm the islands that a topology names, or deny them. Matrices are made up."""

from __future__ import annotations

import sys

import pytest

from flows.node.bandwidth import confirm_islands, islands_from_bandwidth, main, measure_apart
from flows.node.read import add_bandwidth

QUADS = [[0, 1, 2, 3], [4, 5, 6, 7]]


def matrix(gpus: int, rate) -> list[list[float | None]]:
    return [[None if a == b else rate(a, b) for b in range(gpus)] for a in range(gpus)]


def two_quads(a: int, b: int) -> float:
    return 380.0 + a if a // 4 == b // 4 else 42.0 - b


def test_two_quads_show_in_their_bandwidths() -> None:
    found = islands_from_bandwidth(matrix(8, two_quads))
    assert found["islands"] == QUADS
    assert found["fast_gb_s"] == 380.0
    assert found["slow_gb_s"] == 38.0  # pair (0, 4): 42 - 4 one way, 42 - 0 back; the slower way counts


def test_topology_is_confirmed_or_denied() -> None:
    assert confirm_islands(QUADS, matrix(8, two_quads))["is_confirmed"] is True
    one_island = confirm_islands([list(range(8))], matrix(8, two_quads))
    assert one_island["is_confirmed"] is False
    assert len(one_island["slow_inside"]) == 16
    denied = confirm_islands(QUADS, matrix(8, lambda a, b: 400.0))
    assert denied["is_confirmed"] is False
    assert len(denied["fast_across"]) == 16


def test_one_slow_link_inside_an_island_is_named() -> None:
    found = confirm_islands(QUADS, matrix(8, lambda a, b: 20.0 if {a, b} == {1, 2} else two_quads(a, b)))
    assert found["is_confirmed"] is False
    assert found["slow_inside"] == [[1, 2]]


def test_pairs_that_were_not_measured_confirm_nothing() -> None:
    found = confirm_islands([[0, 1]], [[None, 300.0, None], [300.0, None, 20.0], [None, 20.0, None]])
    assert found["is_confirmed"] is None
    assert found["pairs_not_measured"] == 1
    assert confirm_islands([[0, 1]], [[None, None], [None, None]])["is_confirmed"] is None


@pytest.mark.parametrize(("rate", "islands"), [(24.0, []), (55.0, []), (370.0, [[0, 1, 2, 3]])])
def test_where_all_pairs_are_alike_pcie_s_own_limit_decides(rate: float, islands: list[list[int]]) -> None:
    assert islands_from_bandwidth(matrix(4, lambda a, b: rate))["islands"] == islands


def test_unequal_nvlinks_of_one_mesh_are_one_island() -> None:
    assert islands_from_bandwidth(matrix(4, lambda a, b: 90.0 if (a + b) % 2 else 46.0))["islands"] == [
        [0, 1, 2, 3]
    ]


def test_no_gpus_no_islands() -> None:
    assert islands_from_bandwidth([])["islands"] == []
    assert islands_from_bandwidth([[None]])["islands"] == []


def test_without_torch_and_cuda_the_script_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["--json"]) == 1
    assert "needs torch and a CUDA device" in capsys.readouterr().err


def test_measured_bandwidths_enter_the_node_s_facts() -> None:
    facts = {"islands": [list(range(8))], "gpu_ids": list(range(8)), "warnings": []}
    add_bandwidth(facts, {"copy_gb_s": matrix(8, two_quads), "send_gb_s": None})
    assert facts["is_islands_confirmed"] is False
    assert "measured bandwidths show islands [[0, 1, 2, 3], [4, 5, 6, 7]]" in facts["warnings"][0]
    confirmed = {"islands": QUADS, "gpu_ids": list(range(8)), "warnings": []}
    add_bandwidth(confirmed, {"copy_gb_s": matrix(8, two_quads), "send_gb_s": matrix(8, two_quads)})
    assert (confirmed["is_islands_confirmed"], confirmed["warnings"]) == (True, [])
    unmeasured = {"islands": QUADS, "warnings": [], "is_islands_confirmed": None}
    add_bandwidth(unmeasured, None)
    assert unmeasured["is_islands_confirmed"] is None
    assert "could not be measured" in unmeasured["warnings"][0]


def test_measuring_apart_gives_nothing_where_it_cannot() -> None:
    assert measure_apart(python="/nonexistent/python") is None
