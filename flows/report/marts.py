"""Reads the published database, and never more than it has.

A warehouse may be older than this code, or a mart may be absent: every read asks the catalog first, so an unknown
column is left out and a missing table is no rows. Opened read-only, for as long as one reading takes, because a
read-write holder and a reader would block each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from contracts.errors import BadInput, WeighbridgeError

DEFAULT_DATABASE = Path("warehouse/weighbridge.duckdb")

Row = dict[str, Any]


class WarehouseUnreadable(WeighbridgeError):
    """The published database exists, yet cannot be opened for reading."""


class Marts:
    """The tables of schema `marts` (and, where named, of other schemas) as lists of plain dicts."""

    def __init__(self, connection: Any, database: Path) -> None:
        self._connection = connection
        self.database = database

    @cached_property
    def catalog(self) -> dict[tuple[str, str], dict[str, str]]:
        """(schema, table) -> column -> type, as the database states it."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        rows = self._connection.execute(
            "select table_schema, table_name, column_name, data_type from information_schema.columns"
            " where table_catalog = current_database() order by ordinal_position"
        ).fetchall()
        for schema, table, column, kind in rows:
            found.setdefault((schema, table), {})[column] = kind
        return found

    def tables(self, schema: str = "marts") -> list[str]:
        """Names of the schema's tables and views, sorted."""
        return sorted(table for found, table in self.catalog if found == schema)

    def columns(self, table: str, schema: str = "marts") -> dict[str, str]:
        """Column -> type, in the table's own order; empty where there is no such table."""
        return self.catalog.get((schema, table), {})

    def rows(
        self,
        table: str,
        columns: Iterable[str] | None = None,
        *,
        schema: str = "marts",
        where: str | None = None,
        order: Iterable[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        """Rows of a table, as plain values; the columns that it lacks are simply not in the dicts.

        order: column names, `-` in front for descending; nulls last. where: SQL, as the user wrote it.
        Raises BadInput when DuckDB refuses `where`.
        """
        have = self.columns(table, schema)
        wanted = [name for name in (columns or have) if name in have]
        if not wanted:
            return []
        query = f"select {', '.join(_quote(name) for name in wanted)} from {_quote(schema)}.{_quote(table)}"
        if where:
            query += f" where ({where})"
        keys = [key for key in order if key.lstrip("-") in have]
        if keys:
            query += " order by " + ", ".join(
                f"{_quote(key.lstrip('-'))} {'desc' if key.startswith('-') else 'asc'} nulls last"
                for key in keys
            )
        if limit is not None:
            query += f" limit {int(limit)}"
        return self.query(query)

    def count(self, table: str, schema: str = "marts") -> int | None:
        """How many rows a table has; None where there is no such table."""
        if not self.columns(table, schema):
            return None
        return int(self.query(f"select count(*) as n from {_quote(schema)}.{_quote(table)}")[0]["n"])

    def query(self, sql: str, *, or_none: bool = False) -> list[Row]:
        """Rows of a query, as plain values (dates as ISO 8601 text, decimals as floats).

        or_none: no rows, where the query names what this warehouse lacks (an older one, or a view whose table is gone).
        Raises BadInput when DuckDB refuses it.
        """
        import duckdb

        try:
            cursor = self._connection.execute(sql)
            names = [column[0] for column in cursor.description or []]
            return [{n: _plain(v) for n, v in zip(names, row, strict=True)} for row in cursor.fetchall()]
        except duckdb.Error as error:
            if or_none and isinstance(error, (duckdb.CatalogException, duckdb.BinderException)):
                return []
            raise BadInput(
                "DuckDB refused the query",
                measured=str(error).strip().splitlines()[0],
                evidence=str(self.database),
                next_step="`weighbridge show --tables` lists the tables and their columns",
            ) from error


@contextmanager
def open_marts(database: Path) -> Iterator[Marts]:
    """Open the published database read-only. Raises BadInput where there is none, WarehouseUnreadable where it is locked."""
    import duckdb

    if not database.is_file():
        raise BadInput(
            f"there is no warehouse at {database}",
            next_step="`weighbridge run campaigns/quickstart.yaml` makes evidence; `weighbridge build` turns raw into it",
        )
    try:
        connection = duckdb.connect(str(database), read_only=True)
    except duckdb.Error as error:
        raise WarehouseUnreadable(
            f"{database} cannot be opened for reading",
            measured=str(error).strip().splitlines()[0],
            required="no read-write holder, and a file written by DuckDB 2.0 or later",
            next_step="close the program that has it open for writing, then try again",
        ) from error
    try:
        # The answer must not depend on the machine's own time zone.
        connection.execute("set timezone = 'UTC'")
        yield Marts(connection, database)
    finally:
        connection.close()


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        text = value.isoformat(timespec="seconds")
        return text.replace("+00:00", "Z") if value.tzinfo else text + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and value != value:
        # A NaN in a mart is an error of the build; it must not be drawn or quoted as a number.
        return None
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return value
