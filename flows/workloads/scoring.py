"""Scores of arithmetic answers: strict and lenient extraction side by side, sample size and interval beside them.

Also reads what lm_eval and its relatives write, and says when a score is a scorer's failure and not the model's.
Regular expressions: lm_eval 0.4.12, gsm8k filters strict-match and flexible-extract, less their known traps.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from flows.workloads.needle import split_reasoning

GRADER = "arithmetic_v1"

_AFTER_MARK = re.compile(r"####\s*(?:\$\s*)?(-?\s*[$€£]?\s*[0-9][0-9.,]*|-?\.[0-9]+)")
_NUMBER = re.compile(r"(?<![\w.])-?\s?[$€£]?-?\d[\d,]*(?:\.\d+)?|(?<![\w.])-?\.\d+")
_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\text\s*\{)?\s*([^{}]*?)\s*\}")
_CALCULATOR = re.compile(r"<<[^<>]*>>")
# 95 % two-sided normal quantile, for Wilson's interval.
_Z = 1.959963984540054


def plain_number(text: str) -> str | None:
    """A number without commas, currency, spaces, a trailing period or trailing zeros; None when it is no number."""
    cleaned = re.sub(r"[\s$€£,_]", "", text.replace("{,}", "").replace("\\,", "")).rstrip(".").rstrip("%")
    try:
        value = Decimal(cleaned)
    except InvalidOperation:
        return None
    if not value.is_finite():
        return None
    value = value.normalize()
    return format(value if value != 0 else Decimal(0), "f")


def gold_answer(field: str) -> str | None:
    """The answer in a gsm8k `answer` field: what stands after the last ####, normalised. None where there is none."""
    if "####" in field:
        return plain_number(field.rpartition("####")[2].strip())
    return plain_number(_CALCULATOR.sub("", field).strip())


def strict_answer(text: str | None, reasoning: str | None = None) -> str | None:
    """What stands after the last #### of the visible answer: a reasoning block recites the examples' own."""
    visible, _ = split_reasoning(text, reasoning)
    found = _AFTER_MARK.findall(visible)
    return plain_number(found[-1]) if found else None


def lenient_answer(text: str | None, reasoning: str | None = None) -> str | None:
    """The answer however it was written: after ####, boxed, else the last number of the visible answer."""
    strict = strict_answer(text, reasoning)
    if strict is not None:
        return strict
    visible, _ = split_reasoning(text, reasoning)
    visible = _CALCULATOR.sub("", visible).replace("{,}", ",").replace("\\,", ",").replace("\\!", "")
    boxed = _BOXED.findall(visible)
    if boxed and (value := plain_number(re.sub(r"[^\d.,\-]", "", boxed[-1]))) is not None:
        return value
    said = re.findall(r"answer(?:\s+is)?\s*(?:[:=]|\bis\b)?\s*[*$€£\s]*(-?\d[\d,]*(?:\.\d+)?)", visible, re.I)
    if said:
        return plain_number(said[-1])
    found = [value for match in _NUMBER.findall(visible) if (value := plain_number(match)) is not None]
    return found[-1] if found else None


@dataclass(frozen=True)
class Marks:
    """One answer, judged both ways. found: what each way read; None where it read nothing."""

    is_strict: bool
    is_lenient: bool
    strict_found: str | None
    lenient_found: str | None
    is_empty: bool

    @property
    def why(self) -> str:
        if self.is_empty:
            return "the visible answer is empty"
        if self.is_strict:
            return "right after ####"
        if self.is_lenient:
            return "right, but not after ####"
        if self.lenient_found is None:
            return "no number in the answer"
        return "another number was given"


def mark(gold: str, text: str | None, reasoning: str | None = None) -> Marks:
    """Judge one answer to an arithmetic problem. An empty answer is never right, whatever its reasoning holds."""
    wanted = plain_number(gold)
    visible, _ = split_reasoning(text, reasoning)
    strict, lenient = strict_answer(text, reasoning), lenient_answer(text, reasoning)
    return Marks(
        is_strict=wanted is not None and strict == wanted,
        is_lenient=wanted is not None and lenient == wanted,
        strict_found=strict,
        lenient_found=lenient,
        is_empty=not visible,
    )


@dataclass(frozen=True)
class Share:
    """right of count, with Wilson's 95 % interval. Never shown without its size."""

    right: int
    count: int

    @property
    def value(self) -> float:
        return self.right / self.count

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.right, self.count)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.3f} ({low:.3f} to {high:.3f}, n={self.count})"


def wilson(right: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share. Raises ValueError for an empty sample: it has no share.

    E. B. Wilson, JASA 22 (1927): (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n).
    """
    if count <= 0:
        raise ValueError("an empty sample has no interval")
    share = right / count
    centre = share + _Z**2 / (2 * count)
    spread = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    scale = 1 + _Z**2 / count
    # The ends are exact at 0 and 1, where rounding would miss them by the last bit.
    low = 0.0 if right == 0 else (centre - spread) / scale
    high = 1.0 if right == count else (centre + spread) / scale
    return low, high


def compare(a: Share, b: Share, *, filter_a: str = "", filter_b: str = "") -> str:
    """`higher`, `lower` or `not_distinguished` for a against b, or `not_comparable` with different filters or sizes.

    Two sizes are never compared as equal: their intervals are of different width, and a small sample's score moves
    by more than the difference that is read from it.
    """
    if filter_a != filter_b:
        return "not_comparable"
    if a.count != b.count:
        return "not_comparable"
    if a.interval[0] > b.interval[1]:
        return "higher"
    if a.interval[1] < b.interval[0]:
        return "lower"
    return "not_distinguished"
