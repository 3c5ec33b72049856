"""What a screen is: its question, its numbers with their reasons, and its judgement of a row's evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from contracts.verdicts import Part, Row, Verdict, worst


@dataclass(frozen=True)
class Threshold:
    """A number that decides. It lives here and nowhere else: dbt reads it from the generated seed."""

    name: str
    value: float
    unit: str
    reason: str
    source: str


@dataclass(frozen=True)
class Screen:
    """One named check of a row of `int_row_evidence`.

    judge: the parts of the verdict, in the order of the SQL model `int_screen_<name>`, which must say the same.
    not_applicable_when: the rule under which the screen has nothing to say; "never" where there is none.
    next_step: what someone whose row is held by it can do.
    """

    name: str
    question: str
    passes_when: str
    unknown_when: str
    not_applicable_when: str
    next_step: str
    thresholds: tuple[Threshold, ...]
    judge: Callable[[Row], list[Part]]

    def verdict(self, row: Row) -> Verdict:
        """The verdict on a row of evidence."""
        return worst(part.verdict for part in self.judge(row))
