"""Gaps between chunks, read in bulk and reduced exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.warehouse import gaps

LISTS = st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=6), max_size=8)


@pytest.fixture(autouse=True, params=[0, 32 << 10], ids=["bulk", "small"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test reads in bulk, and as few gaps are read."""
    monkeypatch.setattr(gaps, "SMALL_BYTES", request.param)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LISTS)
def test_reading_gives_the_lists_back(lists: list[list[int]]) -> None:
    texts = [str(one).encode() for one in lists]
    found = gaps.read_gaps(texts)
    assert found.counts.tolist() == [len(one) for one in lists]
    assert found.values.tolist() == [gap for one in lists for gap in one]


@pytest.mark.parametrize(
    "text", [b"[1.5]", b'["1"]', b"[[1]]", b"[null]", b"[true]", b"{}", b"1", b"[1e3]", b"null"]
)
def test_what_is_no_list_of_integers_is_refused_by_its_row(text: bytes) -> None:
    with pytest.raises(gaps.GapsUnreadable) as refused:
        gaps.read_gaps([b"[1,2]", text])
    assert refused.value.row == 1


def test_reductions_leave_out_the_first_gap_where_they_should() -> None:
    found = gaps.per_request(gaps.read_gaps([b"[100,3,5]", b"[]", b"[7]", b"[9,-2,4]"]))
    assert found["gap_count"].to_pylist() == [3, 0, 1, 3]
    assert found["gap_sum_ns"].to_pylist() == [108, 0, 7, 11]
    assert found["gap_min_ns"].to_pylist() == [3, None, None, -2]
    assert found["gap_max_ns"].to_pylist() == [5, None, None, 4]
    assert found["gap_negative_count"].to_pylist() == [0, 0, 0, 1]


def test_between_chunks_takes_wanted_requests_without_their_first_gap() -> None:
    read = gaps.read_gaps([b"[100,3,5]", b"[7,8]", b"[9,1]"])
    assert gaps.between_chunks(read, np.array([True, False, True])).tolist() == [3, 5, 1]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50))
def test_percentiles_are_those_of_linear_interpolation(values: list[int]) -> None:
    found = gaps.percentiles(np.array(values, np.int64))
    for name, q in gaps.PERCENTILES.items():
        assert found[name] == pytest.approx(float(np.quantile(values, q)), rel=1e-12, abs=1e-6)


def test_no_values_have_no_percentiles() -> None:
    assert gaps.percentiles(np.empty(0, np.int64)) == {"p50": None, "p90": None, "p99": None}
