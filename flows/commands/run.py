"""`weighbridge run`: a campaign from its file to the published warehouse."""

from __future__ import annotations

import json
from pathlib import Path

import typer

REHEARSAL = "rehearsal"
EPILOG = """
**Examples**

`weighbridge run campaigns/quickstart.yaml`

`weighbridge run campaigns/one-gpu.yaml --plan` prints cells, requests, tokens, hours and cost, and starts nothing

`weighbridge run campaigns/quickstart.yaml --resume` goes on from what is sealed

`weighbridge run campaigns/multi-gpu.yaml --rehearse` tries all but the engines before a node is borrowed
"""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(name="run", epilog=EPILOG)(run)


def run(
    campaign: Path = typer.Argument(help="The campaign file."),
    plan: bool = typer.Option(False, "--plan", help="Print what would run, and start nothing."),
    resume: bool = typer.Option(False, "--resume", help="Go on with the last execution of this campaign."),
    rehearse: bool = typer.Option(
        False,
        "--rehearse",
        help="Put reference servers in the engines' place, into a folder of its own: rehearsal/.",
    ),
    recipe: list[str] = typer.Option(
        [], "--recipe", help="Run only this recipe; may be given more than once."
    ),
    raw: Path | None = typer.Option(None, help="Where raw evidence lands.", show_default="raw"),
    warehouse: Path | None = typer.Option(
        None, help="Where the warehouse is built.", show_default="warehouse"
    ),
    publication: Path | None = typer.Option(
        None, help="Where the report and the docs are written.", show_default="publication"
    ),
    build: bool = typer.Option(True, help="Build and judge the warehouse and write the report afterwards."),
    as_json: bool = typer.Option(False, "--json", help="Print the outcome as JSON on standard output."),
) -> None:
    """Run a campaign: bring recipes up, measure, keep the failures, build and judge, write the report."""
    from flows.campaign_file import load_campaign

    definition = load_campaign(campaign, is_rehearsed=rehearse)
    _refuse_unknown_recipes(recipe, [known.name for known in definition.recipes], campaign)
    if plan:
        from flows.plan_table import print_plan

        print_plan(definition, as_json=as_json)
        return
    from flows import prefect_server
    from flows.progress import Display

    # What a rehearsal lands is synthetic and must not lie beside what was measured.
    base = Path(REHEARSAL) if rehearse else Path()
    display = Display()
    with display.running(
        f"campaign {definition.name}", steps=1 + len(definition.recipes) + (3 if build else 0)
    ):
        display.step("starting Prefect")
        with prefect_server.serving():
            from flows.measure import measure

            outcome = measure(
                campaign,
                raw=raw or base / "raw",
                warehouse=warehouse or base / "warehouse",
                publication=publication or base / "publication",
                is_resumed=resume,
                recipes=recipe or None,
                is_published=build,
                is_rehearsed=rehearse,
                display=display,
            )
    if as_json:
        typer.echo(json.dumps(outcome, indent=2))
        return
    _print_outcome(outcome)


def _refuse_unknown_recipes(asked: list[str], known: list[str], campaign: Path) -> None:
    from difflib import get_close_matches

    from contracts.errors import BadInput

    for name in asked:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise BadInput(f"no recipe {name}", evidence=str(campaign), next_step=hint)


def _print_outcome(outcome: dict) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if outcome.get("database"):
        from flows.report.tables import print_rows

        print_rows(Path(outcome["database"]), console, campaign=outcome["campaign"])
    console.print()
    for label, key in (
        ("database", "database"),
        ("report", "report"),
        ("dbt docs", "docs"),
        ("raw files", "raw"),
    ):
        if outcome.get(key):
            console.print(f"{label:<10} {outcome[key]}", soft_wrap=True)
