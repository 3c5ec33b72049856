"""weighbridge build: from raw to the judged, published warehouse."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from flows.warehouse import build_warehouse


def register(app: typer.Typer) -> None:
    """Add `build` to the command."""

    @app.command()
    def build(
        raw: Path = typer.Option(Path("raw"), "--raw", help="Folder of the raw evidence."),
        warehouse: Path = typer.Option(
            Path("warehouse"), "--warehouse", help="Folder of the published database."
        ),
        full: bool = typer.Option(
            False, "--full", help="Read and hash all of raw again, not only what changed."
        ),
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Build and judge the warehouse beside the published one, then swap it in whole."""
        result = build_warehouse(raw, warehouse, _teller(), is_full=full)
        if as_json:
            content = {
                "database": str(result.database), "runs": result.runs, "new_runs": result.new_runs,
                "rows": result.rows, "standings": result.standings, "quarantined_lines": result.quarantined_lines,
                "refused_files": result.refused_files,
                "seconds": {name: round(value, 2) for name, value in result.seconds.items()},
            }  # fmt: skip
            typer.echo(json.dumps(content))
            return
        standings = ", ".join(f"{count} {name}" for name, count in result.standings.items()) or "no rows"
        typer.echo(
            f"{result.database}: {result.runs} runs ({result.new_runs} new), {result.rows} rows: {standings}"
        )
        if result.quarantined_lines or result.refused_files:
            typer.echo(
                f"{result.quarantined_lines} raw line(s) quarantined, {result.refused_files} file(s) not taken: "
                "see staging.stg_quarantine and staging.stg_files"
            )


def _teller() -> Callable[[str], None]:
    """Progress on standard error: one changing line in a terminal; elsewhere a line a step, without dbt's nodes."""
    is_terminal = sys.stderr.isatty()

    def say(text: str) -> None:
        if is_terminal:
            typer.echo(f"\r\033[K{text[:100]}", err=True, nl=text.startswith("published"))
        elif not text.startswith("dbt "):
            typer.echo(text, err=True)

    return say
