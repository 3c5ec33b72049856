"""`weighbridge import`: other tools' result files into raw, judged by the same screens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

EPILOG = """
**Examples**

`weighbridge import result.json`

`weighbridge import bench-c*.json --metrics-before m0.txt --metrics-after m1.txt --json`

`weighbridge import profile_export.jsonl profile_export_aiperf.json` puts a summary and its requests together
"""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(name="import", epilog=EPILOG)(import_results)


def import_results(
    files: list[Path] = typer.Argument(help="Result files of any known tool (docs/import.md)."),
    metrics_before: Path = typer.Option(None, help="The engine's /metrics as it was before the first row."),
    metrics_after: Path = typer.Option(None, help="The engine's /metrics as it was after the last row."),
    raw: Path = typer.Option(Path("raw"), help="Where raw evidence lands."),
    campaign: str = typer.Option("imported", help="The campaign that the rows are filed under."),
    build: bool = typer.Option(
        False, "--build", help="Judge in the published warehouse, with everything in raw."
    ),
    warehouse: Path = typer.Option(Path("warehouse"), help="Where the warehouse is, for --build."),
    as_json: bool = typer.Option(False, "--json", help="Print the rows as JSON on standard output."),
) -> None:
    """Read other tools' result files, keep them in raw, recompute their headline figures, judge them."""
    from flows.importers import import_files
    from flows.importers.judge import judge_runs

    _refuse_bad_name(campaign)
    runs = import_files(
        files, raw, campaign=campaign, metrics_before=metrics_before, metrics_after=metrics_after
    )
    rows = judge_runs(runs, raw=raw, warehouse=warehouse if build else None)
    if as_json:
        typer.echo(json.dumps({"rows": rows}, indent=2))
        return
    _print(rows, runs)


def _refuse_bad_name(campaign: str) -> None:
    import re

    from contracts.errors import BadInput

    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", campaign):
        raise BadInput(
            f"{campaign!r} cannot name a campaign",
            required="lower-case letters, digits, dot, dash, underscore",
        )


def _print(rows: list[dict[str, Any]], runs: list[Any]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    for row in rows:
        console.print(f"[bold]{escape(row['row_id'])}[/bold]  {row['tool']}  standing {row['standing']}")
        for state in ("fail", "unknown"):
            names = [name for name, verdict in row["screens"].items() if verdict == state]
            if names:
                console.print(f"  {state:<8} {', '.join(names)}", soft_wrap=True)
        shown = {name: value for name, value in row["figures"].items() if value is not None}
        for name in (
            "requests_ok",
            "request_rps",
            "output_tokens_per_s",
            "ttft_p50_ms",
            "tpot_p50_ms",
            "e2e_p50_ms",
        ):
            if name in shown:
                console.print(f"  {name:<22} {shown[name]:,.3f}")
        for difference in row["differences"]:
            ours = difference["recomputed"]
            console.print(
                f"  {difference['figure']}: file {difference['claimed']:.6g}, "
                f"recomputed {'none' if ours is None else f'{ours:.6g}'}: {escape(difference['why'])}",
                soft_wrap=True,
            )
        for note in row["notes"]:
            console.print(f"  note     {escape(note)}", soft_wrap=True)
    for run in runs:
        console.print(f"raw      {run.path}", soft_wrap=True)
