"""Verdicts of screens and standings of rows, with their precedence. Kept in one place, for SQL and Python alike.

A screen looks at one or more parts. Its verdict is that of its worst part: `fail`, else `unknown`, else `pass`, else
`not_applicable`. A part is `not_applicable` only by a rule written in the screen's own file; what is missing is
`unknown`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["pass", "fail", "unknown", "not_applicable"]
Standing = Literal["invalid", "held", "provisional", "publishable"]

VERDICT_PRECEDENCE: tuple[Verdict, ...] = ("fail", "unknown", "pass", "not_applicable")
STANDING_PRECEDENCE: tuple[Standing, ...] = ("invalid", "held", "provisional", "publishable")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """One thing that a screen looked at, as measured; None where it was not observed."""

    name: str
    verdict: Verdict
    measured: float | None = None


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a screen from those of its parts. Raises ValueError when there are none."""
    return min(verdicts, key=VERDICT_PRECEDENCE.index)


def at_most(measured: float | None, limit: float) -> Verdict:
    """pass up to `limit`; unknown when not measured; NaN and infinity fail."""
    if measured is None:
        return "unknown"
    return "pass" if math.isfinite(measured) and measured <= limit else "fail"


def at_least(measured: float | None, limit: float) -> Verdict:
    """pass from `limit` on; unknown when not measured; NaN and infinity fail."""
    if measured is None:
        return "unknown"
    return "pass" if math.isfinite(measured) and measured >= limit else "fail"


def within(measured: float | None, low: float, high: float) -> Verdict:
    """pass between `low` and `high`; unknown when not measured; NaN and infinity fail."""
    if measured is None:
        return "unknown"
    return "pass" if math.isfinite(measured) and low <= measured <= high else "fail"


def standing(is_invalid: bool, required: Iterable[Verdict]) -> Standing:
    """The standing of a row from the verdicts of the screens that its policy requires.

    An empty policy publishes nothing: no evidence is not a pass.
    """
    verdicts = list(required)
    if is_invalid:
        return "invalid"
    if "fail" in verdicts:
        return "held"
    if "unknown" in verdicts or not verdicts:
        return "provisional"
    return "publishable"
