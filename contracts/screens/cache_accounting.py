"""cache_accounting: as many prompt tokens came from the prefix cache as the workload declares, by two witnesses."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, Verdict, within

COLD = Threshold(
    "cold_max_share",
    0.01,
    "share of prompt tokens",
    "fresh prompts share nothing; one percent leaves room for a chat template's first block",
    "public report vllm-project/vllm#54227: hits over queries in the window at most the declared budget",
)


def judge(row: Row) -> list[Part]:
    """Two parts, usage and counters. Either one that shows contamination fails the row.

    One witness is enough to pass: llama.cpp states cached tokens by usage and has no such counter. Where one is
    present the other is not_applicable when absent; where both are absent, both are unknown.
    """
    usage, counters = row["cached_share_usage"], row["cached_share_counters"]
    low, high = budget(row)
    return [_part("usage", usage, counters, low, high), _part("counters", counters, usage, low, high)]


def budget(row: Row) -> tuple[float, float | None]:
    """The declared share, from and to; no upper end where the workload declares none and expects no cold prompts."""
    high = row["cache_budget_max"]
    if high is None and row["is_cold_expected"]:
        high = COLD.value
    return row["cache_budget_min"] or 0.0, high


def _part(name: str, share: float | None, other: float | None, low: float, high: float | None) -> Part:
    verdict: Verdict
    if share is None:
        verdict = "unknown" if other is None else "not_applicable"
    elif high is None:
        verdict = "unknown"
    else:
        verdict = within(share, low, high)
    return Part(name, verdict, share)


SCREEN = Screen(
    name="cache_accounting",
    question="Is the share of prompt tokens served from the prefix cache within the declared budget?",
    passes_when="cached/prompt tokens are within the declared budget (at most 1 % for fresh prompts), by usage and by "
    "the engine's counters over the window, whichever are present",
    unknown_when="neither usage nor counters say (absent is null, never 0), or the workload declares no budget",
    not_applicable_when="one of the two witnesses, where only the other is present",
    next_step="give every prompt a first block of its own, restart the server between sweeps, or declare the sharing",
    thresholds=(COLD,),
    judge=judge,
)
