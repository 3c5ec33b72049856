"""Rows of a mart as a terminal table that fits: the columns that matter least are left out first, and said so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from flows.report.blocks import Field, field_text, is_numeric, is_quotable
from flows.report.marts import Row, open_marts
from flows.report.words import (
    SCREENS,
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
# Columns left out are named up to this many.
_MOST_NAMED = 8


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
        return Text(say(column, row.get(column)), style="" if is_quotable(row) else "dim")

    return value


def plain(column: str) -> Callable[[Row], Text | str]:
    return lambda row: say(column, row.get(column))


ROW_COLUMNS = (
    Column("standing", lambda row: standing_text(row.get("standing"))),
    Column("campaign", plain("campaign"), rank=9),
    Column("recipe", plain("recipe")),
    Column("workload", lambda row: _workload(row), rank=1),
    Column("c", plain("concurrency"), is_number=True),
    Column("context", lambda row: say_tokens(row.get("context_tokens")), rank=4, is_number=True),
    Column("rep", plain("repeat"), rank=8, is_number=True),
    Column("ok", lambda row: _ok_of_planned(row), rank=6, is_number=True),
    Column("output\ntokens/s", measured("output_tokens_per_s"), is_number=True),
    Column("TTFT mean\nms", measured("ttft_ms_mean"), rank=2, is_number=True),
    Column("p50\nms", measured("ttft_ms_p50"), rank=5, is_number=True),
    Column("TPOT\nms", measured("tpot_ms_p50"), rank=5, is_number=True),
    Column("recall", lambda row: say_share(row.get("needles_found"), row.get("needles_asked")), rank=5),
    Column("strict", lambda row: standing_text(row.get("standing_strict")), rank=7),
    Column(
        "why",
        lambda row: Text(first_reasons(row.get("standing_reason")), style="dim"),
        rank=3,
        is_free_text=True,
    ),
)

# Published and synthetic rows must not be taken for measured ones.
SOURCE_COLUMN = Column(
    "source",
    lambda row: Text(row.get("source") or "", style="" if row.get("source") == "measured" else "italic"),
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
    Column("ready\ns", plain("ready_s"), rank=5, is_number=True),
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


RESCUE_COLUMNS = (
    Column("failed", plain("rescues")),
    Column("with", lambda row: Text(row.get("original_failure_class") or "", style="red"), rank=2),
    Column("again", lambda row: say_share(row.get("reproduced_failures"), row.get("reproductions")), rank=5),
    Column("tried", plain("recipe")),
    Column("change", plain("rescue_change"), rank=4, is_free_text=True),
    Column("outcome", lambda row: _state_text(row)),
    Column("probes", lambda row: say_share(row.get("probes_passed"), row.get("probes_asked")), rank=3),
    Column("served", plain("requests_ok"), rank=6, is_number=True),
    Column("best\ntokens/s", plain("best_output_tokens_per_s"), rank=3, is_number=True),
    Column("also differed", plain("confounders"), rank=1, is_free_text=True),
)

COST_COLUMNS = (
    Column("standing", lambda row: standing_text(row.get("standing"))),
    Column("recipe", plain("recipe")),
    Column("workload", lambda row: _workload(row), rank=1),
    Column("c", plain("concurrency"), is_number=True),
    Column("input\nUSD/M", measured("input_cost_usd_per_mtok"), rank=2, is_number=True),
    Column("output\nUSD/M", measured("output_cost_usd_per_mtok"), is_number=True),
    Column("input\nwith load", measured("input_cost_with_load_usd_per_mtok"), rank=4, is_number=True),
    Column("output\nwith load", measured("output_cost_with_load_usd_per_mtok"), rank=3, is_number=True),
    Column("price\nUSD/h", plain("price_usd_per_gpu_hour"), rank=5, is_number=True),
)


def _workload(row: Row) -> str:
    source = row.get("source") or "measured"
    return " ".join(
        filter(None, (row.get("workload"), row.get("variant"), "" if source == "measured" else f"({source})"))
    )


def first_reasons(reason: str | None) -> str:
    """The screens that a standing's reason names, without their measurements; `weighbridge explain` has those."""
    text = reason or ""
    named = [name for name in re.findall(r"(?:^|; )(\w+):", text) if name in SCREENS]
    return ", ".join(dict.fromkeys(named)) or text


def _state_text(row: Row) -> Text:
    state = row.get("state") or ""
    style = {"served": "green", "failed": "red", "engine_died": "red", "interrupted": "yellow"}.get(state, "")
    return Text(state, style=style)


def _ok_of_planned(row: Row) -> Text:
    ok, planned = row.get("requests_ok"), row.get("requests_planned")
    if ok is None or planned is None:
        return Text("")
    return Text(f"{ok}/{planned}", style="" if ok == planned else "red")


def columns_of(fields: Sequence[Field], types: dict[str, str], *, is_mixed: bool = False) -> list[Column]:
    """Columns from the fields that the page shows; the first two are kept in the narrowest terminal.

    is_mixed: some rows were not measured here, so each says where it comes from.
    """
    columns = [SOURCE_COLUMN] if is_mixed else []
    for at, field in enumerate(field for field in fields if field.value is not None or field.column in types):
        is_number = is_numeric(types.get(field.column))
        unit = unit_of(field.column) if field.unit is None else field.unit
        heading = (field.label or label_of(field.column)) + (f" [{unit}]" if unit else "")
        if field.column == "standing" or (
            field.column.startswith("standing_") and field.column != "standing_reason"
        ):
            value: Callable[[Row], Text | str] = partial(_standing_of, field.column)
        else:
            value = partial(_field_text, field, is_number)
        columns.append(
            Column(heading, value, rank=max(at - 1, 0), is_number=is_number, is_free_text=not is_number)
        )
    return columns


def _standing_of(column: str, row: Row) -> Text:
    return standing_text(row.get(column))


def _field_text(field: Field, is_number: bool, row: Row) -> Text:
    is_dim = is_number and not is_quotable({**row, "standing": row.get(field.standing or "standing")})
    return Text(field_text(field, row), style="dim" if is_dim else "")


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
    ordered = [
        column.heading.replace("\n", " ") for column in sorted(left_out, key=lambda column: column.rank)
    ]
    names = "; ".join(ordered[:_MOST_NAMED]) + (
        f" and {len(ordered) - _MOST_NAMED} more" if len(ordered) > _MOST_NAMED else ""
    )
    return Group(
        table, Text(f"Too narrow for: {names}. A wider terminal, --json or --csv has them.", style="dim")
    )


def _length(cell: Text | str) -> int:
    return max(map(cell_len, str(cell).split("\n")))


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
    others = sum(1 for row in rows if row.get(column) not in STANDINGS)
    if others:
        line.append(f"{others} of another kind", style="dim")
    return line


def rows_view(rows: Sequence[Row], width: int) -> RenderableType:
    """The rows of `measured_rows` with their standing: what `show` prints, and what a run ends with."""
    parts: list[RenderableType] = [fit_table(rows, ROW_COLUMNS, width), standing_line(rows)]
    if any(row.get("standing") != "publishable" for row in rows):
        parts.append(
            Text(
                "Why a row does not publish: weighbridge explain ROW_ID (--json and --csv have the row_id).",
                style="dim",
            )
        )
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
