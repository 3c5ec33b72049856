"""The confusion matrix of a bench: what each fault and each clean cell came to, by family."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FAMILIES = (
    "cache", "first token", "tokens", "failures", "load", "windows", "clock", "configuration", "quality", "cost",
)  # fmt: skip
# The bounds: shares of faults kept out for the right screen, and of clean cells held.
CAUGHT_AT_LEAST = 0.98
HELD_AT_MOST = 0.01
# Standings of a clean cell that count as held; `absent` is a row that is not there.
HELD = ("held", "invalid", "absent")


@dataclass
class Outcome:
    """One scenario's result. standing: of its row, or `absent` (no row: the build refused or quarantined it).

    disturbed: how often a clean cell was measured before, while the machine had other work; disturbed_held: how many of
    those rows were held. Neither is judged.
    """

    id: str
    family: str
    kind: str
    expect: list[str]
    row_id: str | None
    standing: str
    screens: dict[str, str] = field(default_factory=dict)
    is_gated: bool = False
    note: str = ""
    disturbed: int = 0
    disturbed_held: int = 0

    @property
    def failed_screens(self) -> list[str]:
        return [name for name, verdict in self.screens.items() if verdict == "fail"]

    @property
    def is_kept_out(self) -> bool:
        return not self.is_gated

    @property
    def is_right(self) -> bool:
        """A fault kept out for the right reason; a clean cell that was not held."""
        if self.kind == "clean":
            return self.standing not in HELD
        return self.is_kept_out and any(_meets(expected, self) for expected in self.expect)


def _meets(expected: str, outcome: Outcome) -> bool:
    """`screen` must fail; `screen: unknown` (given as "screen=unknown") must be unknown; `raw`: refused before any row."""
    if expected == "raw":
        return outcome.standing in ("absent", "invalid")
    name, _, verdict = expected.partition("=")
    return outcome.screens.get(name) == (verdict or "fail")


def summarise(outcomes: list[Outcome]) -> dict[str, Any]:
    """Counts by family and the two shares that the bench must reach."""
    families = {}
    for family in FAMILIES:
        faults = [outcome for outcome in outcomes if outcome.family == family and outcome.kind == "fault"]
        families[family] = {
            "faults": len(faults),
            "kept_out": sum(outcome.is_kept_out for outcome in faults),
            "right_screen": sum(outcome.is_right for outcome in faults),
            "published": sum(outcome.is_gated for outcome in faults),
        }
    faults = [outcome for outcome in outcomes if outcome.kind == "fault"]
    clean = [outcome for outcome in outcomes if outcome.kind == "clean"]
    held = [outcome for outcome in clean if outcome.standing in HELD]
    return {
        "families": families,
        "faults": len(faults),
        "faults_caught": sum(outcome.is_right for outcome in faults),
        "caught_share": _share(sum(outcome.is_right for outcome in faults), len(faults)),
        "clean": len(clean),
        "clean_held": len(held),
        "clean_published": sum(outcome.is_gated for outcome in clean),
        "held_share": _share(len(held), len(clean)),
        "disturbed": sum(outcome.disturbed for outcome in clean),
        "disturbed_held": sum(outcome.disturbed_held for outcome in clean),
    }


def reaches(summary: dict[str, Any]) -> bool:
    """Whether the bench's two bounds are met; a bench without faults (or without clean cells) meets that bound."""
    caught, held = summary["caught_share"], summary["held_share"]
    return (caught is None or caught >= CAUGHT_AT_LEAST) and (held is None or held <= HELD_AT_MOST)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
