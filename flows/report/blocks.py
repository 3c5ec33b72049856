"""What a section of the page is made of: tables, charts, notes. Shapes only; `templates/` says how they look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.report.marts import Row
from flows.report.words import label_of, say, say_share, unit_of


@dataclass(frozen=True)
class Field:
    """A column of a table on the page. column: the mart's; label and value only where its own do not read well.

    standing: the column that holds this cell's own standing, in a mart where cells differ (million_token_table).
    """

    column: str
    label: str = ""
    unit: str | None = None
    value: Callable[[Row], str] | None = None
    standing: str | None = None


@dataclass
class Cell:
    """A cell as text. standing: its own, or its row's; null where there is none.

    is_chip: the cell is the standing. is_figure: it was measured, so its standing decides how it is set.
    doubt: why it may not be quoted: its standing, or `synthetic`.
    """

    text: str
    standing: str | None = None
    is_quotable: bool = True
    is_chip: bool = False
    is_figure: bool = False
    doubt: str = ""


@dataclass
class Table:
    """A table of a mart's rows. heads: (label, unit, is_number). is_folded: closed until a reader opens it."""

    heads: list[tuple[str, str, bool]]
    rows: list[list[Cell]]
    caption: str = ""
    kind: str = "table"
    is_published: bool = False
    is_folded: bool = False


@dataclass
class Chart:
    """A Vega-Lite chart and the rows it draws. rows carry `standing`, so that chart data says it too."""

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    rows: list[Row]
    units: dict[str, str] = field(default_factory=dict)
    kind: str = "chart"


@dataclass
class Note:
    """A paragraph. tone: plain, quiet or warning."""

    text: str
    tone: str = "plain"
    kind: str = "note"


@dataclass
class Evidence:
    """A kept failure: its class, what was said, and the lines that decided it as (where, text)."""

    failure_class: str
    recipe: str
    engine: str
    run_id: str
    summary: str
    lines: list[tuple[str, str]]
    command: str = ""
    rescue: str = ""
    again: str = ""
    kind: str = "evidence"


Block = Table | Chart | Note | Evidence


@dataclass
class Section:
    """A part of the page. lead: the question it answers, in a sentence."""

    name: str
    title: str
    lead: str
    blocks: list[Block]


# Words that a mart uses for a figure that may stand: its own rows' and, in a published one, the source's.
QUOTABLE = ("publishable", "measured")


def make_table(
    rows: Sequence[Row],
    types: dict[str, str],
    fields: Sequence[Field],
    caption: str = "",
    *,
    is_published: bool = False,
) -> Table:
    """A table of the fields that the mart has; columns that are empty in every row are left out."""
    shown = [each for each in fields if each.column in types or each.value is not None]
    # A column that is empty throughout says nothing, and makes the rest harder to read.
    shown = [each for each in shown if any(field_text(each, row) for row in rows)]
    heads = [
        (
            each.label or label_of(each.column),
            unit_of(each.column) if each.unit is None else each.unit,
            _is_number(each, types),
        )
        for each in shown
    ]
    return Table(
        heads,
        [[_cell(each, row, types, is_published) for each in shown] for row in rows],
        caption,
        is_published=is_published,
    )


def all_fields(types: dict[str, str], without: Sequence[str] = ()) -> list[Field]:
    """A field for every column of a mart that has no layout of its own."""
    return [Field(column) for column in types if column not in without]


def share_of(part: str, whole: str) -> Callable[[Row], str]:
    """A cell `3 of 3` from two columns; empty where nothing was asked."""
    return lambda row: say_share(row.get(part), row.get(whole))


def with_interval(column: str, low: str, high: str) -> Callable[[Row], str]:
    """A figure with its 95 % interval behind it, where it has one."""

    def value(row: Row) -> str:
        text = say(column, row.get(column))
        if not text or row.get(low) is None or row.get(high) is None:
            return text
        return f"{text} ({say(column, row[low])} to {say(column, row[high])})"

    return value


def is_quotable(row: Row) -> bool:
    """Whether a row's figures may be quoted. What a generator made is no measurement, whatever its screens say."""
    return row.get("standing") in (None, *QUOTABLE) and row.get("source") != "synthetic"


def _cell(each: Field, row: Row, types: dict[str, str], is_published: bool) -> Cell:
    text = _as_published(each, row) if is_published else field_text(each, row)
    standing = row.get(each.standing) if each.standing else row.get("standing")
    is_good = is_quotable({**row, "standing": standing})
    return Cell(
        text,
        standing,
        is_quotable=is_good,
        doubt="" if is_good else str(row.get("source") if standing in (None, *QUOTABLE) else standing),
        is_chip=each.column == "standing" and bool(text),
        is_figure=bool(each.standing) or (_is_number(each, types) and each.column not in KEY_COLUMNS),
    )


def _as_published(each: Field, row: Row) -> str:
    """A figure as its source gave it, unrounded; what was computed from figures is rounded as everywhere."""
    value = row.get(each.column)
    is_computed = each.column.endswith(("ratio", "slowdown", "share", "comparison", "difference"))
    if each.value is None and isinstance(value, float) and not is_computed:
        return f"{value:,}".removesuffix(".0")
    return field_text(each, row)


def field_text(each: Field, row: Row) -> str:
    """A field's cell as text; "" for what was not observed."""
    if each.value is not None:
        return each.value(row)
    value = row.get(each.column)
    if isinstance(value, list):
        return ", ".join(str(inner) for inner in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items() if inner is not None)
    if isinstance(value, str) and each.column in WORD_COLUMNS:
        return value.replace("_", " ")
    return say(each.column, value)


# Columns whose values are identifiers of this project, which read better with spaces.
WORD_COLUMNS = frozenset({"workload", "metric", "under_test", "axis", "phase", "state"})


# Numbers that say what was asked, not what came out: a standing does not touch them.
KEY_COLUMNS = frozenset(
    {"concurrency", "users", "turn", "context_tokens", "repeat", "attempt", "gpus", "base_gpus", "changed_gpus", "island",
     "configured_tokens", "hours", "price_usd_per_gpu_hour", "base_n", "changed_n"}
)  # fmt: skip


def _is_number(each: Field, types: dict[str, str]) -> bool:
    return is_numeric(types.get(each.column))


def is_numeric(kind: str | None) -> bool:
    """Whether a DuckDB type is a number."""
    kinds = ("BIGINT", "INTEGER", "DOUBLE", "FLOAT", "DECIMAL", "HUGEINT", "UBIGINT", "SMALLINT")
    return (kind or "").upper().startswith(kinds) and not (kind or "").endswith("[]")
