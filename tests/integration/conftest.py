"""Fixtures of the integration tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from database_rows import rows_of
from warehouse_scenarios import write_scenarios

from flows.warehouse import BuildResult, build_warehouse


@dataclass(frozen=True)
class Judged:
    """One built warehouse of every scenario; read only."""

    raw: Path
    warehouse: Path
    result: BuildResult

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """The rows of a query as dicts."""
        with duckdb.connect(str(self.result.database), read_only=True) as connection:
            return rows_of(connection, query, *values)

    def row(self, row_id: str) -> dict[str, Any]:
        """The measured row."""
        (found,) = self.rows("select * from marts.measured_rows where row_id = ?", row_id)
        return found

    def screen(self, row_id: str, name: str) -> dict[str, Any]:
        """One screen's result on a row."""
        query = "select * from intermediate.int_screen_results where row_id = ? and screen = ?"
        (found,) = self.rows(query, row_id, name)
        return found


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A warehouse built once from warehouse_scenarios.py."""
    folder = tmp_path_factory.mktemp("judged")
    write_scenarios(folder / "raw")
    result = build_warehouse(folder / "raw", folder / "warehouse")
    return Judged(folder / "raw", folder / "warehouse", result)
