"""`weighbridge review`: one campaign beside earlier ones."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from contracts.errors import BadInput

DATABASE = Path("warehouse/weighbridge.duckdb")
PAGES = Path("publication/review")


def register(app: typer.Typer) -> None:
    app.command("review")(review)


def review(
    campaign: str = typer.Option(..., "--campaign", help="The campaign to review."),
    against: list[str] = typer.Option(
        None,
        "--against",
        help="An earlier campaign; give it again for more. Default: all that started earlier.",
    ),
    database: Path = typer.Option(DATABASE, "--database", help="The published warehouse."),
    out: Path = typer.Option(
        None, "--out", help="Where the page goes. Default: publication/review/<campaign>.html."
    ),
    as_json: bool = typer.Option(
        False, "--json", help="Print the findings as JSON, and write no page unless --out."
    ),
) -> None:
    """Show how medians and distributions moved against earlier campaigns. For a person: it gates nothing."""
    # Pandas and Great Expectations take seconds to import; no other command pays for that.
    from contracts.review import review_campaign
    from flows.review_page import render_review

    current, earlier, names = _read_rows(database, campaign, against or [])
    found = review_campaign(current, earlier, campaign, names)
    page = out or (None if as_json else PAGES / f"{campaign}.html")
    if page:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(render_review(found), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    moved = [finding for finding in found.findings if finding.verdict == "moved"]
    unknown = sum(finding.verdict == "unknown" for finding in found.findings)
    for finding in moved:
        change = "" if finding.change_share is None else f" ({finding.change_share:+.1%})"
        typer.echo(
            f"moved: {finding.metric}, {finding.subject}: {finding.earlier:g} -> {finding.current:g}{change}"
        )
    typer.echo(f"{len(moved)} moved, {unknown} not judged, of {len(found.findings)} findings; page {page}")


def _read_rows(database: Path, campaign: str, against: list[str]):  # type: ignore[no-untyped-def]
    """measured_rows of the campaign and of the earlier ones, as pandas frames, and the earlier ones' names."""
    import duckdb

    if not database.exists():
        raise BadInput(f"there is no warehouse at {database}", next_step="weighbridge build")
    with duckdb.connect(str(database), read_only=True) as connection:
        started = dict(
            connection.execute(
                "select campaign, min(started_at) as started_at from marts.runs group by all order by all"
            ).fetchall()
        )
        for name in [campaign, *against]:
            if name not in started:
                raise BadInput(
                    f"there is no campaign {name} in {database}",
                    measured=name,
                    required="one of " + (", ".join(started) or "none: the warehouse is empty"),
                )
        if campaign in against:
            raise BadInput(f"campaign {campaign} cannot be reviewed against itself")
        names = against or [
            name for name, at in started.items() if name != campaign and at < started[campaign]
        ]
        query = "select * from marts.measured_rows where list_contains(?, campaign)"
        frames = [connection.execute(query, [chosen]).df() for chosen in ([campaign], names)]
    return frames[0], frames[1], names
