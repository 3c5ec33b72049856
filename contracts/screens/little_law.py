"""little_law: the load that was asked for is the load that was on the server."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, at_least

IDENTITY = Threshold(
    "max_difference",
    0.02,
    "share",
    "concurrency = throughput x latency is an identity; two percent is the edge of the window",
    "J. Little, A proof for the queuing formula L = lambda W, 1961; docs/design.md",
)
ACHIEVED = Threshold(
    "min_achieved",
    0.98,
    "share of asked",
    "a client that cannot hold the asked load measures itself",
    "docs/design.md; public report kubernetes-sigs/inference-perf#648: 80 to 320 asked, 15 to 20 achieved",
)
OPEN_LOOPS = ("constant", "poisson", "gamma", "trace")


def judge(row: Row) -> list[Part]:
    """Two parts: the identity, and what was achieved of what was asked."""
    certified, busy = row["certified_concurrency"], row["busy_concurrency"]
    if certified is None or not busy:
        identity = Part("identity", "unknown")
    else:
        difference = abs(certified / busy - 1)
        identity = Part("identity", "pass" if difference <= IDENTITY.value else "fail", difference)
    return [identity, _achieved(row)]


def _achieved(row: Row) -> Part:
    kind = row["shape_kind"]
    if kind in OPEN_LOOPS:
        return Part(
            "achieved", at_least(row["achieved_rate_ratio"], ACHIEVED.value), row["achieved_rate_ratio"]
        )
    if row["imported_rate_ratio"] is not None:
        return Part(
            "achieved", at_least(row["imported_rate_ratio"], ACHIEVED.value), row["imported_rate_ratio"]
        )
    # Sessions wait between turns by plan, and end one after another.
    if kind == "sessions":
        return Part("achieved", "not_applicable")
    achieved, asked = row["achieved_concurrency"], row["concurrency"]
    share = achieved / asked if achieved is not None and asked and row["has_cell_record"] else None
    return Part("achieved", at_least(share, ACHIEVED.value), share)


SCREEN = Screen(
    name="little_law",
    question="Did the client keep the asked load on the server?",
    passes_when="mean concurrency = throughput x latency within 2 %, and achieved concurrency (of an open loop: the "
    "rate of sends) is at least 98 % of the asked",
    unknown_when="the window's certificate or the instants of the requests are missing",
    not_applicable_when="achieved only: sessions wait between turns by plan",
    next_step="give the client more cores or processes, or call the cell an overload test",
    thresholds=(IDENTITY, ACHIEVED),
    judge=judge,
)
