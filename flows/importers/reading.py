"""Reads a result file whole before anything is judged: JSON, JSON lines or CSV, bare Infinity included."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.errors import BadInput
from flows.importers.result import RefusedResult

# A result file of a million requests with per-chunk gaps is below this; more is not a result file.
LARGEST_BYTES = 2 << 30


@dataclass
class Document:
    """One file as read. kind: json (data is one value), jsonl (data is a list of lines' values), csv (rows)."""

    path: Path
    kind: str
    data: Any
    notes: list[str] = field(default_factory=list)

    def keys(self) -> set[str]:
        """Top-level keys of the document, or of its first entry."""
        value = self.data
        if isinstance(value, list):
            value = value[0] if value else None
        return set(value) if isinstance(value, dict) else set()


def read_document(path: Path) -> Document:
    """Read one file. Raises BadInput when it cannot be opened, RefusedResult when it is torn or not of any kind."""
    try:
        if path.is_dir():
            raise BadInput(
                f"{path.name} is a folder", evidence=str(path), next_step="name the result files in it"
            )
        if path.stat().st_size > LARGEST_BYTES:
            raise BadInput(f"{path.name} is larger than any result file", evidence=str(path))
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path.name} cannot be read: {error.strerror}", evidence=str(path)) from None
    except UnicodeDecodeError as error:
        raise RefusedResult(f"{path.name} is not text: {error.reason}", evidence=str(path)) from None
    if not text.strip():
        raise RefusedResult(
            f"{path.name} is empty", evidence=str(path), next_step="give the file as the tool wrote it"
        )
    notes: list[str] = []
    if text.lstrip()[0] not in "[{":
        return Document(path, "csv", _read_csv(path, text))
    try:
        value = _decode(text, notes)
        if isinstance(value, dict) and path.suffix == ".jsonl":
            return Document(path, "jsonl", [value], notes)
        return Document(path, "json", value, notes)
    except json.JSONDecodeError as whole_file:
        notes.clear()
        return Document(path, "jsonl", _read_lines(path, text, notes, whole_file), notes)


def _read_lines(path: Path, text: str, notes: list[str], whole_file: json.JSONDecodeError) -> list[Any]:
    values = []
    for line_number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            values.append(_decode(line, notes))
        except json.JSONDecodeError as error:
            if line_number == 1:  # not JSON lines either: the first error is the one to show
                raise _torn(path, whole_file.lineno, whole_file.msg) from None
            raise _torn(path, line_number, error.msg) from None
    return values


def _torn(path: Path, line: int, why: str) -> RefusedResult:
    return RefusedResult(
        f"{path.name} is torn or not JSON: {why}",
        evidence=f"{path}:{line}",
        next_step="give the whole file; nothing of it was taken",
    )


def _decode(text: str, notes: list[str]) -> Any:
    def constant(name: str) -> float:
        note = f"holds a bare {name}, which is not strict JSON; read as no number"
        if note not in notes:
            notes.append(note)
        return float(name.replace("Infinity", "inf"))

    return json.loads(text, parse_constant=constant)


def _read_csv(path: Path, text: str) -> list[list[str]]:
    rows = list(csv.reader(io.StringIO(text)))
    if sum(len(row) > 1 for row in rows) < 2:
        raise RefusedResult(
            f"{path.name} is neither JSON, JSON lines nor CSV",
            evidence=f"{path}:1",
            next_step="docs/import.md lists the formats that are read",
        )
    return rows
