"""The sections of the page, each from its marts. A section without rows is None, and the page says "not run"."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flows.report import charts
from flows.report.blocks import (
    Block,
    Chart,
    Evidence,
    Field,
    Note,
    Section,
    Table,
    all_fields,
    make_table,
    share_of,
)
from flows.report.layouts import (
    FIELDS,
    PUBLISHED_CLAIM,
    TABLE_ORDER,
    UNSHOWN,
    say_source,
    say_words,
    short_name,
)
from flows.report.marts import Marts, Row
from flows.report.words import STANDING_MARK, STANDINGS, say_share, say_tokens

LOAD_COLUMNS = (
    "row_id", "campaign", "recipe", "model", "engine", "workload", "variant", "concurrency", "context_tokens",
    "repeat", "standing", "source", "output_tokens_per_s", "ttft_ms_p50", "ttft_ms_p90", "ttft_ms_mean", "tpot_ms_p50",
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


# Workloads whose concurrency is a number of conversations: the sections of their own show them by turn.
_NO_CURVE = (None, "conversation_ramp", "interference")


def campaigns(marts: Marts) -> Table | None:
    """Counts by campaign, where there are several; each is a count of its own."""
    types = marts.columns("campaign_summary")
    where = "source is distinct from 'published'" if "source" in types else None
    rows = marts.rows("campaign_summary", where=where, order=("started_at", "campaign"))
    return make_table(rows, types, FIELDS["campaign_summary"]) if len(rows) > 1 else None


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
    for (source, campaign, model, workload), group in _groups(
        rows, "source", "campaign", "model", "workload"
    ):
        # One level of concurrency is a number, not a curve.
        if len({row["concurrency"] for row in group}) < 2:
            continue
        _name_series(group)
        for part, some in enumerate(_in_parts(group)):
            name = "-".join(filter(None, ("load", campaign, model, workload, str(part) if part else "")))
            about = f"{short_name(model)}, {say_words(workload)}{say_source(source)}" + (
                f" ({part + 1})" if part else ""
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
    for (source, model), group in _groups(depths, "source", "model"):
        for (series,), some in _groups(group, "series"):
            blocks.append(
                Chart(
                    f"depth-{model}-{series}",
                    f"Recall by depth: {series}{say_source(source)}",
                    f"Facts found of facts planted, {short_name(model)}. {_standings_of(some)}".strip(),
                    charts.recall_by_depth(some),
                    some,
                    {"depth_pct": "% of the document", "context_tokens": "tokens"},
                )
            )
    turns = _turn_rows(marts)
    for (source, campaign, model), group in _groups(turns, "source", "campaign", "model"):
        about = short_name(model) + say_source(source)
        name = "-".join(filter(None, (campaign, model)))
        if any(row.get("asked") for row in group):
            blocks.append(
                Chart(
                    f"turn-{name}",
                    f"Recall by turn: {about}",
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


def failures(marts: Marts) -> Section | None:
    """Bring-ups that failed and runs that ended early, with the lines that decided the class."""
    runs = marts.rows("runs", order=("campaign", "started_at", "run_id"))
    rescues: dict[str, list[str]] = {}
    for run in runs:
        if run.get("rescues") and run.get("state") == "served":
            rescues.setdefault(f"{run.get('campaign')}/{run['rescues']}", []).append(run["recipe"])
    blocks: list[Block] = []
    for run in runs:
        # A reproduction is the same failure once more; the original's card counts it.
        if (run.get("state") == "served" and not run.get("failure_class")) or run.get("reproduces_run_id"):
            continue
        again = [other for other in runs if other.get("reproduces_run_id") == run.get("run_id")]
        rescued = rescues.get(f"{run.get('campaign')}/{run.get('recipe')}", [])
        blocks.append(
            Evidence(
                failure_class=run.get("failure_class") or run.get("state") or "unknown",
                recipe=run.get("recipe") or "",
                engine=" ".join(filter(None, (run.get("engine"), run.get("engine_version")))),
                run_id=run.get("run_id") or "",
                summary=_summary(run),
                lines=_evidence_lines(run),
                command=_command(run.get("command")),
                rescue=", ".join(dict.fromkeys(rescued)),
                again=say_share(sum(1 for other in again if other.get("failure_class")), len(again)),
            )
        )
    if not blocks:
        return None
    return Section(
        "failures", "Kept failures", "What did not come up or did not last, and what did it say?", blocks
    )


def _summary(run: Row) -> str:
    """What was said of a failure, unless that only repeats its class."""
    text = str(run.get("failure_summary") or "")
    return "" if text == run.get("failure_class") else text


def rescues(marts: Marts) -> Section | None:
    """Rescue attempts beside what they rescue, with every other setting that differed."""
    return _table_section(
        marts,
        "rescue_comparisons",
        "rescues",
        "Rescues",
        "What was tried instead, did it come up, and what else was different?",
    )


def cost(marts: Marts) -> Section | None:
    """Cost per million tokens, with and without load time."""
    section = _table_section(
        marts,
        "cost_per_token",
        "cost",
        "Cost",
        "What does a million tokens cost on this node, at a stated price?",
    )
    if section is not None:
        note = "Cost is price × devices × hours / tokens. Input and output each bear the whole cost: their sum is no price. "
        price = price_of(marts)
        section.blocks.append(Note(note + (f"Price: {price}." if price else ""), "quiet"))
    return section


def price_of(marts: Marts) -> str:
    """The price per device-hour with its source and date, as the cost mart states it."""
    said = []
    for row in marts.rows(
        "cost_per_token", ("price_usd_per_gpu_hour", "price_source", "price_as_of"), limit=10_000
    ):
        if row.get("price_usd_per_gpu_hour") is not None:
            about = ", ".join(str(row[key]) for key in ("price_source", "price_as_of") if row.get(key))
            said.append(
                f"{row['price_usd_per_gpu_hour']:.2f} USD a device-hour" + (f" ({about})" if about else "")
            )
    return "; ".join(dict.fromkeys(said))


def probes(marts: Marts) -> Section | None:
    """JSON and tool probes, before, during and after load: how many passed, and why the others did not."""
    if not {"is_passed", "phase", "kind", "recipe"} <= marts.columns("probe_results").keys():
        return None
    found = marts.query(
        """
        select
            recipe,
            kind,
            count(*) filter (where phase = 'before') as before_asked,
            count(*) filter (where phase = 'before' and is_passed) as before_passed,
            count(*) filter (where phase = 'during') as during_asked,
            count(*) filter (where phase = 'during' and is_passed) as during_passed,
            count(*) filter (where phase = 'after') as after_asked,
            count(*) filter (where phase = 'after' and is_passed) as after_passed,
            string_agg(distinct why, '; ') filter (where not is_passed) as why_not
        from marts.probe_results
        group by recipe, kind
        order by recipe, kind
        """,
        or_none=True,
    )
    if not found:
        return None
    fields = [
        Field("recipe"),
        Field("kind", "probe"),
        *(Field(f"{phase}_asked", f"{phase} load", "", share_of(f"{phase}_passed", f"{phase}_asked"))
          for phase in ("before", "during", "after")),
        Field("why_not", "why the others failed"),
    ]  # fmt: skip
    table = make_table(found, dict.fromkeys(found[0], "VARCHAR"), fields)
    lead = "Did JSON and tool calls work before, during and after the load? A failed probe after a clean load decides."
    return Section("probes", "Probes", lead, [table])


def roofline(marts: Marts) -> Section | None:
    """How much of the hardware's ceiling each row reached."""
    section = _table_section(
        marts,
        "roofline_shares",
        "roofline",
        "Share of the ceiling",
        "How near did each row come to what the hardware can do at all?",
    )
    if section is None:
        return None
    shares = ("prefill_share", "decode_share", "mfu", "mbu")
    if not any(row.get(name) is not None for row in marts.rows("roofline_shares", shares) for name in shares):
        text = "No ceiling is known: the model's facts or the device's peaks are missing, so the screen roofline is unknown."
        section.blocks = [Note(text, "quiet")]
        return section
    known = {
        row["row_id"]: row
        for row in marts.rows("measured_rows", ("row_id", "recipe", "context_tokens", "users", "repeat"))
    }
    reached = [
        {
            **row,
            "label": _row_label({**known.get(row.get("row_id"), {}), **row}),
            "of": name,
            "share_pct": 100 * row[column],
        }
        for row in marts.rows("roofline_shares", order=("recipe", "workload", "concurrency"))
        for column, name in (("mfu", "compute (MFU)"), ("mbu", "bandwidth (MBU)"))
        if row.get(column) is not None and row.get("source") != "published"
    ]
    if 0 < len(reached) <= _MOST_BARS:
        chart = charts.bars(reached, "label", "share_pct", "share of the ceiling, %", "of")
        caption = "Filled: publishable. Outlined: not to be quoted. Beyond 100 % a measurement is wrong, or a ceiling is."
        section.blocks.insert(
            0, Chart("roofline", "MFU and MBU", caption, chart, reached, {"share_pct": "%"})
        )
        section.blocks[1].is_folded = True  # type: ignore[union-attr]
    return section


# Bars beyond this many are a wall; the table has them all.
_MOST_BARS = 60


def _row_label(row: Row) -> str:
    return " · ".join(
        filter(
            None,
            (
                row.get("recipe"),
                str(row.get("workload") or "").replace("_", " "),
                f"c{row['concurrency']}" if row.get("concurrency") else "",
                say_tokens(row.get("context_tokens")),
                f"{row['users']} users" if (row.get("users") or 1) > 1 else "",
                f"#{row['repeat']}" if row.get("repeat") else "",
            ),
        )
    )


def soak(marts: Marts) -> Section | None:
    """Soak verdicts with their reason, and throughput over the minutes."""
    section = _table_section(marts, "soak_verdicts", "soak", "Soak", QUESTIONS["soak_verdicts"][1])
    if section is None:
        return None
    minutes = marts.query(
        """
        select
            runs.recipe || ' · c' || minutes.concurrency as series,
            minutes.soak_minute,
            minutes.output_tokens_per_s,
            minutes.ttft_ms_p50,
            minutes.failed,
            verdicts.standing
        from intermediate.int_soak_minutes as minutes
        inner join marts.runs as runs on minutes.run_id = runs.run_id
        left join marts.soak_verdicts as verdicts
            on minutes.run_id = verdicts.run_id and minutes.concurrency = verdicts.concurrency
        order by series, soak_minute
        """,
        or_none=True,
    )
    for y, title, unit in (("output_tokens_per_s", "Output", "tokens/s"), ("ttft_ms_p50", "TTFT p50", "ms")):
        if sum(1 for row in minutes if row[y] is not None) > 1:
            spec = charts.over_time(minutes, "soak_minute", "minute of the soak", y, f"{title}, {unit}")
            about = f"{title} over the soak"
            section.blocks.append(
                Chart(
                    f"soak-{y}", about, _standings_of(minutes), spec, minutes, {y: unit, "soak_minute": "min"}
                )
            )
    return section


# Marts of one question each: title and question, in reading order.
QUESTIONS: dict[str, tuple[str, str]] = {
    "million_token_table": ("Long context", "Capacity, recall and the next turn, side by side: three claims, each with its standing."),
    "interference": ("Interference", "How far did one user's decode fall while another's prompt was read?"),
    "quality_scores": ("Quality", "How many graded answers were right, of how many, within what interval?"),
    "soak_verdicts": ("Soak", "Did it hold for hours, and can it be handed over?"),
    "cold_starts": ("Cold start", "How long until ready, with and without a compile cache?"),
    "speculation_comparisons": ("Speculation", "What did draft tokens give, and what did they cost?"),
    "layout_comparisons": ("Layouts", "Which layout served more, and was anything else different?"),
    "precision_audit": ("Precision", "What does the label claim, and what do the tensors hold?"),
    "node_islands": ("Node", "Which GPUs are linked, and through what?"),
}  # fmt: skip


def optional(marts: Marts) -> list[Section | tuple[str, str]]:
    """Sections of the workloads that ran; (title, question) of those that did not."""
    found: list[Section | tuple[str, str]] = []
    for mart, (title, question) in QUESTIONS.items():
        name = mart.replace("_", "-")
        made = soak(marts) if mart == "soak_verdicts" else _table_section(marts, mart, name, title, question)
        found.append(made or (title, question))
    return found


def claims(marts: Marts) -> Section | None:
    """Sentences that may be quoted as they stand, each bound to its rows."""
    types = marts.columns("claims")
    if "sentence" not in types:
        return None
    rows = marts.rows(
        "claims",
        where="source is distinct from 'published'",
        order=("campaign", "subject", "metric", "claim_id"),
    )
    if not rows:
        return None
    table = make_table(rows, types, FIELDS["claims"])
    table.is_folded = len(rows) > _FOLD_ROWS
    return Section(
        "claims", "Quotable sentences", "What may be said as it stands, each bound to its rows.", [table]
    )


def published(marts: Marts) -> Section | None:
    """Figures that others published, set apart from what was measured here."""
    blocks: list[Block] = []
    for mart in ("million_token_table", "soak_verdicts", "speculation_comparisons", "interference", "claims"):
        types = marts.columns(mart)
        rows = (
            marts.rows(mart, where="source = 'published'", order=("part", "claim_id", "subject"))
            if "source" in types
            else []
        )
        if rows:
            title = "Every published figure" if mart == "claims" else QUESTIONS[mart][0]
            fields = PUBLISHED_CLAIM if mart == "claims" else FIELDS.get(mart) or all_fields(types, UNSHOWN)
            table = make_table(rows, types, fields, title, is_published=True)
            table.is_folded = len(rows) > _FOLD_ROWS
            blocks.append(table)
    if not blocks:
        return None
    lead = "What did the source documents publish? None of it was measured here, and none of it is mixed with rows."
    return Section("published", "Published elsewhere", lead, blocks)


# Longer tables than this are closed until a reader opens them.
_FOLD_ROWS = 24


def _table_section(marts: Marts, mart: str, name: str, title: str, lead: str) -> Section | None:
    types = marts.columns(mart)
    # Published rows may stand beside measured ones in a mart; on the page they have a section of their own.
    where = "source is distinct from 'published'" if "source" in types else None
    rows = marts.rows(mart, where=where, order=TABLE_ORDER)
    if not rows:
        return None
    # Every pair of configurations is in the mart; those that differ least are what a reader asks for.
    closest = [row for row in rows if row.get("is_closest_base")]
    caption = (
        f"The {len(closest)} closest of {len(rows)} pairs; marts.{mart} has them all." if closest else ""
    )
    table = make_table(closest or rows, types, FIELDS.get(mart) or all_fields(types, UNSHOWN), caption)
    table.is_folded = len(rows) > _FOLD_ROWS
    return Section(name, title, lead, [table])


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
