"""Edits of evidence: what a cheat writes down other than what happened, as data over any record of contracts.records.

An edit `before_seal` is a lie under a valid seal: the file says what the edit says, and its hash agrees. An edit
`after_seal` is tampering: the file differs from its seal.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import Field, model_validator

from contracts.records import KINDS, SCHEMA_VERSION
from flows.landing import RunFolder
from flows.recipe import Strict

# Where the records of a kind lie in a run folder; {cell} is the cell that the scenario measured.
PLACES = {
    "run_start": "run_start.jsonl",
    "node": "node.jsonl",
    "bring_up": "bring_up.jsonl",
    "cell": "cells/{cell}.jsonl",
    "request": "requests/{cell}.jsonl",
    "window": "windows/{cell}.jsonl",
    "counters": "counters/{cell}.jsonl",
    "grade": "grades/{cell}.jsonl",
    "telemetry": "telemetry/{cell}.jsonl",
    "probe": "probes/{phase}.jsonl",
    "run_end": "run_end.jsonl",
}
# Records of the whole run: a scenario that edits one of these gets a run of its own.
RUN_WIDE = {"run_start", "node", "bring_up", "probe", "run_end", "grade"}


class Edit(Strict):
    """One edit of one kind of record.

    where: fields and the values (or lists of values) that a record must have. every: only each n-th of those.
    first, last: only so many of those from the start or the end. cell: the cell whose records are edited, `own` (the
    scenario's) or `needle` (the run's needle cell). phase: for probes.
    set: field -> value, a dotted name reaches into a mapping. scale, add: for numbers (each element, for a list).
    copy_from: field -> the field of the same record whose value it takes. unique: text fields that get a value of
    their own in every record. drop: the records are left out. insert: records that never were, as their own fields;
    `times` of each.
    repeat: the records are written so many times. delete_file: the file is not landed at all.
    """

    record: str
    when: Literal["before_seal", "after_seal"] = "before_seal"
    cell: Literal["own", "needle"] = "own"
    phase: Literal["before", "after"] = "after"
    where: dict[str, Any] = Field(default={})
    every: int = Field(default=1, ge=1)
    first: int | None = Field(default=None, ge=1)
    last: int | None = Field(default=None, ge=1)
    set: dict[str, Any] = Field(default={})
    scale: dict[str, float] = Field(default={})
    add: dict[str, float] = Field(default={})
    copy_from: dict[str, str] = Field(default={})
    unique: list[str] = Field(default=[])
    drop: bool = False
    insert: list[dict[str, Any]] = Field(default=[])
    times: int = Field(default=1, ge=1)
    repeat: int = Field(default=1, ge=1)
    delete_file: bool = False

    @model_validator(mode="after")
    def _check(self) -> Edit:
        if self.record not in PLACES:
            near = difflib.get_close_matches(self.record, PLACES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(PLACES)}"
            raise ValueError(f"no record is called {self.record!r}; {hint}")
        fields = KINDS[self.record].__struct_fields__
        named = [*self.where, *self.set, *self.scale, *self.add, *self.copy_from, *self.copy_from.values()]
        named += [*self.unique, *(name for record in self.insert for name in record)]
        for name in named:
            if name.split(".")[0] not in fields:
                near = difflib.get_close_matches(name, fields, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ValueError(f"{self.record} has no field {name!r}{hint}")
        changes = (
            self.set,
            self.scale,
            self.add,
            self.copy_from,
            self.unique,
            self.insert,
            self.drop,
            self.delete_file,
        )
        if not any(changes) and self.repeat == 1:
            raise ValueError(
                "an edit that changes nothing; give set, scale, add, copy_from, unique, insert, drop, repeat or "
                "delete_file"
            )
        return self

    @property
    def is_run_wide(self) -> bool:
        return self.record in RUN_WIDE or self.cell == "needle"

    def path(self, cell_id: str, needle_cell_id: str | None) -> str:
        """The file inside the run folder that this edit is about."""
        cell = needle_cell_id if self.cell == "needle" and needle_cell_id else cell_id
        return PLACES[self.record].format(cell=cell, phase=self.phase)


def apply(edit: Edit, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records after one edit. Records that the edit does not choose stay as they are, in order."""
    chosen = [place for place, line in enumerate(lines) if _fits(line, edit.where)][:: edit.every]
    if edit.first is not None:
        chosen = chosen[: edit.first]
    if edit.last is not None:
        chosen = chosen[-edit.last :]
    edited: list[dict[str, Any]] = []
    picked = set(chosen)
    for place, line in enumerate(lines):
        if place not in picked:
            edited.append(line)
            continue
        if edit.drop:
            continue
        changed = msgspec.json.decode(msgspec.json.encode(line))
        for name, source in edit.copy_from.items():
            _put(changed, name, _get(line, source))
        for name, factor in edit.scale.items():
            _put(changed, name, _each(_get(changed, name), lambda value, factor=factor: value * factor))  # type: ignore[misc]
        for name, amount in edit.add.items():
            _put(changed, name, _each(_get(changed, name), lambda value, amount=amount: value + amount))  # type: ignore[misc]
        for name, value in edit.set.items():
            _put(changed, name, value)
        for name in edit.unique:
            value = f"{_get(line, name)}/{place}".encode()
            _put(changed, name, hashlib.sha256(value).hexdigest())
        edited += [changed] * edit.repeat
    return edited


def inserted(edit: Edit, own: dict[str, str]) -> list[dict[str, Any]]:
    """The records that an edit invents, with their kind, campaign, run and cell filled in."""
    base = {"record": edit.record, "schema_version": SCHEMA_VERSION, **own}
    if "cell_id" not in KINDS[edit.record].__struct_fields__:
        base.pop("cell_id", None)
    return [{**base, **record} for record in edit.insert for _ in range(edit.times)]


def reseal(source: Path, target: RunFolder, edits: Iterable[tuple[Edit, str, str | None]]) -> list[str]:
    """Copy a finished run with edits applied, sealing every file anew; then tamper with what is edited after the seal.

    edits: (edit, cell id, needle cell id). Returns the edited files. The source stays as it was measured.
    """
    own = {"campaign": target.campaign, "run_id": target.run_id}
    wanted: dict[str, list[tuple[Edit, str]]] = {}
    later: dict[str, list[tuple[Edit, str]]] = {}
    for edit, cell_id, needle in edits:
        name = edit.path(cell_id, needle)
        (wanted if edit.when == "before_seal" else later).setdefault(name, []).append((edit, cell_id))
    landed = list(RunFolder(source).seals())
    for name in [*landed, *(name for name in wanted if name not in landed)]:
        here = wanted.get(name, [])
        if any(edit.delete_file for edit, _ in here):
            continue
        data = (source / name).read_bytes() if name in landed else b""
        target.part(name).write_bytes(_edited(data, here, own) if here else data)
        target.land(name)
    for name, after in later.items():
        path = target.path / name
        path.write_bytes(_edited(path.read_bytes(), after, own))
    return sorted({*wanted, *later})


def _edited(data: bytes, edits: list[tuple[Edit, str]], own: dict[str, str]) -> bytes:
    lines = [msgspec.json.decode(line) for line in data.splitlines() if line]
    for edit, cell_id in edits:
        lines = [*apply(edit, lines), *inserted(edit, {**own, "cell_id": cell_id})]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _fits(line: dict[str, Any], where: dict[str, Any]) -> bool:
    for name, wanted in where.items():
        value = _get(line, name)
        if value not in wanted if isinstance(wanted, list) else value != wanted:
            return False
    return True


def _get(line: dict[str, Any], name: str) -> Any:
    value: Any = line
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _put(line: dict[str, Any], name: str, value: Any) -> None:
    *path, last = name.split(".")
    for part in path:
        inner = line.get(part)
        if not isinstance(inner, dict):
            inner = {}
            line[part] = inner
        line = inner
    line[last] = value


def _each(value: Any, change: Any) -> Any:
    """A number changed, a list changed element by element; whole numbers stay whole; null stays null."""
    if isinstance(value, list):
        return [_each(inner, change) for inner in value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    changed = change(value)
    return round(changed) if isinstance(value, int) else changed
