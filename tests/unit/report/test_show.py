from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.errors import BadInput
from flows.cli import app

runner = CliRunner()


def show(database: Path, *arguments: str) -> str:
    result = runner.invoke(app, ["show", *arguments, "--database", str(database)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_json_holds_every_column_and_null_for_what_was_not_observed(demo_database: Path) -> None:
    found = json.loads(show(demo_database, "rows", "--json"))
    assert found["count"] == 8
    sweep = next(row for row in found["rows"] if row["workload"] == "sweep")
    assert sweep["needles_found"] is None
    assert {"row_id", "standing", "standing_strict", "needle_gate", "ttft_ms_p50"} <= sweep.keys()


def test_csv_reads_back_as_rows(demo_database: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(show(demo_database, "gated", "--csv"))))
    assert len(rows) == 5
    assert {row["standing"] for row in rows} == {"publishable"}


def test_csv_of_no_rows_still_has_its_header(empty_database: Path) -> None:
    assert show(empty_database, "gated", "--csv").startswith("row_id,")


def test_standings_may_be_asked_for_together(demo_database: Path) -> None:
    found = json.loads(show(demo_database, "rows", "--json", "-s", "held", "-s", "invalid"))
    assert [row["standing"] for row in found["rows"]] == ["held", "invalid"]


def test_a_condition_and_a_standing_both_hold(demo_database: Path) -> None:
    found = json.loads(show(demo_database, "--json", "-s", "publishable", "--where", "concurrency >= 2"))
    assert [row["concurrency"] for row in found["rows"]] == [2, 4]


def test_failures_are_the_runs_with_a_class(demo_database: Path) -> None:
    found = json.loads(show(demo_database, "failures", "--json"))
    assert [row["failure_class"] for row in found["rows"]] == ["host_oom"]


def test_a_filter_that_leaves_nothing_reads_otherwise_than_an_empty_table(
    demo_database: Path, empty_database: Path
) -> None:
    assert "meets the condition" in show(demo_database, "--where", "concurrency > 1000")
    assert "is empty" in show(empty_database)


def test_the_tables_are_named_with_their_rows(demo_database: Path) -> None:
    found = json.loads(show(demo_database, "--tables", "--json"))
    assert {table["table"]: table["count"] for table in found["tables"]} == {
        "gated_rows": 5,
        "measured_rows": 8,
        "runs": 4,
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rws"], "did you mean 'rows'"),
        (["rescues"], "no mart rescue_comparisons"),
        (["--standing", "hold"], "is no standing"),
        (["runs", "--standing", "held"], "runs has no standing"),
        (["--columns", "row_id,ttft_p50"], "did you mean 'ttft_ms_p50'"),
        (["--json", "--csv"], "two answers"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_with_what_was_meant(
    demo_database: Path, arguments: list[str], said: str
) -> None:
    with pytest.raises(BadInput) as caught:
        runner.invoke(app, ["show", *arguments, "--database", str(demo_database)], catch_exceptions=False)
    assert said in str(caught.value)


def test_report_names_the_files_that_it_wrote(demo_database: Path, tmp_path: Path) -> None:
    arguments = ["report", "--database", str(demo_database), "--out", str(tmp_path / "r.html")]
    result = runner.invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    for line in result.stdout.splitlines():
        assert Path(line.removeprefix("report").strip()).is_file()
    assert (tmp_path / "chart_data.json").is_file()
