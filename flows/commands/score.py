"""`weighbridge score`: what score files and files of answers support, with sample size and interval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from flows.workloads import score_files


def register(app: typer.Typer) -> None:
    @app.command()
    def score(
        files: list[Path] = typer.Argument(..., help="lm_eval results, summaries, or JSONL of answers."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    ) -> None:
        """Read scores or grade answers: strict and lenient side by side, and what must not be published or compared."""
        readings = [reading for path in files for reading in score_files.read_scores(path)]
        if as_json:
            body = {"readings": readings, "comparisons": score_files.compare_readings(readings)}
            typer.echo(json.dumps(body, indent=2))
            return
        for reading in readings:
            _tell(reading)
        for pair in score_files.compare_readings(readings):
            typer.echo(f"{pair['a']} against {pair['b']}: {pair['verdict']}, {pair['why']}")


def _tell(reading: dict[str, Any]) -> None:
    typer.echo(f"{reading['where']}: {reading['kind']}")
    for score in reading.get("scores", []):
        low_high = score["interval_95"]
        interval = f" ({low_high[0]:.3f} to {low_high[1]:.3f})" if low_high else ""
        size = f"n={score['n']}" if score["n"] is not None else "n unknown"
        typer.echo(
            f"  {score['task']} {score['filter']}: {score['value']:.4f}{interval}, {size}, {score['status']}"
        )
        for reason in score["reasons"]:
            typer.echo(f"    {reason}")
    if "gold" in reading:
        typer.echo(f"  gold {reading['gold']}")
    if reading.get("verdict") is not None:
        typer.echo(f"  {reading['verdict']}: {reading['why']}")
