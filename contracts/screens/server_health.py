"""server_health: the server that ends the window is the one that began it, and as well."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, Verdict, at_most

PREEMPTIONS = Threshold(
    "max_preemptions_per_request",
    0.01,
    "preemptions/request",
    "a preempted request is computed twice; beyond one in a hundred the cell measures a full cache",
    "docs/screens.md",
)
FIRST_WAVE = Threshold(
    "max_first_wave_ratio",
    2.0,
    "first wave / later",
    "a first wave twice as slow as the rest met a compiler or a graph capture inside the window",
    "public report ai-dynamo/dynamo PR #12176: 1126 ms against 147 and 144; max/median of repeats <= 2",
)
PROBES = Threshold(
    "max_probe_share_lost",
    0.0,
    "share of probes",
    "a probe that passed before load and fails after decides the handover",
    "series index: one HTTP 500 after 128,156 clean requests",
)


def judge(row: Row) -> list[Part]:
    """Four parts: restart, preemptions, compile, probes."""
    return [_restart(row), _preemptions(row), _first_wave(row), _probes(row)]


def _restart(row: Row) -> Part:
    if row["has_restarted"]:
        return Part("restart", "fail")
    is_seen = row["has_both_edges"] and row["is_restart_observed"]
    return Part("restart", "pass" if is_seen else "unknown")


def _preemptions(row: Row) -> Part:
    rate = row["preemptions_per_request"]
    return Part("preemptions", at_most(rate, PREEMPTIONS.value), rate)


def _first_wave(row: Row) -> Part:
    ratio = row["first_wave_ratio"]
    # With fewer than three waves nothing can be told apart; steady_state is unknown then.
    verdict: Verdict = "not_applicable" if ratio is None else at_most(ratio, FIRST_WAVE.value)
    return Part("first_wave", verdict, ratio)


def _probes(row: Row) -> Part:
    lost = row["probe_share_lost"]
    if lost is not None and lost > PROBES.value:
        return Part("probes", "fail", lost)
    is_known = row["kinds_before"] and row["kinds_compared"] == row["kinds_before"]
    return Part("probes", "pass" if is_known else "unknown", lost)


SCREEN = Screen(
    name="server_health",
    question="Did the server stay the same and stay well through the window and after it?",
    passes_when="no restart, no preemption storm, no compile inside the window, and probes after load as good as before",
    unknown_when="not scraped before and after, or probes were not asked before and after",
    not_applicable_when="first_wave only: fewer than three waves of requests",
    next_step="scrape /metrics, ask probes before and after; warm every shape up before its window",
    thresholds=(PREEMPTIONS, FIRST_WAVE, PROBES),
    judge=judge,
)
