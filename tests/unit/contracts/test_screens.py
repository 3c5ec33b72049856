"""Screens, policies and verdicts as they are written down."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

import pytest

from contracts import generate
from contracts.columns import COLUMNS, MARTS
from contracts.policies import POLICIES, required_screens
from contracts.screens import NAMES, SCREENS
from contracts.screens.steady_state import t_limit
from contracts.verdicts import at_least, at_most, standing, within, worst

ROOT = Path(__file__).resolve().parents[3]


def test_the_screens_are_those_of_the_design_in_its_order() -> None:
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = design.split("## Screens")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| ([a-z_]+) \|", table, re.M))[1:] == NAMES


def test_generated_files_are_current() -> None:
    stale = [
        path
        for path, content in generate.outputs().items()
        if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != content
    ]
    assert stale == [], "run python -m contracts.generate"


def test_every_threshold_has_a_reason_and_a_source_and_reaches_dbt() -> None:
    with (ROOT / "dbt" / "seeds" / "screens.csv").open(encoding="utf-8") as stream:
        seeded = {(row["screen"], row["threshold"]): float(row["value"]) for row in csv.DictReader(stream)}
    for screen in SCREENS.values():
        for one in screen.thresholds:
            assert one.reason
            assert one.source
            assert seeded.pop((screen.name, one.name)) == one.value
    assert seeded == {}


def test_no_screen_model_holds_a_number_of_its_own() -> None:
    for path in (ROOT / "dbt" / "models" / "intermediate" / "screens").glob("*.sql"):
        text = re.sub(r"'[^'\n]*'|--.*", "", path.read_text(encoding="utf-8"))
        numbers = (
            set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?", text)) - set("01234") - {"100"}
        )  # digits to round to, percent
        assert numbers == set(), path.name


def test_original_is_the_published_pair_with_population_and_strict_is_all() -> None:
    assert set(POLICIES["original"]) == {"needle_gate", "cache_screen", "population"}
    assert POLICIES["strict"] == NAMES
    assert required_screens(None) == required_screens("no such") == NAMES


def test_precedence_is_fail_unknown_pass_not_applicable() -> None:
    assert worst(["pass", "unknown", "fail"]) == "fail"
    assert worst(["pass", "unknown", "not_applicable"]) == "unknown"
    assert worst(["not_applicable", "pass"]) == "pass"
    assert worst(["not_applicable"]) == "not_applicable"
    with pytest.raises(ValueError, match="empty"):
        worst([])


def test_standing_is_invalid_then_held_then_provisional_and_nothing_required_publishes_nothing() -> None:
    assert standing(True, ["pass"]) == "invalid"
    assert standing(False, ["unknown", "fail"]) == "held"
    assert standing(False, ["unknown", "pass"]) == "provisional"
    assert standing(False, ["pass", "not_applicable"]) == "publishable"
    assert standing(False, []) == "provisional"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_fails_and_what_is_missing_is_unknown(bad: float) -> None:
    assert at_most(bad, 1) == at_least(bad, 1) == within(bad, 0, 1) == "fail"
    assert at_most(None, 1) == at_least(None, 1) == within(None, 0, 1) == "unknown"


def test_a_row_without_any_evidence_passes_no_screen() -> None:
    class Nothing(dict[str, Any]):
        def __missing__(self, key: str) -> None:
            return None

    for screen in SCREENS.values():
        verdict = screen.verdict(Nothing())
        assert verdict in ("unknown", "fail"), screen.name


def test_students_t_is_within_a_thousandth_of_the_tables() -> None:
    # two-sided 5 %: tables give 2.0244 at 38 degrees, 1.9840 at 100, 1.9623 at 1000
    for degrees, expected in ((38, 2.0244), (100, 1.9840), (1000, 1.9623)):
        assert t_limit(degrees) == pytest.approx(expected, abs=0.001)


def test_every_mart_column_is_described_with_unit_and_null() -> None:
    for mart in MARTS.values():
        assert len(set(mart.columns)) == len(mart.columns)
        for name in mart.columns:
            column = COLUMNS[name]
            assert column.meaning.endswith("."), name
            assert column.null
            if re.search(r"_(ms|s|tokens|bytes|usd)(_p\d\d|_mean)?$", name) and column.type != "varchar":
                assert column.unit, name


def _cache(usage: float | None, counters: float | None, **fields: Any) -> tuple[str, list[str]]:
    row = {
        "cached_share_usage": usage,
        "cached_share_counters": counters,
        "cache_budget_min": None,
        "cache_budget_max": None,
        "is_cold_expected": True,
    } | fields
    parts = SCREENS["cache_accounting"].judge(row)
    return worst(part.verdict for part in parts), [part.verdict for part in parts]


def test_cold_prompts_may_share_one_percent_and_either_witness_may_fail_the_row() -> None:
    assert _cache(0.01, None) == ("pass", ["pass", "not_applicable"])
    assert _cache(0.0, 0.206) == ("fail", ["pass", "fail"])
    assert _cache(0.206, 0.0) == ("fail", ["fail", "pass"])
    assert _cache(None, 0.0)[0] == "pass"


def test_absent_witnesses_are_unknown_and_never_zero() -> None:
    assert _cache(None, None) == ("unknown", ["unknown", "unknown"])


def test_a_ramp_must_stay_within_the_range_that_it_declares() -> None:
    ramp = {"cache_budget_min": 0.6, "cache_budget_max": 0.8, "is_cold_expected": False}
    assert _cache(0.7, 0.71, **ramp)[0] == "pass"
    assert _cache(0.1, None, **ramp)[0] == "fail"  # the cache did not work as declared
    assert _cache(0.95, None, **ramp)[0] == "fail"


def test_a_workload_that_declares_no_budget_and_expects_no_cold_prompts_is_unknown() -> None:
    assert _cache(0.3, None, is_cold_expected=False)[0] == "unknown"
    assert _cache(math.nan, None)[0] == "fail"
