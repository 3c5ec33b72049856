"""The files of a publication: what may be handed on beside the page. Every one carries standings and units.

    gated_rows.csv     the publishable rows, and nothing else
    failures.csv       bring-ups that failed and rows that do not publish, each with its reason
    evidence.json      every row with every verdict, every run, what was rescued, what was quarantined
    chart_data.json    what each chart of the page draws, by chart, with units
    datapackage.json   the columns of the CSVs: type, unit, meaning (a Frictionless data package)

CSV: a column's name ends in its unit, an empty field is what was not observed.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contracts.columns import COLUMNS
from contracts.errors import PublicationRefused
from flows import __version__
from flows.report.blocks import Chart
from flows.report.marts import Marts, Row, open_marts
from flows.report.page import make_sections
from flows.report.summary import campaigns, policies, quarantine
from flows.report.words import SCREENS, STANDING_MEANS, STANDINGS, unit_of

FAILURE_FIELDS = (
    "kind", "id", "campaign", "recipe", "engine", "model", "standing", "failure_class", "reason", "failed_screens",
    "unknown_screens",
)  # fmt: skip
ROW_ORDER = ("campaign", "recipe", "workload", "context_tokens", "users", "concurrency", "repeat", "row_id")


def write_files(database: Path, folder: Path) -> list[Path]:
    """Write the files, each whole or not at all. Raises PublicationRefused when gated_rows holds what may not be quoted."""
    with open_marts(database) as marts:
        rows = marts.rows("measured_rows", order=ROW_ORDER)
        gated = marts.rows("gated_rows", order=ROW_ORDER)
        runs = marts.rows("runs", order=("campaign", "run_id"))
        _refuse_unpublishable(gated, database)
        types = marts.columns("gated_rows")
        evidence = _evidence(marts, rows, runs)
        charts = [
            block
            for section in make_sections(marts)[0]
            for block in section.blocks
            if isinstance(block, Chart)
        ]
    folder.mkdir(parents=True, exist_ok=True)
    failures = [
        *map(_failed_run, filter(_has_failed, runs)),
        *map(_unpublished_row, filter(_is_unpublished, rows)),
    ]
    return [
        _write_csv(folder / "gated_rows.csv", list(types), gated),
        _write_csv(folder / "failures.csv", FAILURE_FIELDS, failures),
        _write_json(folder / "evidence.json", evidence),
        _write_json(folder / "chart_data.json", _chart_data(charts)),
        _write_json(folder / "datapackage.json", _data_package(types)),
    ]


def _refuse_unpublishable(gated: list[Row], database: Path) -> None:
    """The build refuses these too; a file that leaves the house is checked once more."""
    wrong = [row for row in gated if row.get("standing") != "publishable"]
    if wrong:
        raise PublicationRefused(
            f"gated_rows holds {len(wrong)} that may not be quoted",
            measured=", ".join(f"{row.get('row_id')} is {row.get('standing')}" for row in wrong[:3]),
            required="standing publishable",
            evidence=str(database),
            next_step="weighbridge build",
        )


def _has_failed(run: Row) -> bool:
    return bool(run.get("failure_class")) or run.get("state") not in ("served", None)


def _is_unpublished(row: Row) -> bool:
    return row.get("standing") != "publishable"


def _failed_run(run: Row) -> Row:
    return {
        **run,
        "kind": "run",
        "id": run.get("run_id"),
        "standing": "",
        "failure_class": run.get("failure_class") or run.get("state"),
        "reason": run.get("failure_summary"),
    }


def _unpublished_row(row: Row) -> Row:
    return {
        **row,
        "kind": "row",
        "id": row.get("row_id"),
        "reason": row.get("standing_reason"),
        "failed_screens": " ".join(name for name in SCREENS if row.get(name) == "fail"),
        "unknown_screens": " ".join(name for name in SCREENS if row.get(name) == "unknown"),
    }


def _evidence(marts: Marts, rows: list[Row], runs: list[Row]) -> dict[str, Any]:
    names = list(
        dict.fromkeys(
            name for table in ("measured_rows", "runs", "rescue_comparisons") for name in marts.columns(table)
        )
    )
    return {
        "written_by": f"weighbridge {__version__}",
        "campaigns": campaigns(rows, runs),
        "policies": policies(rows, runs),
        "standings": STANDING_MEANS,
        "counts": {
            standing: sum(1 for row in rows if row.get("standing") == standing) for standing in STANDINGS
        },
        "note": "Only rows of standing publishable may be quoted. null: not observed, never 0.",
        "units": {name: unit_of(name) for name in names if unit_of(name)},
        "rows": [_with_raw(row) for row in rows],
        "runs": [_with_raw(run) for run in runs],
        "rescues": marts.rows("rescue_comparisons"),
        "quarantine": quarantine(marts),
    }


def _with_raw(row: Row) -> Row:
    """The row, with where its raw evidence lies, relative to the project."""
    if row.get("campaign") and row.get("run_id"):
        return {**row, "raw": f"raw/{row['campaign']}/{row['run_id']}"}
    return row


def _chart_data(charts: Iterable[Chart]) -> dict[str, Any]:
    return {
        "written_by": f"weighbridge {__version__}",
        "standings": STANDING_MEANS,
        "note": "Every row says its standing; only publishable ones may be quoted.",
        "charts": [
            {
                "chart": each.name,
                "title": each.title,
                "about": each.caption,
                "units": each.units,
                "rows": each.rows,
            }
            for each in charts
        ],
    }


def _data_package(types: dict[str, str]) -> dict[str, Any]:
    def described(names: Iterable[str]) -> list[dict[str, str]]:
        return [_describe(name, types.get(name, "VARCHAR")) for name in names]

    return {
        "name": "weighbridge-publication",
        "resources": [
            {
                "name": "gated_rows",
                "path": "gated_rows.csv",
                "description": "Publishable rows only; grain: one row per row_id. An empty field was not observed.",
                "schema": {"fields": described(types), "missingValues": [""], "primaryKey": "row_id"},
            },
            {
                "name": "failures",
                "path": "failures.csv",
                "description": "Runs that failed (kind run) and rows that do not publish (kind row), none of them quotable.",
                "schema": {"fields": described(FAILURE_FIELDS), "missingValues": [""]},
            },
        ],
    }


def _describe(name: str, kind: str) -> dict[str, str]:
    """A column as the dictionary of columns has it: type, unit, meaning, and what an empty field means."""
    known = COLUMNS.get(name)
    described = {"name": name, "type": _frictionless(kind), "unit": unit_of(name)}
    if known is not None:
        described |= {"description": known.meaning, "empty_when": known.null}
    return {key: value for key, value in described.items() if value}


def _frictionless(kind: str) -> str:
    kind = kind.upper()
    if "INT" in kind:
        return "integer"
    if kind.startswith(("DOUBLE", "FLOAT", "DECIMAL")):
        return "number"
    if kind.startswith("TIMESTAMP"):
        return "datetime"
    return "boolean" if kind == "BOOLEAN" else "string"


def _write_csv(path: Path, names: Sequence[str], rows: Iterable[Row]) -> Path:
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow(
                json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value
                for value in (row.get(name) for name in names)
            )
    os.replace(part, path)
    return path


def _write_json(path: Path, content: dict[str, Any]) -> Path:
    part = path.with_name(path.name + ".part")
    part.write_text(
        json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )
    os.replace(part, path)
    return path
