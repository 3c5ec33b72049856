"""The sections that draw: load against concurrency, recall by depth and by turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flows.report import charts
from flows.report.blocks import Block, Chart, Note, Section
from flows.report.layouts import say_source, say_words, short_name
from flows.report.marts import Marts, Row
from flows.report.words import STANDING_MARK, STANDINGS, say_tokens

LOAD_COLUMNS = (
    "row_id", "campaign", "recipe", "model", "engine", "workload", "variant", "concurrency", "context_tokens",
    "repeat", "standing", "source", "output_tokens_per_s", "ttft_ms_p50", "ttft_ms_p90", "ttft_ms_mean", "tpot_ms_p50",
)  # fmt: skip
LOAD_UNITS = {
    "output_tokens_per_s": "tokens/s",
    "ttft_ms_p50": "ms",
    "ttft_ms_p90": "ms",
    "ttft_ms_mean": "ms",
    "tpot_ms_p50": "ms",
    "context_tokens": "tokens",
}

# Workloads whose concurrency is a number of conversations: the sections of their own show them by turn.
_NO_CURVE = (None, "conversation_ramp", "interference")


def load(marts: Marts) -> Section | None:
    """Throughput and TTFT against concurrency, a pair of charts a model."""
    rows = [
        row
        for row in marts.rows(
            "measured_rows", LOAD_COLUMNS, order=("campaign", "model", "recipe", "context_tokens")
        )
        if row.get("concurrency")
        and row.get("output_tokens_per_s") is not None
        and row.get("workload") not in _NO_CURVE
    ]
    blocks: list[Block] = []
    many = len({row.get("campaign") for row in rows}) > 1
    for (source, campaign, model, workload), group in grouped(
        rows, "source", "campaign", "model", "workload"
    ):
        # One level of concurrency is a number, not a curve.
        if len({row["concurrency"] for row in group}) < 2:
            continue
        _name_series(group)
        for part, some in enumerate(_in_parts(group)):
            name = "-".join(filter(None, ("load", campaign, model, workload, str(part) if part else "")))
            about = (
                f"{short_name(model)}, {say_words(workload)}{f' ({campaign})' if many else ''}{say_source(source)}"
                + (f" ({part + 1})" if part else "")
            )
            blocks.append(
                Chart(
                    f"{name}-throughput",
                    f"Output throughput: {about}",
                    _caption(some, "The line is the median of repeats."),
                    charts.against_concurrency(some, "output_tokens_per_s", "output tokens/s"),
                    some,
                    LOAD_UNITS,
                )
            )
            # Where the mart shows no median, there were too few requests for one; the mean is then the figure.
            is_median = all(
                row.get("ttft_ms_p50") is not None for row in some if row.get("ttft_ms_mean") is not None
            )
            y, word = ("ttft_ms_p50", "median") if is_median else ("ttft_ms_mean", "mean")
            if any(row.get(y) is not None for row in some):
                more = (
                    "; the bar reaches to p90 where there are requests enough"
                    if is_median
                    else "; too few requests for a median"
                )
                blocks.append(
                    Chart(
                        f"{name}-ttft",
                        f"Time to first token, {word}: {about}",
                        _caption(some, f"From the planned send{more}."),
                        charts.against_concurrency(
                            some, y, f"TTFT {word}, ms", top="ttft_ms_p90" if is_median else None
                        ),
                        some,
                        LOAD_UNITS,
                    )
                )
    if not blocks:
        return None
    return Section(
        "load", "Load", "How fast did it serve, and how long did a user wait, as more users came?", blocks
    )


def recall(marts: Marts) -> Section | None:
    """Recall by depth and by turn, with the time to first token of every turn."""
    blocks: list[Block] = []
    depths = _depth_rows(marts)
    for (source, model), group in grouped(depths, "source", "model"):
        for (series,), some in grouped(group, "series"):
            blocks.append(
                Chart(
                    f"depth-{model}-{series}",
                    f"Recall by depth: {series}{say_source(source)}",
                    f"Facts found of facts planted, {short_name(model)}. {standings_of(some)}".strip(),
                    charts.recall_by_depth(some),
                    some,
                    {"depth_pct": "% of the document", "context_tokens": "tokens"},
                )
            )
    turns = _turn_rows(marts)
    for (source, campaign, model), group in grouped(turns, "source", "campaign", "model"):
        about = short_name(model) + say_source(source)
        name = "-".join(filter(None, (campaign, model)))
        if any(row.get("asked") for row in group):
            blocks.append(
                Chart(
                    f"turn-{name}",
                    f"Recall by turn: {about}",
                    "The first fact of a growing conversation, asked for again at every turn, alone and with company. "
                    + standings_of(group),
                    charts.recall_by_turn(group),
                    group,
                    {"turn": "turn", "context_tokens": "tokens"},
                )
            )
        for y, title, unit in (
            ("ttft_ms_p50", "Time to first token by turn", "ms"),
            ("decode_tokens_per_s", "Decode rate by turn", "tokens/s"),
        ):
            if any(row.get(y) is not None for row in group):
                heading = "TTFT" if unit == "ms" else "decode"
                blocks.append(
                    Chart(
                        f"turn-{y}-{name}",
                        f"{title}: {about}",
                        _caption(group),
                        charts.against_turn(group, y, f"{heading}, {unit}"),
                        group,
                        {y: unit, "turn": "turn"},
                    )
                )
    if not blocks:
        return None
    blocks.append(
        Note(
            "That a prompt is accepted, that a fact in it is found, and that the next turn still finds it are three "
            "claims. Finding a planted fact is not reasoning, and one does not establish the others.",
            "quiet",
        )
    )
    return Section("recall", "Recall", "Did the planted fact survive the context, and the next turn?", blocks)


def _depth_rows(marts: Marts) -> list[Row]:
    """Facts found of facts planted, a row for each recipe, context and depth; standing: the worst of its rows."""
    if not marts.columns("stg_grades", "staging") or not marts.columns("measured_rows"):
        return []
    found = marts.query(
        """
        select
            measured.source,
            measured.model,
            measured.recipe,
            measured.workload,
            measured.context_tokens,
            grades.depth_pct,
            measured.standing,
            count(*) filter (where grades.is_correct) as found,
            count(*) as asked
        from staging.stg_grades as grades
        inner join marts.measured_rows as measured
            on measured.row_id = grades.run_id || '/' || grades.cell_id
        where grades.depth_pct is not null
        group by all
        order by all
        """,
        or_none=True,
    )
    keys = ("source", "model", "recipe", "workload", "context_tokens", "depth_pct")
    merged = _merge(found, keys, ("found", "asked"))
    has_many = len({row["workload"] for row in merged}) > 1
    for row in merged:
        row["series"] = row["recipe"] + (f" · {str(row['workload']).replace('_', ' ')}" if has_many else "")
    return merged


def _turn_rows(marts: Marts) -> list[Row]:
    """Turns of growing conversations, a row for each recipe, number of users and turn; figures are medians."""
    if not {"is_recalled", "turn", "users", "standing"} <= marts.columns("ramp_turns").keys():
        return []
    found = marts.query(
        """
        select
            source,
            campaign,
            model,
            recipe,
            variant,
            users,
            turn,
            standing,
            count(*) filter (where is_recalled) as found,
            count(*) filter (where is_recalled is not null) as asked,
            median(ttft_ms) as ttft_ms_p50,
            median(decode_tokens_per_s) as decode_tokens_per_s,
            max(prompt_tokens) as prompt_tokens
        from marts.ramp_turns
        group by all
        order by all
        """,
        or_none=True,
    )
    keys = ("source", "campaign", "model", "recipe", "variant", "users", "turn")
    merged = _merge(found, keys, ("found", "asked"))
    has_variants = len({row["variant"] for row in merged}) > 1
    # Records count turns from 0, readers from 1.
    first = min((row["turn"] for row in merged), default=0)
    for row in merged:
        row["turn"] += 1 - first
        users = f"{row['users']} user" + ("s" if (row["users"] or 0) > 1 else "")
        row["series"] = " · ".join(
            filter(None, (row["recipe"], row["variant"] if has_variants else "", users))
        )
    return merged


def _merge(rows: list[Row], keys: tuple[str, ...], added: tuple[str, ...]) -> list[Row]:
    """One row a key: counts added up; the standing is the worst, and every other value is of that standing's rows."""
    merged = []
    for _, group in grouped(rows, *keys):
        worst = max(
            group,
            key=lambda row: (
                STANDINGS.index(row["standing"]) if row["standing"] in STANDINGS else len(STANDINGS)
            ),
        )
        merged.append({**worst, **{name: sum(row[name] for row in group) for name in added}})
    return merged


def _caption(rows: list[Row], more: str = "") -> str:
    """What filled and hollow points mean, naming the standings that are there."""
    found = [word for word in STANDINGS[1:] if any(row.get("standing") == word for row in rows)]
    said = ", ".join(f"{STANDING_MARK[word]} {word}" for word in found)
    if not found:
        text = "Filled and joined: publishable."
    elif any(row.get("standing") == STANDINGS[0] for row in rows):
        text = f"Filled and joined: publishable. Hollow, not to be quoted: {said}; far beyond the others, they sit on the edge."
    else:
        text = f"Nothing here may be quoted: {said}."
    return f"{text} {more}".strip()


def standings_of(rows: list[Row]) -> str:
    """A sentence that names the standings under which part of a picture may not be quoted; "" where all may."""
    found = [word for word in STANDINGS[1:] if any(row.get("standing") == word for row in rows)]
    if not found:
        return ""
    has_good = any(row.get("standing") == STANDINGS[0] for row in rows)
    return f"{'Part of it' if has_good else 'It'} is {' and '.join(found)}: not to be quoted."


def grouped(rows: list[Row], *keys: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return list(found.items())


def _name_series(rows: list[Row]) -> None:
    """What tells the curves of one chart apart: the recipe, and variant and context where these differ."""
    parts: list[Callable[[Row], str]] = [lambda row: row.get("recipe") or "?"]
    if len({row.get("variant") for row in rows}) > 1:
        parts.append(lambda row: row.get("variant") or "")
    if len({row.get("context_tokens") for row in rows}) > 1:
        parts.append(lambda row: say_tokens(row.get("context_tokens")))
    for row in rows:
        row["series"] = " · ".join(text for text in (part(row) for part in parts) if text)


def _in_parts(rows: list[Row]) -> list[list[Row]]:
    """Rows in charts of at most as many series as there are colours."""
    names = list(dict.fromkeys(row["series"] for row in rows))
    size = charts.MOST_SERIES
    return [
        [row for row in rows if row["series"] in names[at : at + size]] for at in range(0, len(names), size)
    ]
