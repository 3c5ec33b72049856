"""weighbridge explain: every screen's verdict on a row, measured against required, with evidence and next step."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import typer

from contracts.errors import BadInput
from contracts.policies import required_screens


def register(app: typer.Typer) -> None:
    """Add `explain` to the command."""

    @app.command()
    def explain(
        row_id: str = typer.Argument(help="<run_id>/<cell_id>, as in marts.measured_rows."),
        warehouse: Path = typer.Option(
            Path("warehouse"), "--warehouse", help="Folder of the published database."
        ),
        as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    ) -> None:
        """Say why a row stands as it does: every screen, measured against required, and what to do."""
        found = explain_row(warehouse / "weighbridge.duckdb", row_id)
        typer.echo(json.dumps(found, default=str) if as_json else as_text(found))


def explain_row(database: Path, row_id: str) -> dict[str, Any]:
    """The row's standings, faults and screens, each with its parts, evidence and next step.

    Raises BadInput when there is no database, or no such row (with the nearest names).
    """
    if not database.exists():
        raise BadInput(f"there is no warehouse at {database}", next_step="weighbridge build")
    import duckdb

    with duckdb.connect(str(database), read_only=True) as connection:
        rows = _dicts(connection, "select * from marts.measured_rows where row_id = ?", row_id)
        if not rows:
            known = [
                row[0] for row in connection.execute("select row_id from marts.measured_rows").fetchall()
            ]
            near = difflib.get_close_matches(row_id, known, n=3, cutoff=0.3)
            raise BadInput(
                f"there is no row {row_id!r}",
                required="a row_id of marts.measured_rows" + (f", such as {', '.join(near)}" if near else ""),
                evidence=str(database),
                next_step="weighbridge show measured_rows lists them",
            )
        screens = _dicts(
            connection,
            "select results.*, texts.passes_when, texts.next_step, texts.screen_order"
            " from intermediate.int_screen_results as results"
            " inner join seeds.screen_texts as texts on results.screen = texts.screen"
            " where row_id = ? order by texts.screen_order",
            row_id,
        )
        quarantine = _dicts(
            connection,
            "select file, line, reason, detail from staging.stg_quarantine"
            " where run_id = ? and (cell_id = ? or cell_id is null) order by file, line limit 20",
            *row_id.split("/", 1),
        )
    row = rows[0]
    required = required_screens(row["policy"])
    return {
        "row_id": row_id,
        "standing": row["standing"],
        "standing_original": row["standing_original"],
        "standing_strict": row["standing_strict"],
        "policy": row["policy"],
        "reason": row["standing_reason"],
        "evidence": row["raw_file"],
        "sha256": row["raw_sha256"],
        "quarantine": quarantine,
        "screens": [
            {
                "screen": one["screen"],
                "verdict": one["verdict"],
                "is_required": one["screen"] in required,
                "measured": one["measured"],
                "required": one["required"],
                "unit": one["unit"],
                "reason": one["reason"],
                "evidence": one["evidence"],
                "passes_when": one["passes_when"],
                "next": one["next_step"] if one["verdict"] in ("fail", "unknown") else None,
                "parts": one["parts"],
            }
            for one in screens
        ],
    }


def as_text(found: dict[str, Any]) -> str:
    """The explanation for a reader: the standing first, then what does not pass, then the rest."""
    lines = [
        f"{found['row_id']}: {found['standing']} under {found['policy']} "
        f"(original: {found['standing_original']}, strict: {found['standing_strict']})",
        f"  evidence {found['evidence']}" + (f", sha256 {found['sha256'][:12]}" if found["sha256"] else ""),
    ]
    if found["standing"] == "invalid":
        lines.append(f"  broken: {found['reason']}")
    for line in found["quarantine"]:
        lines.append(f"  quarantined {line['file']}:{line['line']} {line['reason']}: {line['detail']}")
    order = {"fail": 0, "unknown": 1, "pass": 2, "not_applicable": 3}
    for one in sorted(found["screens"], key=lambda one: (order[one["verdict"]], not one["is_required"])):
        lines.append("")
        lines.append(
            f"{one['verdict']:>14}  {one['screen']}" + ("" if one["is_required"] else "  (not required)")
        )
        for part in one["parts"]:
            if one["verdict"] in ("fail", "unknown") or part["verdict"] != "not_applicable":
                lines.append(f"{'':16}{_part(part)}")
        if one["next"]:
            lines.append(f"{'':16}evidence {one['evidence']}")
            lines.append(f"{'':16}next: {one['next']}")
    return "\n".join(lines)


def _part(part: dict[str, Any]) -> str:
    measured = "nothing" if part["measured"] is None else f"{part['measured']:,.6g}"
    return (
        f"{part['part']}: {part['verdict']}, measured {measured} {part['unit']}, required {part['required']}"
        f" ({part['reason']})"
    )


def _dicts(connection: Any, query: str, *values: Any) -> list[dict[str, Any]]:
    found = connection.execute(query, list(values))
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
