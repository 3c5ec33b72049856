"""Rows of a query, for tests that read a built database."""

from __future__ import annotations

from typing import Any

import duckdb


def rows_of(connection: duckdb.DuckDBPyConnection, query: str, *values: Any) -> list[dict[str, Any]]:
    """The rows as dicts, column to value."""
    found = connection.execute(query, list(values))
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
