"""`weighbridge docs`: the static dbt docs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("docs")(docs)


def docs(
    raw: Annotated[
        Path, typer.Option("--raw", help="Raw evidence; the docs do not read it.", hidden=True)
    ] = Path("raw"),
    warehouse: Annotated[Path, typer.Option("--warehouse", help="Folder of the published warehouse.")] = Path(
        "warehouse"
    ),
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(
        "publication/docs/index.html"
    ),
) -> None:
    """Write every model, column and exposure with its lineage into one page that opens offline."""
    from flows.warehouse.docs import write_docs

    page = write_docs(raw, warehouse, out)
    typer.echo(f"{page}: open it in a browser; the lineage graph is at its lower right")
