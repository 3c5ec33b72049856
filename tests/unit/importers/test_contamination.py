"""Rows of one server against each other and against metrics dumps; the h200 files were measured for this."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.errors import BadInput
from flows.importers import read_files

FILES = Path(__file__).resolve().parents[2] / "fixtures" / "results"
BENCHES = [FILES / f"bench-c{concurrency}.json" for concurrency in (1, 32, 128)]
BEFORE, AFTER = FILES / "h200-metrics0.txt", FILES / "h200-metrics1.txt"


def test_the_default_seed_explains_the_engines_hits() -> None:
    (rows,), _ = read_files(BENCHES, metrics_before=BEFORE, metrics_after=AFTER)
    by_concurrency = {row.figure("asked_concurrency"): row.evidence for row in rows}
    # 135,600 of 659,456 prompt tokens; the same prompts in every row predict 4 x 1,024 + 128 x 1,024 = 135,168.
    assert by_concurrency[1]["span_cached_share"] == pytest.approx(0.2056, abs=1e-4)
    assert by_concurrency[1]["is_repeat_confirmed"] is False
    assert by_concurrency[32]["attributed_cached_share"] == pytest.approx(4 / 128)
    assert by_concurrency[128]["attributed_cached_share"] == pytest.approx(128 / 512)
    assert by_concurrency[128]["ttft_inversion"] is True


def test_without_dumps_the_repeat_is_only_a_note() -> None:
    (rows,), _ = read_files(BENCHES)
    assert not any("is_repeat_confirmed" in row.evidence for row in rows)
    assert [bool(row.evidence.get("repeated_prompt_share")) for row in rows] == [False, True, True]


def test_dumps_that_span_more_than_a_small_row_say_little_of_it() -> None:
    (rows,), _ = read_files(BENCHES[:1], metrics_before=BEFORE, metrics_after=AFTER)
    assert rows[0].evidence["span_is_own"] is False


def test_a_row_that_is_most_of_the_span_has_its_hits() -> None:
    (rows,), _ = read_files(BENCHES[2:], metrics_before=BEFORE, metrics_after=AFTER)
    assert rows[0].evidence["span_is_own"] is True
    assert rows[0].evidence["span_cached_share"] > 0.01


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (BEFORE, None, "other half"),
        (AFTER, BEFORE, "falls from the dump before"),
        (BENCHES[0], AFTER, "no metric"),
    ],
)
def test_dumps_that_cannot_be_a_difference_are_refused(before: Path, after: Path | None, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_files(BENCHES, metrics_before=before, metrics_after=after)
