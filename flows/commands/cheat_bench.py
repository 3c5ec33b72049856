"""`weighbridge cheat-bench`: faults and clean runs on the reference server, and what the screens made of them."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import typer

EPILOG = """
**Examples**

`weighbridge cheat-bench` runs every scenario of tests/cheats and prints the confusion matrix

`weighbridge cheat-bench --scenarios my-faults/ --json`

`weighbridge cheat-bench --only cache-seed-repeated --keep bench-out` keeps raw and warehouse to look at
"""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(name="cheat-bench", epilog=EPILOG)(cheat_bench)


def cheat_bench(
    scenarios: Path = typer.Option(Path("tests/cheats"), help="A folder of scenario files, or one file."),
    only: list[str] = typer.Option(
        [], "--only", help="Run this scenario and no other unasked; may be given more than once."
    ),
    family: list[str] = typer.Option(
        [], "--family", help="Run this family, beside --only; may be given more than once."
    ),
    kind: str = typer.Option("all", help="fault, clean or all."),
    clean: int = typer.Option(
        None, "--clean", min=0, help="Clean cells in all; the file's own number unless given."
    ),
    keep: Path = typer.Option(None, help="Keep raw evidence and the warehouse in this folder."),
    as_json: bool = typer.Option(
        False, "--json", help="Print outcomes and summary as JSON on standard output."
    ),
) -> None:
    """Run cheats through the real client, raw, dbt and contracts, and print what was caught and what was held."""
    from flows.cheats import bench, matrix, report
    from flows.cheats.scenario import load_scenarios

    chosen = _choose(load_scenarios(scenarios), only, family, kind, clean)
    started = time.monotonic()
    notice = (lambda _: None) if as_json else lambda text: typer.echo(text, err=True)
    with tempfile.TemporaryDirectory(prefix="weighbridge-cheats-") as scratch:
        outcomes = bench.run_bench(chosen, keep or Path(scratch), notice=notice)
    summary = matrix.summarise(outcomes)
    summary["seconds"] = round(time.monotonic() - started, 1)
    if as_json:
        typer.echo(json.dumps(report.as_json(outcomes, summary), indent=2))
    else:
        report.print_matrix(outcomes, summary)
    if not matrix.reaches(summary):
        raise typer.Exit(1)


def _choose(found: list, only: list[str], family: list[str], kind: str, clean: int | None) -> list:
    from difflib import get_close_matches

    from contracts.errors import BadInput

    ids = [scenario.id for scenario in found]
    for name in only:
        if name not in ids:
            near = get_close_matches(name, ids, n=1)
            raise BadInput(
                f"no scenario is called {name}", next_step=f"did you mean {near[0]}?" if near else None
            )
    if kind not in ("all", "fault", "clean"):
        raise BadInput(f"--kind is {kind!r}", required="fault, clean or all")
    chosen = [
        scenario
        for scenario in found
        if (not (only or family) or scenario.id in only or scenario.family in family)
        and kind in ("all", scenario.kind)
    ]
    if not chosen:
        raise BadInput("nothing to run", next_step="see --only, --family and --kind")
    return _limit_clean(chosen, clean)


def _limit_clean(chosen: list, clean: int | None) -> list:
    """Spread `clean` cells over the clean scenarios, in proportion to their own numbers."""
    if clean is None:
        return chosen
    total = sum(scenario.times for scenario in chosen if scenario.kind == "clean")
    limited, given, seen = [], 0, 0
    for scenario in chosen:
        if scenario.kind != "clean":
            limited.append(scenario)
            continue
        seen += scenario.times
        times = round(clean * seen / total) - given
        given += times
        if times:
            limited.append(scenario.model_copy(update={"times": times}))
    return limited
