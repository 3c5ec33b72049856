"""The sections that are tables, each from its mart. A section without rows is None, and the page says "not run"."""

from __future__ import annotations

from statistics import median

from flows.report import charts
from flows.report.blocks import (
    Block,
    Chart,
    Field,
    Note,
    Section,
    Table,
    all_fields,
    make_table,
    share_of,
)
from flows.report.curves import grouped, standings_of
from flows.report.layouts import (
    FIELDS,
    PUBLISHED_CLAIM,
    TABLE_ORDER,
    UNSHOWN,
)
from flows.report.marts import Marts, Row
from flows.report.words import STANDINGS, say_tokens


def campaigns(marts: Marts) -> Table | None:
    """Counts by campaign, where there are several; each is a count of its own."""
    types = marts.columns("campaign_summary")
    where = "source is distinct from 'published'" if "source" in types else None
    rows = marts.rows("campaign_summary", where=where, order=("started_at", "campaign"))
    return make_table(rows, types, FIELDS["campaign_summary"]) if len(rows) > 1 else None


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
        for row in marts.rows("measured_rows", ("row_id", "recipe", "variant", "context_tokens", "users"))
    }
    rows = [
        {**known.get(row.get("row_id"), {}), **row}
        for row in marts.rows("roofline_shares", order=("recipe", "workload", "concurrency"))
    ]
    reached = []
    for _, repeats in grouped(rows, *_SAME_CELL, "source"):
        for column, name in (("mfu", "compute (MFU)"), ("mbu", "bandwidth (MBU)")):
            shares_of = [row[column] for row in repeats if row.get(column) is not None]
            if shares_of:
                worst = max(
                    repeats,
                    key=lambda row: STANDINGS.index(row["standing"]) if row["standing"] in STANDINGS else 9,
                )
                reached.append(
                    {**worst, "label": _row_label(worst), "of": name, "share_pct": 100 * median(shares_of)}
                )
    if 0 < len(reached) <= _MOST_BARS:
        chart = charts.bars(reached, "label", "share_pct", "share of the ceiling, %", "of")
        caption = (
            "Filled: publishable. Outlined: not to be quoted. Repeats are one pair of bars, their median under their worst "
            "standing. Beyond 100 % a measurement is wrong, or a ceiling is."
        )
        section.blocks.insert(
            0, Chart("roofline", "MFU and MBU", caption, chart, reached, {"share_pct": "%"})
        )
        section.blocks[1].is_folded = True  # type: ignore[union-attr]
    return section


# What makes two rows repeats of one cell.
_SAME_CELL = ("campaign", "recipe", "workload", "variant", "concurrency", "context_tokens", "users")

# Bars beyond this many are a wall; the table has them all.
_MOST_BARS = 80


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
                row.get("variant"),
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
                    f"soak-{y}", about, standings_of(minutes), spec, minutes, {y: unit, "soak_minute": "min"}
                )
            )
    return section


# Marts of one question each: title and question, in reading order.
QUESTIONS: dict[str, tuple[str, str]] = {
    "million_token_table": ("Long context", "Capacity, recall and the next turn, side by side: three claims, each with its standing."),
    "interference": ("Interference", "How far did one user's decode fall while another's prompt was read?"),
    "quality_scores": ("Quality", "How many graded answers were right, of how many, within what interval?"),
    "graded_load_costs": ("Graded load", "What did it cost in throughput to grade the very requests that were timed?"),
    "kv_offload_rounds": ("KV offload", "What happened when users times context filled the pool?"),
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


# Marts that have a section of their own, or feed one; any other is shown as it is.
_PLACED = frozenset(
    {"measured_rows", "gated_rows", "runs", "rescue_comparisons", "cost_per_token", "probe_results", "roofline_shares",
     "ramp_turns", "claims", "campaign_summary", "evidence_lines"}
)  # fmt: skip


def others(marts: Marts) -> list[Section]:
    """Marts that this page has no layout for, as folded tables: a newer warehouse than this code hides nothing."""
    found = []
    for mart in marts.tables():
        if mart in QUESTIONS or mart in _PLACED:
            continue
        section = _table_section(
            marts, mart, mart.replace("_", "-"), mart.replace("_", " ").capitalize(), f"marts.{mart}"
        )
        for block in section.blocks if section else []:
            if isinstance(block, Table):
                block.is_folded = True
        if section:
            found.append(section)
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
            table.is_folded = len(rows) > _FOLD_PUBLISHED_ROWS
            blocks.append(table)
    if not blocks:
        return None
    lead = "What did the source documents publish? None of it was measured here, and none of it is mixed with rows."
    return Section("published", "Published elsewhere", lead, blocks)


# Longer tables than this are closed until a reader opens them.
_FOLD_ROWS = 60
_FOLD_PUBLISHED_ROWS = 24


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
