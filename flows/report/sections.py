"""The sections of the page, each from its marts. A section without rows is None, and the page says "not run"."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flows.report import charts
from flows.report.blocks import Block, Chart, Evidence, Note, Section, all_fields, make_table
from flows.report.marts import Marts, Row
from flows.report.words import STANDING_MARK, STANDINGS, say_tokens

LOAD_COLUMNS = (
    "row_id", "campaign", "recipe", "model", "engine", "workload", "variant", "concurrency", "context_tokens",
    "repeat", "standing", "source", "output_tokens_per_s", "ttft_ms_p50", "ttft_ms_p90", "tpot_ms_p50",
)  # fmt: skip
LOAD_UNITS = {
    "output_tokens_per_s": "tokens/s",
    "ttft_ms_p50": "ms",
    "ttft_ms_p90": "ms",
    "context_tokens": "tokens",
}


def _caption(rows: list[Row], more: str = "") -> str:
    """What filled and hollow points mean, naming the standings that are there."""
    found = [word for word in STANDINGS[1:] if any(row.get("standing") == word for row in rows)]
    text = "Filled and joined: publishable."
    if found:
        said = ", ".join(f"{STANDING_MARK[word]} {word}" for word in found)
        text += f" Hollow, not to be quoted: {said}; far beyond the others, they sit on the edge."
    return f"{text} {more}".strip()


# A model with more series than colours is drawn in several charts; a campaign of fourteen stays readable.
_MOST_POINTS = 2000


def load(marts: Marts) -> Section | None:
    """Throughput and TTFT against concurrency, a pair of charts a model."""
    rows = [
        row
        for row in marts.rows(
            "measured_rows", LOAD_COLUMNS, order=("campaign", "model", "recipe", "context_tokens")
        )
        if row.get("concurrency") and row.get("workload") and row.get("output_tokens_per_s") is not None
    ]
    blocks: list[Block] = []
    for (campaign, model, workload), group in _groups(rows, "campaign", "model", "workload"):
        # One level of concurrency is a number, not a curve.
        if len({row["concurrency"] for row in group}) < 2:
            continue
        _name_series(group)
        for part, some in enumerate(_in_parts(group)):
            name = "-".join(filter(None, ("load", campaign, model, workload, str(part) if part else "")))
            about = f"{_short(model)}, {workload}" + (f" ({part + 1})" if part else "")
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
            if any(row.get("ttft_ms_p50") is not None for row in some):
                blocks.append(
                    Chart(
                        f"{name}-ttft",
                        f"Time to first token: {about}",
                        _caption(
                            some,
                            "From the planned send; the bar reaches to p90 where there are requests enough.",
                        ),
                        charts.against_concurrency(some, "ttft_ms_p50", "TTFT p50, ms", top="ttft_ms_p90"),
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
    for (model,), group in _groups(depths, "model"):
        for (series,), some in _groups(group, "series"):
            blocks.append(
                Chart(
                    f"depth-{model}-{series}",
                    f"Recall by depth: {series}",
                    f"Facts found of facts planted, {_short(model)}. {_standings_of(some)}".strip(),
                    charts.recall_by_depth(some),
                    some,
                    {"depth_pct": "% of the document", "context_tokens": "tokens"},
                )
            )
    turns = _turn_rows(marts)
    for (campaign, model), group in _groups(turns, "campaign", "model"):
        name = "-".join(filter(None, (campaign, model)))
        if any(row.get("asked") for row in group):
            blocks.append(
                Chart(
                    f"turn-{name}",
                    f"Recall by turn: {_short(model)}",
                    "The first fact of a growing conversation, asked for again at every turn, alone and with company. "
                    + _standings_of(group),
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
                        f"{title}: {_short(model)}",
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


def failures(marts: Marts) -> Section | None:
    """Bring-ups that failed and runs that ended early, with the lines that decided the class."""
    runs = marts.rows("runs", order=("campaign", "started_at", "run_id"))
    rescues: dict[str, list[str]] = {}
    for run in runs:
        if run.get("rescues") and run.get("state") == "served":
            rescues.setdefault(f"{run.get('campaign')}/{run['rescues']}", []).append(run["recipe"])
    blocks: list[Block] = []
    for run in runs:
        if run.get("state") == "served" and not run.get("failure_class"):
            continue
        rescued = rescues.get(f"{run.get('campaign')}/{run.get('recipe')}", [])
        blocks.append(
            Evidence(
                failure_class=run.get("failure_class") or run.get("state") or "unknown",
                recipe=run.get("recipe") or "",
                engine=" ".join(filter(None, (run.get("engine"), run.get("engine_version")))),
                run_id=run.get("run_id") or "",
                summary=run.get("failure_summary") or run.get("note") or run.get("end_note") or "",
                lines=_evidence_lines(run),
                command=_command(run.get("command")),
                rescue=", ".join(dict.fromkeys(rescued)),
            )
        )
    if not blocks:
        return None
    return Section(
        "failures", "Kept failures", "What did not come up or did not last, and what did it say?", blocks
    )


def rescues(marts: Marts) -> Section | None:
    """Rescue attempts beside what they rescue, with every other setting that differed."""
    return _table_section(
        marts,
        "rescue_comparisons",
        "rescues",
        "Rescues",
        "What was tried instead, did it come up, and what else was different?",
        without=("rescued_run_id", "model"),
    )


def cost(marts: Marts) -> Section | None:
    """Cost per million tokens, with and without load time."""
    section = _table_section(
        marts,
        "cost_per_token",
        "cost",
        "Cost",
        "What does a million tokens cost on this node, at a stated price?",
        without=("run_id", "source", "engine", "model", "policy"),
    )
    if section is not None:
        section.blocks.append(
            Note(
                "Cost is price × devices × hours / tokens. It is as good as the price: see its source and date.",
                "quiet",
            )
        )
    return section


def probes(marts: Marts) -> Section | None:
    """JSON and tool probes, before, during and after load."""
    return _table_section(
        marts,
        "probe_results",
        "probes",
        "Probes",
        "Did JSON and tool calls work before, during and after the load?",
    )


def roofline(marts: Marts) -> Section | None:
    """How much of the hardware's ceiling each row reached."""
    return _table_section(
        marts,
        "roofline_shares",
        "roofline",
        "Share of the ceiling",
        "How near did each row come to what the hardware can do at all?",
    )


def precision(marts: Marts) -> Section | None:
    """What the checkpoint's label claims, and what its tensors hold."""
    return _table_section(
        marts,
        "precision_audit",
        "precision",
        "Precision",
        "What does the label claim, and what do the tensors hold?",
    )


# Marts of one workload each: name, mart, title, question, and how to run it when it was not.
OPTIONAL: tuple[tuple[str, str, str, str], ...] = (
    (
        "million",
        "million_token_table",
        "Long context",
        "Capacity, recall and the next turn, side by side: three claims.",
    ),
    (
        "interference",
        "interference",
        "Interference",
        "How far did one user's decode fall while another's prompt was read?",
    ),
    ("soak", "soak_verdicts", "Soak", "Did it hold for hours, and can it be handed over?"),
    ("cold-start", "cold_starts", "Cold start", "How long until ready, with and without a compile cache?"),
    (
        "speculation",
        "speculation_comparisons",
        "Speculation",
        "What did draft tokens give, and what did they cost?",
    ),
    (
        "layouts",
        "layout_comparisons",
        "Layouts",
        "Which layout served more, and was anything else different?",
    ),
    ("precision", "precision_audit", "Precision", "What does the label claim, and what do the tensors hold?"),
    ("islands", "node_islands", "Node", "Which GPUs are linked, and through what?"),
)


def optional(marts: Marts) -> list[Section | tuple[str, str]]:
    """Sections of the workloads that ran; (title, question) of those that did not."""
    found: list[Section | tuple[str, str]] = []
    for name, mart, title, question in OPTIONAL:
        found.append(_table_section(marts, mart, name, title, question) or (title, question))
    return found


def published(marts: Marts) -> Section | None:
    """Figures that others published, set apart from what was measured here."""
    types = marts.columns("claims")
    rows = marts.rows(
        "claims", where="source = 'published'" if "source" in types else None, order=("part", "claim_id")
    )
    if not rows:
        return None
    table = make_table(
        rows,
        types,
        all_fields(types, without=("source", "claim_id", "raw_file", "raw_line", "engine", "gpus", "part")),
        is_published=True,
    )
    lead = "What did the source documents publish? None of it was measured here, and none of it is mixed with rows."
    return Section("published", "Published elsewhere", lead, [table])


def _table_section(
    marts: Marts, mart: str, name: str, title: str, lead: str, without: tuple[str, ...] = ()
) -> Section | None:
    types = marts.columns(mart)
    # Published rows may stand beside measured ones in a mart; on the page they have a section of their own.
    where = "source is distinct from 'published'" if "source" in types else None
    rows = marts.rows(mart, where=where, order=("campaign", "recipe", "workload", "concurrency", "repeat"))
    if not rows:
        return None
    return Section(name, title, lead, [make_table(rows, types, all_fields(types, without))])


def _depth_rows(marts: Marts) -> list[Row]:
    """Facts found of facts planted, a row for each recipe, context and depth; standing: the worst of its rows."""
    if not marts.columns("stg_grades", "staging") or not marts.columns("measured_rows"):
        return []
    found = marts.query(
        """
        select
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
    merged = _merge(found, ("model", "recipe", "workload", "context_tokens", "depth_pct"), ("found", "asked"))
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
    keys = ("campaign", "model", "recipe", "variant", "users", "turn")
    merged = _merge(found, keys, ("found", "asked"))
    has_variants = len({row["variant"] for row in merged}) > 1
    for row in merged:
        users = f"{row['users']} user" + ("s" if (row["users"] or 0) > 1 else "")
        row["series"] = " · ".join(
            filter(None, (row["recipe"], row["variant"] if has_variants else "", users))
        )
    return merged


def _merge(rows: list[Row], keys: tuple[str, ...], added: tuple[str, ...]) -> list[Row]:
    """One row a key: counts added up; the standing is the worst, and every other value is of that standing's rows."""
    merged = []
    for _, group in _groups(rows, *keys):
        worst = max(
            group,
            key=lambda row: (
                STANDINGS.index(row["standing"]) if row["standing"] in STANDINGS else len(STANDINGS)
            ),
        )
        merged.append({**worst, **{name: sum(row[name] for row in group) for name in added}})
    return merged


def _standings_of(rows: list[Row]) -> str:
    """A sentence that names the standings under which part of a picture may not be quoted; "" where all may."""
    found = [word for word in STANDINGS[1:] if any(row.get("standing") == word for row in rows)]
    return f"Part of it is {' and '.join(found)}: not to be quoted." if found else ""


def _groups(rows: list[Row], *keys: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
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
        [row for row in rows if row["series"] in names[at : at + size]][:_MOST_POINTS]
        for at in range(0, len(names), size)
    ]


def _short(model: Any) -> str:
    """A model's name without its folders."""
    return str(model or "unnamed model").rstrip("/").rsplit("/", 1)[-1]


def _evidence_lines(run: Row) -> list[tuple[str, str]]:
    """(file:line, text) of the lines that decided a failure class, however the mart holds them."""
    held = run.get("evidence") or run.get("failure_evidence") or []
    if isinstance(held, str):
        try:
            held = json.loads(held)
        except ValueError:
            return [("", held)]
    lines = []
    for each in held if isinstance(held, list) else [held]:
        if isinstance(each, str):
            try:
                each = json.loads(each)
            except ValueError:
                lines.append(("", each))
                continue
        if isinstance(each, dict):
            where = ":".join(str(each[key]) for key in ("file", "line") if each.get(key) is not None)
            lines.append((where, str(each.get("text") or "")))
    return lines


def _command(held: Any) -> str:
    """Command lines as one text; null and unreadable ones are empty."""
    if isinstance(held, str):
        try:
            held = json.loads(held)
        except ValueError:
            return held
    if not isinstance(held, list):
        return ""
    return "\n".join(" ".join(map(str, one)) if isinstance(one, list) else str(one) for one in held)
