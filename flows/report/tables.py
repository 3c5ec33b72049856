"""Rows of a mart as a terminal table that fits: the columns that matter least are left out first, and said so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from flows.report.marts import Row, open_marts
from flows.report.words import (
    STANDING_MARK,
    STANDINGS,
    label_of,
    say,
    say_count,
    say_share,
    say_tokens,
    unit_of,
)

STANDING_STYLE = {"publishable": "green", "provisional": "yellow", "held": "magenta", "invalid": "red"}

ROW_ORDER = (
    "campaign",
    "recipe",
    "workload",
    "variant",
    "context_tokens",
    "users",
    "concurrency",
    "repeat",
    "run_id",
)

# Room that a bordered column takes beside its text.
_COLUMN_GAP = 3
_CELL_MAX = 44


@dataclass(frozen=True)
class Column:
    """A column of a terminal table. rank: the higher, the sooner it is left out; 0 stays whatever happens."""

    heading: str
    value: Callable[[Row], Text | str]
    rank: int = 0
    is_number: bool = False
    is_free_text: bool = False


def standing_text(standing: str | None) -> Text:
    """A standing with its mark, coloured; unknown words are shown as they are."""
    if not standing:
        return Text("")
    return Text(f"{STANDING_MARK.get(standing, '·')} {standing}", style=STANDING_STYLE.get(standing, ""))


def measured(column: str) -> Callable[[Row], Text | str]:
    """The cell of a figure: dim unless its row may be quoted."""

    def value(row: Row) -> Text:
        is_quotable = row.get("standing", "publishable") == "publishable"
        return Text(say(column, row.get(column)), style="" if is_quotable else "dim")

    return value


def plain(column: str) -> Callable[[Row], Text | str]:
    return lambda row: say(column, row.get(column))


ROW_COLUMNS = (
    Column("standing", lambda row: standing_text(row.get("standing"))),
    Column("campaign", plain("campaign"), rank=9),
    Column("recipe", plain("recipe")),
    Column("workload", lambda row: " ".join(filter(None, (row.get("workload"), row.get("variant")))), rank=1),
    Column("c", plain("concurrency"), is_number=True),
    Column("context", lambda row: say_tokens(row.get("context_tokens")), rank=4, is_number=True),
    Column("rep", plain("repeat"), rank=8, is_number=True),
    Column("ok", lambda row: _ok_of_planned(row), rank=6, is_number=True),
    Column("tokens/s", measured("output_tokens_per_s"), is_number=True),
    Column("TTFT mean", measured("ttft_ms_mean"), rank=2, is_number=True),
    Column("p50", measured("ttft_ms_p50"), rank=5, is_number=True),
    Column("TPOT ms", measured("tpot_ms_p50"), rank=5, is_number=True),
    Column("recall", lambda row: say_share(row.get("needles_found"), row.get("needles_asked")), rank=5),
    Column("strict", lambda row: standing_text(row.get("standing_strict")), rank=7),
    Column("why", lambda row: Text(row.get("standing_reason") or "", style="dim"), rank=3, is_free_text=True),
)

RUN_COLUMNS = (
    Column("state", lambda row: _state_text(row)),
    Column("recipe", plain("recipe")),
    Column(
        "engine", lambda row: " ".join(filter(None, (row.get("engine"), row.get("engine_version")))), rank=4
    ),
    Column("model", plain("model"), rank=5),
    Column("failure", lambda row: Text(row.get("failure_class") or "", style="red"), rank=1),
    Column("rescues", plain("rescues"), rank=6),
    Column("ready s", plain("ready_s"), rank=5, is_number=True),
    Column("run", plain("run_id"), rank=2),
    Column(
        "summary", lambda row: Text(row.get("failure_summary") or "", style="dim"), rank=3, is_free_text=True
    ),
)

FAILURE_COLUMNS = (
    Column("failure", lambda row: Text(row.get("failure_class") or "", style="red")),
    Column("recipe", plain("recipe")),
    Column(
        "engine", lambda row: " ".join(filter(None, (row.get("engine"), row.get("engine_version")))), rank=4
    ),
    Column("run", plain("run_id"), rank=3),
    Column("what the engine said", lambda row: row.get("failure_summary") or "", rank=1, is_free_text=True),
)


def _state_text(row: Row) -> Text:
    state = row.get("state") or ""
    style = {"served": "green", "failed": "red", "engine_died": "red", "interrupted": "yellow"}.get(state, "")
    return Text(state, style=style)


def _ok_of_planned(row: Row) -> Text:
    ok, planned = row.get("requests_ok"), row.get("requests_planned")
    if ok is None or planned is None:
        return Text("")
    return Text(f"{ok}/{planned}", style="" if ok == planned else "red")


def generic_columns(names: Sequence[str], types: dict[str, str]) -> list[Column]:
    """A column each for a mart that has no layout of its own; leading columns are kept longest."""
    columns = []
    for at, name in enumerate(names):
        kind = types.get(name, "").upper()
        is_number = kind.startswith(("BIGINT", "INTEGER", "DOUBLE", "FLOAT", "DECIMAL", "HUGEINT", "UBIGINT"))
        unit = unit_of(name)
        heading = label_of(name) + (f" [{unit}]" if unit and unit not in name.replace("_", " ") else "")
        if name == "standing" or (name.startswith("standing_") and name != "standing_reason"):
            columns.append(Column(heading, lambda row, n=name: standing_text(row.get(n)), rank=at))  # type: ignore[misc]
        else:
            columns.append(
                Column(heading, measured(name) if is_number else plain(name), rank=at, is_number=is_number,
                       is_free_text=not is_number)
            )  # fmt: skip
    return columns


def fit_table(
    rows: Sequence[Row], columns: Sequence[Column], width: int, title: str | None = None
) -> RenderableType:
    """A table no wider than `width` cells, with a line that names the columns it left out.

    Columns that are empty in every row go first and unsaid; then those of the highest rank.
    """
    cells = {id(column): [column.value(row) for row in rows] for column in columns}
    shown = [
        column for column in columns if column.rank == 0 or any(_length(cell) for cell in cells[id(column)])
    ]
    left_out: list[Column] = []

    def wide(column: Column) -> int:
        body = max((_length(cell) for cell in cells[id(column)]), default=0)
        # Free text wraps, so it may be squeezed; a number or a name that wraps is unreadable.
        body = min(body, 24 if column.is_free_text else _CELL_MAX)
        return max(body, _length(column.heading)) + _COLUMN_GAP

    while sum(map(wide, shown)) + 1 > width:
        least = max((column for column in shown if column.rank), key=lambda column: column.rank, default=None)
        if least is None:
            break
        shown.remove(least)
        left_out.append(least)
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in shown:
        table.add_column(
            column.heading,
            justify="right" if column.is_number else "left",
            no_wrap=not column.is_free_text and column.rank != 0,
            overflow="fold" if not column.is_free_text else "ellipsis",
        )
    for at in range(len(rows)):
        table.add_row(*(_limit(cells[id(column)][at], column) for column in shown))
    if not left_out:
        return table
    names = ", ".join(column.heading for column in sorted(left_out, key=lambda column: column.rank))
    return Group(
        table, Text(f"Too narrow for: {names}. A wider terminal, --json or --csv has them.", style="dim")
    )


def _length(cell: Text | str) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)


def _limit(cell: Text | str, column: Column) -> Text:
    text = cell.copy() if isinstance(cell, Text) else Text(cell)
    if not column.is_free_text and column.rank:
        text.truncate(_CELL_MAX, overflow="ellipsis")
    return text


def standing_line(rows: Sequence[Row], column: str = "standing") -> Text:
    """`4 rows: ● 2 publishable  ◐ 1 provisional  ✕ 1 invalid`, in the order of the standings."""
    line = Text(f"{say_count(len(rows), 'row')}")
    if rows:
        line.append(": ")
    for standing in STANDINGS:
        count = sum(1 for row in rows if row.get(column) == standing)
        if count:
            line.append(f"{STANDING_MARK[standing]} {count} {standing}  ", style=STANDING_STYLE[standing])
    return line


def rows_view(rows: Sequence[Row], width: int) -> RenderableType:
    """The rows of `measured_rows` with their standing: what `show` prints, and what a run ends with."""
    parts: list[RenderableType] = [fit_table(rows, ROW_COLUMNS, width), standing_line(rows)]
    policies = sorted({row["policy"] for row in rows if row.get("policy")})
    if policies:
        strict = sum(1 for row in rows if row.get("standing_strict") == "publishable")
        note = f"Standing under policy {', '.join(policies)}."
        if policies != ["strict"] and any("standing_strict" in row for row in rows):
            note += f" Strict would publish {strict} of {len(rows)}."
        parts.append(Text(note, style="dim"))
    return Group(*parts)


def print_rows(database: Path, console: Console | None = None, campaign: str | None = None) -> None:
    """Print the rows of a published database with their standing, of one campaign or of all."""
    console = console or Console()
    with open_marts(database) as marts:
        rows = marts.rows("measured_rows", order=ROW_ORDER)
    rows = [row for row in rows if campaign is None or row.get("campaign") == campaign]
    console.print(rows_view(rows, console.width) if rows else "No rows yet: nothing has been measured.")
