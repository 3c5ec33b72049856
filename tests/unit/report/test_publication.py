from __future__ import annotations

import csv
import json
from pathlib import Path

import duckdb
import pytest

from contracts.errors import PublicationRefused
from flows.report import write_publication

from .demo import ROWS, make_warehouse


@pytest.fixture(scope="module")
def folder(demo_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("publication")
    write_publication(demo_database, target)
    return target


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_gated_rows_holds_the_publishable_and_nothing_else(folder: Path) -> None:
    rows = read_csv(folder / "gated_rows.csv")
    assert {row["standing"] for row in rows} == {"publishable"}
    assert {row["row_id"] for row in rows} == {
        row["row_id"] for row in ROWS if row["standing"] == "publishable"
    }


def test_what_was_not_observed_is_an_empty_field(folder: Path) -> None:
    sweep = next(row for row in read_csv(folder / "gated_rows.csv") if row["workload"] == "sweep")
    assert sweep["needles_found"] == ""
    assert sweep["cached_tokens"] == "0"


def test_failures_name_the_class_or_the_screens(folder: Path) -> None:
    found = {row["id"]: row for row in read_csv(folder / "failures.csv")}
    assert found["20261201T100100-greedy"]["failure_class"] == "host_oom"
    held = next(row for row in found.values() if row["standing"] == "held")
    assert held["failed_screens"] == "cache_screen"
    assert not any(row["standing"] == "publishable" for row in found.values())


def test_every_json_row_says_its_standing_and_units_are_given(folder: Path) -> None:
    evidence = json.loads((folder / "evidence.json").read_text())
    assert all(row["standing"] for row in evidence["rows"])
    assert evidence["counts"] == {"publishable": 5, "provisional": 1, "held": 1, "invalid": 1}
    assert evidence["units"]["ttft_ms_p50"] == "ms"
    charts = json.loads((folder / "chart_data.json").read_text())["charts"]
    assert charts
    assert all(row["standing"] for chart in charts for row in chart["rows"])
    assert all(chart["units"] for chart in charts)


def test_raw_is_named_relative_to_the_project(folder: Path) -> None:
    evidence = json.loads((folder / "evidence.json").read_text())
    assert {row["raw"].split("/")[0] for row in evidence["rows"]} == {"raw"}


def test_a_held_row_in_gated_rows_stops_the_publication(tmp_path: Path) -> None:
    database = make_warehouse(tmp_path / "wrong.duckdb")
    with duckdb.connect(str(database)) as connection:
        connection.execute("create or replace view marts.gated_rows as from marts.measured_rows")
    with pytest.raises(PublicationRefused, match="may not be quoted"):
        write_publication(database, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_warehouse_publishes_empty_files(empty_database: Path, tmp_path: Path) -> None:
    paths = write_publication(empty_database, tmp_path)
    assert all(path.stat().st_size > 0 for path in paths)
    assert read_csv(tmp_path / "gated_rows.csv") == []
