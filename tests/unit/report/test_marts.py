from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from contracts.errors import BadInput
from flows.report.marts import WarehouseUnreadable, open_marts


def test_a_column_that_the_warehouse_lacks_is_left_out(demo_database: Path) -> None:
    with open_marts(demo_database) as marts:
        rows = marts.rows("measured_rows", ["row_id", "column_of_next_year"], limit=1)
    assert list(rows[0]) == ["row_id"]


def test_a_table_that_the_warehouse_lacks_has_no_rows_and_no_count(demo_database: Path) -> None:
    with open_marts(demo_database) as marts:
        assert marts.rows("soak_verdicts") == []
        assert marts.count("soak_verdicts") is None


def test_nulls_sort_last_in_both_directions(demo_database: Path) -> None:
    with open_marts(demo_database) as marts:
        for order in ("needles_found", "-needles_found"):
            found = [row["needles_found"] for row in marts.rows("measured_rows", order=[order])]
            assert found[-1] is None
            assert found[0] is not None


def test_a_wrong_condition_is_refused_with_what_duckdb_said(demo_database: Path) -> None:
    with (
        open_marts(demo_database) as marts,
        pytest.raises(BadInput, match="DuckDB refused the query") as caught,
    ):
        marts.rows("measured_rows", where="no_such_column = 1")
    assert "no_such_column" in str(caught.value)


def test_a_missing_warehouse_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with (
        pytest.raises(BadInput, match="there is no warehouse") as caught,
        open_marts(tmp_path / "none.duckdb"),
    ):
        pass
    assert "weighbridge run" in str(caught.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.duckdb"
    path.write_text("not a database, and long enough to be read as a header by anyone who tries" * 100)
    with pytest.raises(WarehouseUnreadable), open_marts(path):
        pass


def test_reading_leaves_the_file_open_for_a_writer_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create schema marts; create table marts.runs (run_id varchar)")
    with open_marts(path) as marts:
        assert marts.count("runs") == 0
    with duckdb.connect(str(path)) as connection:
        connection.execute("insert into marts.runs values ('r1')")


def test_instants_come_out_in_utc(demo_database: Path) -> None:
    with open_marts(demo_database) as marts:
        row = marts.rows("measured_rows", ["opened_at"], limit=1)[0]
    assert row["opened_at"] == "2026-12-01T10:00:00Z"


def test_nan_in_a_mart_is_not_a_number_to_show(tmp_path: Path) -> None:
    path = tmp_path / "nan.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "create schema marts; create table marts.measured_rows as select 'nan'::double as ttft_ms_p50"
        )
    with open_marts(path) as marts:
        assert marts.rows("measured_rows") == [{"ttft_ms_p50": None}]
