"""Judges imported runs with the warehouse's own screens, in a warehouse of their own unless the main one is asked for."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contracts.records import ImportedResult
from flows.landing import RunFolder, read_records


def judge_runs(
    runs: Sequence[RunFolder], *, raw: Path, warehouse: Path | None = None
) -> list[dict[str, Any]]:
    """Verdicts of every row of `runs`, in the order in which they were imported.

    Each: row_id, tool, standing, screens (the sixteen), figures (the mart's columns and the file's own headline),
    recomputed, differences, notes, missing.
    warehouse: build that one from all of raw; None builds a temporary one over only these runs.
    """
    if warehouse is not None:
        from flows.warehouse import build_warehouse

        build_warehouse(raw, warehouse)
        return _read(warehouse / "weighbridge.duckdb", runs)
    with tempfile.TemporaryDirectory(prefix="weighbridge-import-") as scratch:
        from flows.warehouse import build_warehouse

        alone = Path(scratch) / "raw"
        for run in runs:
            shutil.copytree(run.path, alone / run.campaign / run.run_id)
        build_warehouse(alone, Path(scratch) / "warehouse")
        return _read(Path(scratch) / "warehouse" / "weighbridge.duckdb", runs)


def _read(database: Path, runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    import duckdb

    from contracts.screens import SCREENS

    connection = duckdb.connect(str(database), read_only=True)
    try:
        relation = connection.sql("select * from marts.measured_rows")
        names = relation.columns
        found = {
            row["row_id"]: row
            for row in (dict(zip(names, values, strict=True)) for values in relation.fetchall())
        }
    finally:
        connection.close()
    rows = []
    for run in runs:
        for path in sorted((run.path / "imported").glob("*.jsonl")):
            result = read_records(path, ImportedResult)[0]
            row_id = f"{run.run_id}/{result.cell_id}"
            verdict = found[row_id]
            rows.append(
                {
                    "row_id": row_id,
                    "tool": result.tool,
                    "tool_version": result.tool_version,
                    "source_file": result.source_file,
                    "row_in_file": result.row_in_file,
                    "standing": verdict["standing"],
                    "screens": {name: verdict[name] for name in SCREENS},
                    "figures": {**_figures(verdict), **result.headline},
                    "recomputed": result.recomputed,
                    "differences": result.differences,
                    "notes": result.notes,
                    "missing": result.missing,
                }
            )
    return rows


def _figures(row: dict[str, Any]) -> dict[str, float | int]:
    """The numbers of a mart row, under the mart's names; absent ones are left out."""
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
