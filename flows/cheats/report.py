"""Prints what a bench found: the confusion matrix by family, and every scenario that went wrong."""

from __future__ import annotations

from typing import Any

from flows.cheats.matrix import CAUGHT_AT_LEAST, FAMILIES, HELD_AT_MOST, Outcome


def as_json(outcomes: list[Outcome], summary: dict[str, Any]) -> dict[str, Any]:
    """Everything as plain data."""
    return {
        "summary": summary,
        "outcomes": [
            {
                "id": outcome.id,
                "family": outcome.family,
                "kind": outcome.kind,
                "expect": outcome.expect,
                "row_id": outcome.row_id,
                "standing": outcome.standing,
                "is_gated": outcome.is_gated,
                "is_right": outcome.is_right,
                "failed": outcome.failed_screens,
                "screens": outcome.screens,
                "note": outcome.note,
                "disturbed": outcome.disturbed,
            }
            for outcome in outcomes
        ],
    }


def print_matrix(outcomes: list[Outcome], summary: dict[str, Any]) -> None:
    """The matrix as a table, then what did not come out as expected."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title="Cheat bench: faults by family", title_justify="left")
    table.add_column("family")
    for name in ("faults", "kept out", "by the right screen", "published"):
        table.add_column(name, justify="right")
    for family in FAMILIES:
        row = summary["families"][family]
        if row["faults"]:
            table.add_row(
                family, *(str(row[name]) for name in ("faults", "kept_out", "right_screen", "published"))
            )
    if summary["faults"]:
        console.print(table)
        console.print(
            f"faults caught   {summary['faults_caught']} of {summary['faults']}, "
            f"{summary['caught_share']:.1%} (required {CAUGHT_AT_LEAST:.0%})"
        )
    if summary["clean"]:
        console.print(
            f"clean held      {summary['clean_held']} of {summary['clean']}, {summary['held_share']:.2%} "
            f"(at most {HELD_AT_MOST:.0%}); published {summary['clean_published']}"
        )
    if summary["disturbed"]:
        console.print(
            f"measured again  {summary['disturbed']} clean cells that other work disturbed, by the witness's word; "
            f"{summary['disturbed_held']} of them had been held",
            soft_wrap=True,
        )
    console.print(f"time            {summary['seconds']:.0f} s")
    for outcome in outcomes:
        if outcome.kind == "fault" and not outcome.is_right:
            console.print(
                f"MISSED {outcome.id}: {outcome.standing}, failed {', '.join(outcome.failed_screens) or 'nothing'}; "
                f"expected {', '.join(outcome.expect)} {outcome.note}",
                soft_wrap=True,
            )
        elif outcome.kind == "clean" and not outcome.is_right:
            console.print(
                f"HELD   {outcome.id}: {outcome.standing}, failed {', '.join(outcome.failed_screens)} {outcome.note}",
                soft_wrap=True,
            )
