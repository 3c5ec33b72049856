"""From record kinds to columns: strict decoders and Arrow schemas, both derived from contracts.records.

The shape of a raw line is written once, in contracts.records. Here it becomes a decoder that refuses an unknown
field and a wrong type, and an Arrow schema. Lists and objects become JSON text; the gaps between chunks, by far the
largest field, stay undecoded (`msgspec.Raw`) and are read in bulk by flows.warehouse.gaps.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa

from contracts.fields import GAP_FIELDS, USER_GAPS, fields_of
from contracts.records import KINDS, Record

_ARROW = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "json": pa.string(),
}

# Which folder of a run holds which kind.
FOLDERS = {
    "cells": "cell",
    "requests": "request",
    "windows": "window",
    "counters": "counters",
    "grades": "grade",
    "telemetry": "telemetry",
    "probes": "probe",
    "imported": "imported_result",
}
SINGLES = {
    "run_start.jsonl": "run_start",
    "node.jsonl": "node",
    "bring_up.jsonl": "bring_up",
    "run_end.jsonl": "run_end",
}
# Kinds of which a file holds exactly one line: a second is a duplicate.
ONE_LINE = frozenset({"run_start", "node", "bring_up", "run_end", "cell", "window", "imported_result"})


@dataclass(frozen=True)
class Shape:
    """One kind of record as columns. getter: a record's values in the order of names.

    json_at, counted_at: positions of JSON text, and of counts and instants, which are never negative.
    """

    kind: str
    decoder: msgspec.json.Decoder[Any]
    schema: pa.Schema
    names: tuple[str, ...]
    json_at: frozenset[int]
    counted_at: frozenset[int]
    getter: Callable[[Any], tuple[Any, ...]]


@cache
def shape(kind: str) -> Shape:
    """The shape of a record kind. Raises KeyError for a kind that contracts.records does not know."""
    fields = fields_of(kind)
    schema = [pa.field(field.name, _ARROW[field.type]) for field in fields]
    schema += [pa.field("file", pa.string()), pa.field("line", pa.int64())]
    if kind == "request":
        schema += [pa.field(name, pa.int64()) for name in GAP_FIELDS]
        schema.append(pa.field(USER_GAPS, pa.list_(pa.int64())))
    return Shape(
        kind=kind,
        decoder=msgspec.json.Decoder(_strict(KINDS[kind])),
        schema=pa.schema(schema),
        names=tuple(field.name for field in fields),
        json_at=frozenset(at for at, field in enumerate(fields) if field.type == "json"),
        counted_at=frozenset(at for at, field in enumerate(fields) if field.type == "int"),
        getter=operator.attrgetter(*(field.name for field in fields)),
    )


def kind_of(path: str) -> str | None:
    """The record kind that a path inside a run folder must hold; None for artefacts and for strangers."""
    if path in SINGLES:
        return SINGLES[path]
    folder, _, name = path.partition("/")
    return FOLDERS.get(folder) if name.endswith(".jsonl") else None


def cell_of(path: str) -> str | None:
    """The cell that a path inside a run folder belongs to; None where it belongs to the run."""
    folder, _, name = path.partition("/")
    if folder in FOLDERS and folder != "probes":
        return name.removesuffix(".jsonl")
    return None


def _strict(struct: type[Record]) -> type[Any]:
    changed = [("chunk_gap_ns", msgspec.Raw, msgspec.Raw(b"[]"))] if struct is KINDS["request"] else []
    return msgspec.defstruct(
        f"Strict{struct.__name__}", changed, bases=(struct,), kw_only=True, forbid_unknown_fields=True
    )
