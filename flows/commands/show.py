"""`weighbridge show`: the tables of the published database, in the terminal or for scripts."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from flows.report.marts import Marts, Row
    from flows.report.tables import Column

EPILOG = """\
**Examples**

- `weighbridge show` — every row with its standing, and why it does not publish

- `weighbridge show failures` — what did not come up, and the class of the failure

- `weighbridge show rescues` — what was tried instead, and what else differed

- `weighbridge show --standing held --standing invalid`

- `weighbridge show gated --where "concurrency >= 32" --csv > quotable.csv`

- `weighbridge show cost --json | jq '.rows[]'`

- `weighbridge show --tables` — everything there is, with row counts
"""

# What a person calls a table -> the mart, the filter that the name implies.
ALIASES: dict[str, tuple[str, str | None]] = {
    "rows": ("measured_rows", None),
    "gated": ("gated_rows", None),
    "failures": ("runs", "failure_class is not null"),
    "rescues": ("rescue_comparisons", None),
    "cost": ("cost_per_token", None),
    "probes": ("probe_results", None),
    "ramp": ("ramp_turns", None),
    "soak": ("soak_verdicts", None),
    "summary": ("campaign_summary", None),
}


def register(app: typer.Typer) -> None:
    app.command("show", epilog=EPILOG)(show)


def show(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="rows, gated, runs, failures, rescues, cost, or any mart by its name."
        ),
    ] = "rows",
    standing: Annotated[
        list[str] | None,
        typer.Option("--standing", "-s", help="Only rows of this standing; may be repeated."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", "-w", help="A SQL condition on the table's columns.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", help="Columns to show, separated by commas.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many rows.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every column as JSON, for scripts.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Every column as CSV, for spreadsheets.")] = False,
    list_tables: Annotated[
        bool, typer.Option("--tables", help="Name the tables, with their rows and columns.")
    ] = False,
    database: Annotated[
        Path, typer.Option("--database", "-d", help="The published database.", envvar="WEIGHBRIDGE_DATABASE")
    ] = Path("warehouse/weighbridge.duckdb"),
) -> None:
    """Show a table of the published warehouse: rows with their standing, runs, failures, rescues, cost.

    Reads only, so it never blocks a build, and a build never blocks it.
    """
    from contracts.errors import BadInput
    from flows.report.marts import open_marts
    from flows.report.tables import ROW_ORDER

    if as_json and as_csv:
        raise BadInput("--json and --csv are two answers to one question", next_step="give one of them")
    with open_marts(database) as marts:
        if list_tables:
            _print_tables(marts, as_json)
            return
        name, implied = _resolve(marts, table)
        conditions = [f"({condition})" for condition in (implied, where) if condition]
        if standing:
            conditions.append(_standing_condition(marts, name, standing))
        wanted = _wanted_columns(marts, name, columns)
        rows = marts.rows(name, wanted, where=" and ".join(conditions) or None, order=ROW_ORDER, limit=limit)
        types = marts.columns(name)
        # A filter that leaves nothing reads otherwise than a warehouse that has nothing.
        is_filtered = bool(standing or where) and marts.count(name)
    if as_json:
        typer.echo(
            json.dumps(
                {"table": f"marts.{name}", "count": len(rows), "rows": rows}, indent=2, ensure_ascii=False
            )
        )
    elif as_csv:
        _write_csv(rows, wanted or list(types))
    else:
        _print_rows(table, name, rows, wanted, types, bool(is_filtered))


def _resolve(marts: Marts, table: str) -> tuple[str, str | None]:
    from contracts.errors import BadInput

    name, implied = ALIASES.get(table, (table.removeprefix("marts."), None))
    if marts.columns(name):
        return name, implied
    from difflib import get_close_matches

    known = marts.tables()
    near = get_close_matches(table, [*ALIASES, *known], n=1)
    if table in ALIASES:
        what = f"this warehouse has no mart {name}, which `show {table}` reads"
    else:
        what = f"there is no table {table!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    raise BadInput(
        what,
        measured=", ".join(known) or "no marts at all",
        evidence=str(marts.database),
        next_step="`weighbridge show --tables` lists what there is; `weighbridge build` makes the rest",
    )


def _standing_condition(marts: Marts, name: str, standing: list[str]) -> str:
    from contracts.errors import BadInput
    from flows.report.words import STANDINGS

    unknown = [word for word in standing if word not in STANDINGS]
    if unknown:
        raise BadInput(
            f"{unknown[0]!r} is no standing", required=", ".join(STANDINGS), next_step="--standing held"
        )
    if "standing" not in marts.columns(name):
        raise BadInput(f"{name} has no standing", next_step="leave --standing out, or show rows")
    return "standing in (" + ", ".join(f"'{word}'" for word in standing) + ")"


def _wanted_columns(marts: Marts, name: str, columns: str | None) -> list[str] | None:
    from contracts.errors import BadInput

    if not columns:
        return None
    have = marts.columns(name)
    wanted = [column.strip() for column in columns.split(",") if column.strip()]
    for column in wanted:
        if column not in have:
            from difflib import get_close_matches

            near = get_close_matches(column, list(have), n=1)
            raise BadInput(
                f"{name} has no column {column!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                measured=", ".join(have),
                next_step="--columns takes names from this list",
            )
    return wanted


def _write_csv(rows: list[Row], names: list[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        # Absence is an empty field, never 0; lists and structs stay JSON.
        writer.writerow(
            json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value
            for value in (row.get(name) for name in names)
        )


def _print_rows(
    asked: str, name: str, rows: list[Row], wanted: list[str] | None, types: dict[str, str], is_filtered: bool
) -> None:
    from rich.console import Console
    from rich.text import Text

    from flows.report import tables
    from flows.report.blocks import Field, all_fields
    from flows.report.layouts import FIELDS, UNSHOWN
    from flows.report.words import say_count

    console = Console()
    if not rows:
        console.print(
            f"No row of marts.{name} meets the condition."
            if is_filtered
            else f"marts.{name} is empty: nothing of its kind has been measured yet."
        )
        return
    if wanted is None and name in ("measured_rows", "gated_rows"):
        console.print(tables.rows_view(rows, console.width))
        return
    layouts: dict[str, tuple[Column, ...]] = {
        "runs": tables.RUN_COLUMNS,
        "failures": tables.FAILURE_COLUMNS,
        "rescue_comparisons": tables.RESCUE_COLUMNS,
        "cost_per_token": tables.COST_COLUMNS,
    }
    layout = layouts.get(asked, layouts.get(name)) if wanted is None else None
    if layout is None:
        fields = (
            [Field(column) for column in wanted] if wanted else FIELDS.get(name) or all_fields(types, UNSHOWN)
        )
        is_mixed = any(row.get("source") not in (None, "measured") for row in rows)
        layout = tuple(tables.columns_of(fields, types, is_mixed=is_mixed))
    console.print(tables.fit_table(rows, layout, console.width))
    console.print(tables.standing_line(rows) if "standing" in rows[0] else Text(say_count(len(rows), "row")))
    if name == "cost_per_token":
        console.print(Text("USD per million tokens; input and output each bear the whole cost.", style="dim"))
    if asked == "failures":
        console.print(
            Text(
                "A failure is evidence: `weighbridge report` shows the log lines that decided each class.",
                style="dim",
            )
        )


def _print_tables(marts: Marts, as_json: bool) -> None:
    names = marts.tables()
    if as_json:
        found = [{"table": n, "count": marts.count(n), "columns": marts.columns(n)} for n in names]
        typer.echo(json.dumps({"database": str(marts.database), "tables": found}, indent=2))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from flows.report.words import say_number

    console: Console = Console()
    short = {mart: alias for alias, (mart, implied) in ALIASES.items() if implied is None}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("table")
    table.add_column("short")
    table.add_column("rows", justify="right")
    table.add_column("columns", justify="right")
    for name in names:
        table.add_row(
            f"marts.{name}", short.get(name, ""), say_number(marts.count(name)), str(len(marts.columns(name)))
        )
    console.print(table)
