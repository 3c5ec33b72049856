"""The campaign review: what it calls moved, what steady, and what it refuses to judge."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from typer.testing import CliRunner

from contracts.review import divergence_bound, median_bounds, review_campaign
from flows.review_page import render_review


def rows(
    rates: list[float], *, campaign: str = "now", concurrency: int = 1, standing: str = "publishable"
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "campaign": campaign, "standing": standing, "source": "measured", "model": "m", "engine": "e", "recipe": "r",
            "gpus": 1, "workload": "sweep", "variant": "", "concurrency": concurrency, "context_tokens": None,
            "output_tokens_per_s": rates,
        }
    )  # fmt: skip


def test_bounds_follow_the_earlier_spread_and_never_fall_below_5_percent() -> None:
    # Median 100, median distance 10: three times 1.4826 times 10.
    assert median_bounds(pd.Series([80.0, 90.0, 100.0, 110.0, 120.0])) == pytest.approx(
        (100 - 44.478, 100 + 44.478)
    )
    assert median_bounds(pd.Series([100.0, 100.0, 100.0])) == pytest.approx((95, 105))


def test_small_samples_may_diverge_more() -> None:
    # chi-squared(4) at 99 % is 13.277; 32 rows a side pool to 16.
    assert divergence_bound(32, 32) == pytest.approx(13.277 / 32, abs=1e-3)
    assert divergence_bound(100_000, 100_000) == 0.1


def test_a_moved_median_is_found_and_a_steady_one_is_not() -> None:
    earlier = pd.concat([rows([100.0, 101.0, 99.0]), rows([200.0, 202.0, 198.0], concurrency=2)])
    now = pd.concat([rows([80.0, 81.0, 79.0]), rows([201.0, 200.0, 202.0], concurrency=2)])
    review = review_campaign(now, earlier, "now", ["before"])
    medians = {
        finding.subject.split(" · ")[-1]: finding for finding in review.findings if finding.kind == "median"
    }
    assert medians["concurrency 1"].verdict == "moved"
    assert medians["concurrency 1"].change_share == pytest.approx(-0.2)
    assert medians["concurrency 2"].verdict == "steady"
    assert review.has_drift is True


def test_too_few_rows_for_a_distribution_are_said_and_not_called_steady() -> None:
    review = review_campaign(rows([100.0] * 3), rows([100.0] * 3), "now", ["before"])
    distribution = next(finding for finding in review.findings if finding.kind == "distribution")
    assert distribution.verdict == "unknown"
    assert "25 rows" in (distribution.note or "")


def test_a_wider_distribution_is_found_behind_a_steady_median() -> None:
    spread = [100 + (place % 11 - 5) * 0.2 for place in range(110)]
    wide = [100 + (place % 11 - 5) * 5.0 for place in range(110)]
    review = review_campaign(rows(wide), rows(spread), "now", ["before"])
    found = {finding.kind: finding.verdict for finding in review.findings}
    assert found["median"] == "steady"
    assert found["distribution"] == "moved"


def test_cells_that_only_one_side_has_are_listed_and_not_judged() -> None:
    review = review_campaign(rows([1.0], concurrency=4), rows([1.0], concurrency=2), "now", ["before"])
    assert [cell.split(" · ")[-1] for cell in review.new_cells] == ["concurrency 4"]
    assert [cell.split(" · ")[-1] for cell in review.missing_cells] == ["concurrency 2"]
    assert not any(finding.kind == "median" for finding in review.findings)
    assert review.has_drift is None


def test_invalid_rows_have_no_figures() -> None:
    earlier = rows([100.0, 101.0, 99.0])
    now = pd.concat([rows([100.0]), rows([1.0, 1.0, 1.0], standing="invalid")])
    review = review_campaign(now, earlier, "now", ["before"])
    assert next(finding for finding in review.findings if finding.kind == "median").verdict == "steady"
    assert next(finding for finding in review.findings if finding.kind == "share").verdict == "moved"


def test_no_rows_are_no_evidence_of_steadiness() -> None:
    review = review_campaign(rows([]), rows([]), "now", [])
    assert review.has_drift is None
    assert "nothing could be judged" in render_review(review)


def test_the_page_is_readable_without_a_network_and_escapes_names() -> None:
    page = render_review(
        review_campaign(rows([80.0] * 3), rows([100.0] * 3), "<b>now</b>", ["before & after"])
    )
    assert re.findall(r"https?://|<script|src=", page) == []
    assert "&lt;b&gt;now" in page
    assert "before &amp; after" in page
    assert "moved" in page


def warehouse(path: Path) -> Path:
    database = path / "weighbridge.duckdb"
    everything = pd.concat([rows([100.0] * 3, campaign="old"), rows([70.0] * 3, campaign="new")])  # noqa: F841
    with duckdb.connect(str(database)) as connection:
        connection.execute("create schema marts")
        connection.execute("create table marts.measured_rows as select * from everything")
        connection.execute(
            "create table marts.runs as select * from (values ('old', timestamp '2026-01-01'),"
            " ('new', timestamp '2026-02-01')) as t (campaign, started_at)"
        )
    return database


def test_the_command_prints_json_and_writes_a_page(tmp_path: Path) -> None:
    from flows.cli import app

    database, page = warehouse(tmp_path), tmp_path / "review.html"
    arguments = ["review", "--campaign", "new", "--database", str(database), "--out", str(page)]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["campaign"], found["against"], found["has_drift"]) == ("new", ["old"], True)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_an_unknown_campaign_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    from contracts.errors import BadInput
    from flows.cli import app

    done = CliRunner().invoke(app, ["review", "--campaign", "nwe", "--database", str(warehouse(tmp_path))])
    assert isinstance(done.exception, BadInput)
    assert "old" in str(done.exception)
    assert "new" in str(done.exception)
