"""The campaign review: does this campaign still look like the earlier ones?

Not a gate. Screens judge a row by itself; a review puts a campaign beside earlier ones of the same cells and shows a
person where medians and distributions have moved. Great Expectations judges, on small pandas frames, and is imported
only here and only when a review is asked for (its import alone takes seconds of CPU).
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Cells that may be put beside each other: everything that a reader would call "the same measurement".
CELL_KEYS = (
    "source", "model", "engine", "recipe", "gpus", "workload", "variant", "concurrency", "context_tokens",
)  # fmt: skip
METRICS = {
    "output_tokens_per_s": "output tokens/s",
    "ttft_ms_p50": "median TTFT, ms",
    "tpot_ms_p50": "median TPOT, ms",
}

# A median may move by the earlier campaigns' own spread (three times their scaled MAD: about 3 sigma for normal
# noise), and never less than 5 %, the width that `sample_size` accepts for a published interval: a tighter bound
# would flag differences that the rows themselves do not resolve.
MEDIAN_SPREADS = 3.0
MEDIAN_FLOOR_SHARE = 0.05
MAD_TO_SIGMA = 1.4826
# Kullback-Leibler divergence over five bins of equal earlier weight; 0.1 nats is the usual "population stability"
# line between slight and real change. Two samples of one distribution diverge by chi-squared(bins - 1) / 2n, so small
# samples are allowed their 99th percentile of that. Bins need about five rows each to mean anything.
DIVERGENCE_NATS = 0.1
DIVERGENCE_CONFIDENCE = 0.99
DIVERGENCE_BINS = 5
DIVERGENCE_MIN_ROWS = 5 * DIVERGENCE_BINS
# The share of publishable rows is a rate over few rows: moved when it leaves the earlier rate by this much.
SHARE_POINTS = 0.10


@dataclass(frozen=True)
class Finding:
    """One judged expectation. verdict: steady, moved, or unknown (with the reason in `note`)."""

    kind: str
    subject: str
    metric: str
    earlier: float | None
    earlier_rows: int
    current: float | None
    current_rows: int
    low: float | None
    high: float | None
    verdict: str
    note: str | None = None

    @property
    def change_share(self) -> float | None:
        """Relative change of the current against the earlier value; null where either is absent or 0."""
        if not self.earlier or self.current is None:
            return None
        return self.current / self.earlier - 1


@dataclass
class Review:
    """What a review found. has_drift is null when nothing could be judged: no evidence is not steadiness."""

    campaign: str
    against: list[str]
    findings: list[Finding] = field(default_factory=list)
    missing_cells: list[str] = field(default_factory=list)
    new_cells: list[str] = field(default_factory=list)

    @property
    def has_drift(self) -> bool | None:
        if any(finding.verdict == "moved" for finding in self.findings):
            return True
        # An equal share of publishable rows is no sign that the figures stood still.
        is_judged = any(finding.verdict == "steady" for finding in self.findings if finding.kind != "share")
        return False if is_judged else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        findings = [asdict(finding) | {"change_share": finding.change_share} for finding in self.findings]
        return {
            "campaign": self.campaign,
            "against": self.against,
            "has_drift": self.has_drift,
            "findings": findings,
            "missing_cells": self.missing_cells,
            "new_cells": self.new_cells,
        }


def review_campaign(
    current: pd.DataFrame, earlier: pd.DataFrame, campaign: str, against: list[str]
) -> Review:
    """Put the rows of one campaign beside those of earlier campaigns, cell by cell.

    Both frames have the columns of `marts.measured_rows`. Rows of standing `invalid` are left out of figures: their
    measurement is broken. A cell that only one side has is listed, and never judged.
    """
    review = Review(campaign, against)
    keys = [key for key in CELL_KEYS if key in current.columns and key in earlier.columns]
    now, before = _by_cell(current, keys), _by_cell(earlier, keys)
    review.missing_cells = sorted(set(before) - set(now))
    review.new_cells = sorted(set(now) - set(before))
    shared = sorted(set(now) & set(before))
    for metric in METRICS:
        if metric not in current.columns or metric not in earlier.columns:
            continue
        pairs = {cell: (_figures(now[cell], metric), _figures(before[cell], metric)) for cell in shared}
        pairs = {cell: pair for cell, pair in pairs.items() if len(pair[0]) and len(pair[1])}
        review.findings += _judge_medians(metric, pairs)
        review.findings.append(_judge_distribution(metric, pairs))
    review.findings.append(_judge_publishable_share(current, earlier))
    return review


def median_bounds(figures: pd.Series) -> tuple[float, float]:
    """Where a median may lie: the earlier median, give or take its spread. Unit: that of the figures."""
    middle = float(figures.median())
    spread = MEDIAN_SPREADS * MAD_TO_SIGMA * float((figures - middle).abs().median())
    room = max(spread, MEDIAN_FLOOR_SHARE * abs(middle))
    return middle - room, middle + room


def divergence_bound(current_rows: int, earlier_rows: int) -> float:
    """The divergence that two samples of these sizes may show without a change, in nats (G-test)."""
    from scipy.stats import chi2

    pooled = 1 / (1 / current_rows + 1 / earlier_rows)
    noise = float(chi2.ppf(DIVERGENCE_CONFIDENCE, DIVERGENCE_BINS - 1)) / (2 * pooled)
    return max(DIVERGENCE_NATS, noise)


def _by_cell(frame: pd.DataFrame, keys: list[str]) -> dict[str, pd.DataFrame]:
    kept = frame[frame["standing"] != "invalid"]
    return {
        " · ".join(
            f"{key} {_plain(value)}" for key, value in zip(keys, values, strict=True) if _is_said(value)
        ): group
        for values, group in kept.groupby(keys, dropna=False)
    }


def _is_said(value: Any) -> bool:
    return value is not None and value != "" and value == value


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _figures(group: pd.DataFrame, metric: str) -> pd.Series:
    return group[metric].dropna().astype(float).reset_index(drop=True)


def _judge_medians(metric: str, pairs: dict[str, tuple[pd.Series, pd.Series]]) -> list[Finding]:
    import pandas as pd

    if not pairs:
        return []
    cells = list(pairs)
    frame = pd.DataFrame({f"cell_{index}": pairs[cell][0] for index, cell in enumerate(cells)})
    bounds = [median_bounds(pairs[cell][1]) for cell in cells]
    suite = [
        ("ExpectColumnMedianToBeBetween", {"column": f"cell_{index}", "min_value": low, "max_value": high})
        for index, (low, high) in enumerate(bounds)
    ]
    findings = []
    for cell, (low, high), is_met in zip(cells, bounds, _validate(frame, suite), strict=True):
        now, before = pairs[cell]
        findings.append(
            Finding(
                "median",
                cell,
                metric,
                float(before.median()),
                len(before),
                float(now.median()),
                len(now),
                low,
                high,
                "steady" if is_met else "moved",
                "one earlier row: the bound is the 5 % floor" if len(before) == 1 else None,
            )
        )
    return findings


def _judge_distribution(metric: str, pairs: dict[str, tuple[pd.Series, pd.Series]]) -> Finding:
    """Every figure as a ratio to its cell's earlier median, pooled over cells: one distribution on each side."""
    import numpy as np
    import pandas as pd

    empty = pd.Series(dtype=float)
    scaled = [
        (now / before.median(), before / before.median()) for now, before in pairs.values() if before.median()
    ]
    now = pd.concat([pair[0] for pair in scaled]) if scaled else empty
    before = pd.concat([pair[1] for pair in scaled]) if scaled else empty
    base = ("distribution", "all shared cells", metric)
    if min(len(now), len(before)) < DIVERGENCE_MIN_ROWS:
        note = f"needs {DIVERGENCE_MIN_ROWS} rows on both sides"
        return Finding(*base, None, len(before), None, len(now), None, DIVERGENCE_NATS, "unknown", note)
    bound = divergence_bound(len(now), len(before))
    edges = np.unique(np.quantile(before, np.linspace(0, 1, DIVERGENCE_BINS + 1)))
    if len(edges) < 3:
        note = "the earlier rows do not vary"
        return Finding(*base, None, len(before), None, len(now), None, DIVERGENCE_NATS, "unknown", note)
    # What the current campaign has beyond the earlier range counts in the outer bins: it is drift all the same.
    inside = now.clip(edges[0], edges[-1])
    weights = np.histogram(before, edges)[0] / len(before)
    partition = {"bins": edges.tolist(), "weights": weights.tolist()}
    suite = [
        (
            "ExpectColumnKLDivergenceToBeLessThan",
            {"column": "ratio", "partition_object": partition, "threshold": bound},
        )
    ]
    is_met = _validate(pd.DataFrame({"ratio": inside}), suite)[0]
    shares = np.histogram(inside, edges)[0] / len(inside)
    nats = float(sum(p * math.log(p / q) for p, q in zip(shares, weights, strict=True) if p > 0))
    return Finding(*base, 0.0, len(before), nats, len(now), None, bound, "steady" if is_met else "moved")


def _judge_publishable_share(current: pd.DataFrame, earlier: pd.DataFrame) -> Finding:
    import pandas as pd

    base = ("share", "all rows", "publishable_share")
    if not len(current) or not len(earlier):
        note = "one side has no rows"
        return Finding(*base, None, len(earlier), None, len(current), None, None, "unknown", note)
    now = (current["standing"] == "publishable").astype(float)
    before = float((earlier["standing"] == "publishable").mean())
    low, high = max(0.0, before - SHARE_POINTS), min(1.0, before + SHARE_POINTS)
    suite = [("ExpectColumnMeanToBeBetween", {"column": "share", "min_value": low, "max_value": high})]
    is_met = _validate(pd.DataFrame({"share": now}), suite)[0]
    verdict = "steady" if is_met else "moved"
    return Finding(*base, before, len(earlier), float(now.mean()), len(current), low, high, verdict)


def _validate(frame: pd.DataFrame, suite: list[tuple[str, dict[str, Any]]]) -> list[bool]:
    """Whether each expectation is met, in order. Raises RuntimeError when one could not be evaluated."""
    # Set before the import: the library reads it once.
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("marts").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    met = []
    for name, arguments in suite:
        result = batch.validate(getattr(gx.expectations, name)(**arguments))
        failure = result.exception_info or {}
        if any(
            isinstance(part, dict) and part.get("raised_exception") for part in failure.values()
        ) or failure.get("raised_exception"):
            raise RuntimeError(f"{name} on {arguments['column']} could not be evaluated: {failure}")
        met.append(bool(result.success))
    return met
