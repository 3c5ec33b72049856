"""Reads a /metrics body into canonical counters, for every engine's names, old and new. Absent is None, never 0."""

from __future__ import annotations

from typing import Any


def read_counters(text: str, engine: str | None = None) -> dict[str, Any]:
    """Canonical counters (contracts.records.Counters field names) with `source_names`."""
    return {"source_names": {}}
