"""Charts as Vega-Lite specifications. Only publishable rows are filled and joined by a line.

Colours are of Okabe and Ito (2008), chosen to be told apart by colour-blind readers; a standing is a shape as well.
Ink, grid and background are left to the page, so that a chart follows light, dark and print.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import ceil, floor, log10
from statistics import median
from typing import Any

from flows.report.marts import Row
from flows.report.words import STANDINGS, say_tokens

PALETTE = ("#1F7FBF", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7F7F7F")
# The same shapes as the marks in words.STANDING_MARK.
SHAPES = {
    "publishable": "circle",
    "provisional": "triangle-up",
    "held": "diamond",
    "invalid": "M-1,-1L1,1M1,-1L-1,1",
}

# More series than colours cannot be told apart; the rest are in the rows table and in the chart's data.
MOST_SERIES = len(PALETTE)
# A point that may not be quoted stretches the axis at most this far beyond those that may.
EDGE = 1.5
# A range beyond this hides its small values on a linear axis.
LOG_RANGE = 30.0


def _altair() -> Any:
    """Altair without its own validation of every channel, which takes most of a page's time; a test compiles every chart."""
    import altair
    from altair.utils import schemapi

    schemapi.disable_debug_mode()
    return altair


def against_concurrency(rows: Sequence[Row], y: str, y_title: str, top: str | None = None) -> dict[str, Any]:
    """A quantity against concurrency, a colour a series. top: a higher percentile, drawn as a thin bar above."""
    alt = _altair()

    drawn = [row for row in rows if row.get(y) is not None and row.get("concurrency")]
    # Hollow points last, or a filled one at the same place would hide them.
    drawn.sort(key=lambda row: STANDINGS.index(row["standing"]) if row["standing"] in STANDINGS else 0)
    levels = sorted({row["concurrency"] for row in drawn})
    series = list(dict.fromkeys(row["series"] for row in drawn))
    colour = _colour(alt, "series", series)
    x = alt.X("concurrency:Q", title="concurrency, requests in flight").scale(
        type="log" if len(levels) > 1 else "linear", base=2, nice=False, padding=16
    )
    if len(levels) > 1:
        x = x.axis(values=levels, grid=False, format="d")
    scale = _scale(alt, drawn, y, top)
    axis = alt.Y(f"{y}:Q", title=y_title, scale=scale)
    if scale.to_dict().get("type") == "log":
        axis = axis.axis(values=_log_ticks(*scale.to_dict()["domain"]))
    layers = []
    if top:
        bars = [row for row in drawn if row.get(top) is not None and row["standing"] == "publishable"]
        if bars:
            layers.append(
                alt.Chart(_data(alt, bars, ("concurrency", y, top, "series")))
                .mark_rule(strokeWidth=1.2)
                .encode(x=x, y=axis, y2=f"{top}:Q", color=colour)
            )
    line = list(_medians(drawn, y))
    if line:
        layers.append(
            alt.Chart(_data(alt, line, ("concurrency", y, "series")))
            .mark_line(strokeWidth=2)
            .encode(x=x, y=axis, color=colour)
        )
    layers.append(_points(alt, drawn, x, axis, colour, [y, *([top] if top else [])]))
    return _finish(alt.layer(*layers), height=240)


def _medians(rows: Iterable[Row], y: str) -> Iterable[Row]:
    """The median of publishable repeats at each concurrency: what the line joins."""
    kept = sorted(
        (row for row in rows if row["standing"] == "publishable"),
        key=lambda row: (row["series"], row["concurrency"]),
    )
    for (series, concurrency), group in groupby(kept, key=lambda row: (row["series"], row["concurrency"])):
        yield {"series": series, "concurrency": concurrency, y: median(row[y] for row in group)}


def _scale(alt: Any, rows: Sequence[Row], y: str, top: str | None) -> Any:
    """An axis made for what may be quoted: a held row of implausible speed must not flatten it, and sits on its edge."""
    good = [
        row[column]
        for row in rows
        if row["standing"] == "publishable"
        for column in (y, top)
        if column and row.get(column)
    ]
    every = [row[y] for row in rows if row[y] > 0]
    if good and max(every, default=0) <= EDGE * max(good):
        good = [*good, *every]
    values = good or every
    if not values:
        return alt.Scale(zero=True)
    low, high = min(values), max(values)
    if high / low > LOG_RANGE:
        return alt.Scale(type="log", domain=[low * 0.8, high * 1.25], clamp=True, nice=False)
    return alt.Scale(domain=[0, high * 1.06], clamp=True, nice=False)


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every decade of the domain; every digit of each would be a wall of lines."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    return [
        digit * 10.0**decade
        for decade in decades
        for digit in (1, 2, 5)
        if low <= digit * 10.0**decade <= high
    ]


def _points(alt: Any, rows: Sequence[Row], x: Any, y: Any, colour: Any, columns: Sequence[str]) -> Any:
    present = [standing for standing in STANDINGS if any(row["standing"] == standing for row in rows)]
    shape = alt.Shape("standing:N", legend=None).scale(domain=present, range=[SHAPES[s] for s in present])
    is_publishable = alt.datum.standing == "publishable"
    keep = ["concurrency", "series", "standing", "row_id", "context_tokens", "repeat", *columns]
    return (
        alt.Chart(_data(alt, rows, keep))
        .mark_point(size=64, strokeWidth=1.8)
        .encode(
            x=x,
            y=y,
            color=colour,
            shape=shape,
            fill=_fill(alt, colour),
            opacity=alt.condition(is_publishable, alt.value(1.0), alt.value(0.75)),
            tooltip=[
                alt.Tooltip(f"{name}:{'N' if name in ('series', 'standing', 'row_id') else 'Q'}")
                for name in keep
            ],
        )
    )


def recall_by_depth(rows: Sequence[Row]) -> dict[str, Any]:
    """Planted facts found, by depth and context: a square a cell of the grid, the share written in it.

    rows: series, context_tokens, depth_pct, found, asked.
    """
    alt = _altair()

    drawn = [
        {
            **row,
            "share": row["found"] / row["asked"],
            "text": f"{row['found']}/{row['asked']}",
            "context": say_tokens(row["context_tokens"]) or "?",
            "depth": f"{row['depth_pct']:g} %",
        }
        for row in rows
        if row.get("asked")
    ]
    contexts = list(
        dict.fromkeys(r["context"] for r in sorted(drawn, key=lambda r: r["context_tokens"] or 0))
    )
    depths = list(dict.fromkeys(r["depth"] for r in sorted(drawn, key=lambda r: r["depth_pct"])))
    keep = ("series", "context", "context_tokens", "depth", "share", "text", "found", "asked")
    base = alt.Chart(_data(alt, drawn, keep)).encode(
        x=alt.X("context:N", sort=contexts, title="context, tokens").axis(labelAngle=0, grid=False),
        y=alt.Y("depth:N", sort=depths, title="depth of the fact").axis(grid=False),
    )
    cells = base.mark_rect(stroke="white", strokeWidth=1.5).encode(
        color=alt.Color("share:Q", title="found")
        .scale(domain=[0, 1], range=["#F6E7D8", "#1F7FBF"])
        .legend(None),
        tooltip=[alt.Tooltip(f"{name}:N") for name in ("series", "context", "depth", "text")],
    )
    # Written on its own square: dark on pale, pale on dark.
    text = base.mark_text(fontSize=12, fontWeight=600).encode(
        text="text:N", color=alt.condition(alt.datum.share > 0.55, alt.value("white"), alt.value("#3a2a16"))
    )
    return _finish(alt.layer(cells, text), height=max(70, 34 * len(depths)))


def recall_by_turn(rows: Sequence[Row]) -> dict[str, Any]:
    """Whether the first fact came back at each turn: filled where it did, hollow where it did not.

    rows: series (recipe and how many users), turn, found, asked, standing.
    """
    alt = _altair()

    drawn = [
        {**row, "share": row["found"] / row["asked"], "text": f"{row['found']} of {row['asked']}"}
        for row in rows
        if row.get("asked")
    ]
    series = sorted({row["series"] for row in drawn})
    keep = ("series", "turn", "share", "text", "standing", "context_tokens", "ttft_ms_p50")
    base = alt.Chart(_data(alt, drawn, keep)).encode(
        x=alt.X("turn:O", title="turn of the conversation").axis(labelAngle=0, grid=False),
        y=alt.Y("series:N", sort=series, title=None).axis(labelLimit=260, grid=False),
    )
    cells = base.mark_rect(stroke="white", strokeWidth=1.5).encode(
        color=alt.Color("share:Q").scale(domain=[0, 1], range=["#F6E7D8", "#1F7FBF"]).legend(None),
        tooltip=[
            alt.Tooltip(f"{name}:N") for name in ("series", "turn", "text", "context_tokens", "standing")
        ],
    )
    text = base.mark_text(fontSize=11).encode(
        text="text:N", color=alt.condition(alt.datum.share > 0.55, alt.value("white"), alt.value("#3a2a16"))
    )
    return _finish(alt.layer(cells, text), height=max(60, 30 * len(series)))


def against_turn(rows: Sequence[Row], y: str, y_title: str) -> dict[str, Any]:
    """A quantity against the turn of a conversation, a colour a series (recipe and how many users)."""
    alt = _altair()

    drawn = [row for row in rows if row.get(y) is not None]
    series = list(dict.fromkeys(row["series"] for row in drawn))
    keep = ("series", "turn", "standing", "context_tokens", y)
    base = alt.Chart(_data(alt, drawn, keep)).encode(
        x=alt.X("turn:O", title="turn of the conversation").axis(labelAngle=0, grid=False),
        y=alt.Y(f"{y}:Q", title=y_title).scale(zero=True),
        color=_colour(alt, "series", series),
    )
    is_publishable = alt.datum.standing == "publishable"
    points = base.mark_point(size=56, strokeWidth=1.8, opacity=1).encode(
        fill=_fill(alt, _colour(alt, "series", series)),
        tooltip=[alt.Tooltip(f"{name}:{'N' if name in ('series', 'standing') else 'Q'}") for name in keep],
    )
    lines = base.transform_filter(is_publishable).mark_line(strokeWidth=2)
    return _finish(alt.layer(lines, points), height=220)


def bars(rows: Sequence[Row], label: str, value: str, title: str, colour: str) -> dict[str, Any]:
    """Horizontal bars, outlined only where the row may not be quoted. colour: the column that splits them."""
    alt = _altair()

    drawn = [row for row in rows if row.get(value) is not None]
    labels = list(dict.fromkeys(row[label] for row in drawn))
    kinds = list(dict.fromkeys(row[colour] for row in drawn))
    keep = [label, value, "standing", colour]
    base = alt.Chart(_data(alt, drawn, keep)).encode(
        x=alt.X(f"{value}:Q", title=title).scale(zero=True).axis(tickCount=8),
        y=alt.Y(f"{label}:N", sort=labels, title=None).axis(labelLimit=320, grid=False),
        yOffset=alt.YOffset(f"{colour}:N", sort=kinds),
        color=_colour(alt, colour, kinds),
        tooltip=[alt.Tooltip(f"{name}:{'Q' if name == value else 'N'}") for name in keep],
    )
    is_publishable = alt.datum.standing == "publishable"
    filled = base.transform_filter(is_publishable).mark_bar()
    hollow = base.transform_filter(~is_publishable).mark_bar(filled=False, strokeWidth=1.4)
    return _finish(alt.layer(filled, hollow), height=max(50, (16 * len(kinds) + 12) * len(labels)))


def over_time(rows: Sequence[Row], x: str, x_title: str, y: str, y_title: str) -> dict[str, Any]:
    """A quantity over the minutes of a soak, a colour a series."""
    alt = _altair()

    drawn = [row for row in rows if row.get(y) is not None and row.get(x) is not None]
    series = list(dict.fromkeys(row["series"] for row in drawn))
    chart = (
        alt.Chart(_data(alt, drawn, ("series", x, y)))
        .mark_line(point=alt.OverlayMarkDef(size=22), strokeWidth=1.6)
        .encode(
            x=alt.X(f"{x}:Q", title=x_title).axis(tickMinStep=1, grid=False),
            y=alt.Y(f"{y}:Q", title=y_title).scale(zero=True),
            color=_colour(alt, "series", series),
            tooltip=["series:N", f"{x}:Q", f"{y}:Q"],
        )
    )
    return _finish(chart, height=200)


def _colour(alt: Any, column: str, series: Sequence[str]) -> Any:
    legend = alt.Legend(
        title=None, orient="bottom", columns=2, labelLimit=300, symbolType="stroke", symbolStrokeWidth=3
    )
    return (
        alt.Color(f"{column}:N")
        .scale(domain=list(series), range=list(PALETTE[: len(series)]))
        .legend(legend if len(series) > 1 else None)
    )


def _fill(alt: Any, colour: Any) -> Any:
    """The series' own colour where a row may be quoted, nothing where it may not."""
    return alt.condition(
        alt.datum.standing == "publishable", colour.copy().legend(None), alt.value("transparent")
    )


def _data(alt: Any, rows: Sequence[Row], columns: Iterable[str]) -> Any:
    names = list(dict.fromkeys(columns))
    return alt.Data(
        values=[{name: row.get(name) for name in names if row.get(name) is not None} for row in rows]
    )


def _finish(chart: Any, height: int) -> dict[str, Any]:
    spec = chart.properties(width="container", height=height).to_dict(validate=False)
    # The address of the schema would be the page's only address; the library inlined knows its own version.
    spec.pop("$schema", None)
    spec["config"] = {
        "background": None,
        "view": {"stroke": None},
        # Vega measures labels with this, so it must be a real list, the page's own.
        "font": "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif",
        "axis": {"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": 500, "titlePadding": 8,
                 "domainOpacity": 0.6, "tickOpacity": 0.6, "labelPadding": 4},
        "legend": {"labelFontSize": 11, "titleFontSize": 11, "symbolSize": 70},
        "autosize": {"type": "fit-x", "contains": "padding"},
    }  # fmt: skip
    return spec
