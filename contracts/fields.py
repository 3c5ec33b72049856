"""The fields of a raw record as plain columns: name, type, whether null may stand there.

Derived from contracts.records, so that the digest, the staging models and the documentation cannot disagree with it.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from contracts.records import KINDS

ColumnType = Literal["bool", "int", "float", "text", "json"]

# A request's gaps are reduced when it is digested (flows.warehouse.gaps); its texts stay in raw, where they are
# evidence: no mart needs them.
NOT_CARRIED: dict[str, frozenset[str]] = {
    "request": frozenset({"chunk_gap_ns", "output_text", "reasoning_text", "tool_calls"}),
}

# What the digest writes in place of a request's gaps. The first gap is the wait for the first token and is left out
# of minimum and maximum, which are null where fewer than two chunks came.
GAP_FIELDS = ("gap_count", "gap_sum_ns", "gap_min_ns", "gap_max_ns", "gap_negative_count")
# Kept whole only where several users share a window (ramps, interference): how one user's tokens came while another's
# prompt was prefilled cannot be read from a sum. Null for every other request.
USER_GAPS = "user_gap_ns"


@dataclass(frozen=True)
class RawField:
    """One column of a record kind. type json: a list or an object, kept as JSON text."""

    name: str
    type: ColumnType
    is_nullable: bool


@cache
def fields_of(kind: str) -> tuple[RawField, ...]:
    """The carried fields of a record kind, in the record's order. Raises KeyError for an unknown kind."""
    left_out = NOT_CARRIED.get(kind, frozenset())
    found = []
    for field in msgspec.structs.fields(KINDS[kind]):
        if field.name not in left_out:
            parts = _parts(field.type)
            found.append(RawField(field.name, _column_type(parts), type(None) in parts))
    return tuple(found)


def _column_type(parts: list[Any]) -> ColumnType:
    plain = {get_origin(part) or part for part in parts if part is not type(None)}
    if plain == {bool}:
        return "bool"
    if plain == {int}:
        return "int"
    if plain <= {int, float}:
        return "float"
    if plain <= {str, Literal}:
        return "text"
    return "json"


def _parts(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return [inner for part in get_args(annotation) for inner in _parts(part)]
    return [annotation]
