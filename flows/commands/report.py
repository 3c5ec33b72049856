"""`weighbridge report`: the page that a reader opens, and the files that may be handed on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """\
**Examples**

- `weighbridge report` — writes `publication/report.html`, with CSVs, evidence and chart data beside it

- `weighbridge report --out spring.html --page-only`

- `weighbridge report --database old/weighbridge.duckdb --out old/report.html`
"""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("report", epilog=EPILOG)(report)


def report(
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(
        "publication/report.html"
    ),
    database: Annotated[
        Path, typer.Option("--database", "-d", help="The published database.", envvar="WEIGHBRIDGE_DATABASE")
    ] = Path("warehouse/weighbridge.duckdb"),
    page_only: Annotated[
        bool, typer.Option("--page-only", help="Write no CSV, evidence or chart data.")
    ] = False,
) -> None:
    """Write the report: one HTML page that needs no network, and the publication's files beside it.

    Reads the published database and changes nothing in it.
    """
    from rich.console import Console

    from flows.report import write_publication, write_report

    console = Console(highlight=False)
    page = write_report(database, out)
    console.print(f"{'report':<10} {page}", soft_wrap=True)
    if not page_only:
        for path in write_publication(database, page.parent):
            console.print(f"{'':<10} {path}", soft_wrap=True, style="dim")
