"""What a section of the page is made of: tables, charts, notes. Shapes only; `templates/` says how they look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.report.marts import Row
from flows.report.words import STANDINGS, label_of, say, unit_of


@dataclass(frozen=True)
class Field:
    """A column of a table on the page. column: the mart's; label and value only where its own do not read well."""

    column: str
    label: str = ""
    unit: str | None = None
    value: Callable[[Row], str] | None = None


@dataclass
class TableRow:
    """Cells as text. standing: of the row, null where its mart has none; is_quotable: its figures may stand alone."""

    cells: list[str]
    standing: str | None = None
    is_quotable: bool = True


@dataclass
class Table:
    """A table of a mart's rows. heads: (label, unit, is_number)."""

    heads: list[tuple[str, str, bool]]
    rows: list[TableRow]
    caption: str = ""
    kind: str = "table"
    is_published: bool = False


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
    kind: str = "evidence"


Block = Table | Chart | Note | Evidence


@dataclass
class Section:
    """A part of the page. lead: the question it answers, in a sentence."""

    name: str
    title: str
    lead: str
    blocks: list[Block]


def make_table(
    rows: Sequence[Row],
    types: dict[str, str],
    fields: Sequence[Field],
    caption: str = "",
    *,
    is_published: bool = False,
) -> Table:
    """A table of the fields that the mart has; a field whose column it lacks is left out, unless it brings a value."""
    shown = [each for each in fields if each.value is not None or each.column in types]
    # A column that is empty throughout says nothing, and makes the rest harder to read.
    shown = [each for each in shown if any(_cell(each, row) for row in rows)]
    heads = [
        (
            each.label or label_of(each.column),
            unit_of(each.column) if each.unit is None else each.unit,
            _is_number(each, types),
        )
        for each in shown
    ]
    made = []
    for row in rows:
        standing = row.get("standing")
        # Marts of comparisons and of published figures know more words than a row's four.
        is_quotable = standing in (None, "publishable") or (is_published and standing == "measured")
        made.append(TableRow([_cell(each, row) for each in shown], standing, is_quotable))
    return Table(heads, made, caption, is_published=is_published)


def all_fields(types: dict[str, str], without: Sequence[str] = ()) -> list[Field]:
    """A field for every column of a mart that has no layout of its own."""
    return [Field(column) for column in types if column not in without]


def _cell(each: Field, row: Row) -> str:
    if each.value is not None:
        return each.value(row)
    value = row.get(each.column)
    if isinstance(value, list):
        return ", ".join(str(inner) for inner in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items() if inner is not None)
    if each.column == "standing" and value in STANDINGS:
        return str(value)
    return say(each.column, value)


def _is_number(each: Field, types: dict[str, str]) -> bool:
    kind = types.get(each.column, "").upper()
    return kind.startswith(
        ("BIGINT", "INTEGER", "DOUBLE", "FLOAT", "DECIMAL", "HUGEINT", "UBIGINT", "SMALLINT")
    )
