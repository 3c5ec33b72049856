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
    with_interval,
)
from flows.report.marts import Marts, Row
from flows.report.words import STANDING_MARK, STANDINGS, say_number, say_share, say_tokens

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
                summary=run.get("failure_summary") or run.get("note") or run.get("end_note") or "",
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
    known = {
        row["row_id"]: row
        for row in marts.rows("measured_rows", ("row_id", "recipe", "context_tokens", "users", "repeat"))
    }
    shares = [
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
    if 0 < len(shares) <= _MOST_BARS:
        chart = charts.bars(shares, "label", "share_pct", "share of the ceiling, %", "of")
        caption = "Filled: publishable. Outlined: not to be quoted. Beyond 100 % a measurement is wrong, or a ceiling is."
        section.blocks.insert(0, Chart("roofline", "MFU and MBU", caption, chart, shares, {"share_pct": "%"}))
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
            fields = PUBLISHED_CLAIM if mart == "claims" else FIELDS.get(mart) or all_fields(types, _UNSHOWN)
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
    table = make_table(rows, types, FIELDS.get(mart) or all_fields(types, _UNSHOWN))
    table.is_folded = len(rows) > _FOLD_ROWS
    return Section(name, title, lead, [table])


TABLE_ORDER = (
    "campaign", "recipe", "subject", "base_recipe", "changed_recipe", "workload", "variant", "context_tokens", "users",
    "turn", "concurrency", "repeat", "metric", "node_id", "island",
)  # fmt: skip

# What a table without a layout does not show: keys and lists that scripts read from the mart.
_UNSHOWN = (
    "source", "run_id", "cell_id", "row_id", "row_ids", "base_row_ids", "changed_row_ids", "alone_row_ids", "raw_file",
    "raw_line", "comparison_id", "interference_id", "configuration_id", "table_id", "policy", "price_source",
    "price_as_of", "price_key",
)  # fmt: skip

FIELDS: dict[str, list[Field]] = {
    "rescue_comparisons": [
        Field("rescues", "failed"), Field("original_failure_class", "with"),
        Field("reproductions", "failed again", "", lambda row: say_share(row.get("reproduced_failures"), row.get("reproductions"))),
        Field("recipe", "tried instead"), Field("rescue_attempt", "attempt"), Field("rescue_change", "change", value=lambda row: _change(row)),
        Field("state", "outcome", value=lambda row: " ".join(filter(None, (_words(row.get("state")), row.get("failure_class"))))),
        Field("probes_passed", "probes", "passed", share_of("probes_passed", "probes_asked")),
        Field("requests_ok", "served", "requests"), Field("best_output_tokens_per_s", "best output", "tokens/s"),
        Field("kv_tokens", "KV capacity", "tokens"), Field("confounders", "also differed", value=lambda row: _words(row.get("confounders"))),
    ],
    "cost_per_token": [
        Field("standing"), Field("recipe"), Field("workload"), Field("concurrency", "c", ""),
        Field("context_tokens", "context", value=lambda row: say_tokens(row.get("context_tokens"))),
        Field("input_cost_usd_per_mtok", "input", "USD/M tokens"), Field("output_cost_usd_per_mtok", "output", "USD/M tokens"),
        Field("total_cost_usd_per_mtok", "both", "USD/M tokens"),
        Field("input_cost_with_load_usd_per_mtok", "input", "with load time"),
        Field("output_cost_with_load_usd_per_mtok", "output", "with load time"),
        Field("total_cost_with_load_usd_per_mtok", "both", "with load time"),
    ],
    "roofline_shares": [
        Field("standing"), Field("row_id", "row", value=lambda row: str(row.get("row_id") or "").rsplit("/", 1)[-1]),
        Field("device"), Field("compute_precision", "precision"),
        Field("prefill_tokens_per_s", "prefill", "tokens/s"), Field("prefill_ceiling_tokens_per_s", "ceiling", "tokens/s"),
        Field("prefill_share", "share"), Field("decode_tokens_per_s", "decode", "tokens/s"),
        Field("decode_ceiling_tokens_per_s", "ceiling", "tokens/s"), Field("decode_share", "share"),
        Field("mfu", "MFU", "share"), Field("mbu", "MBU", "share"),
    ],
    "campaign_summary": [
        Field("campaign"), Field("source"), Field("policy"), Field("runs"), Field("runs_failed", "failed", "runs"),
        Field("models"), Field("variants"), Field("row_count", "rows"), Field("rows_passing", "publishable", "rows"),
        Field("rows_provisional", "provisional", "rows"), Field("rows_held", "held", "rows"),
        Field("rows_invalid", "invalid", "rows"), Field("rows_passing_strict", "strict", "rows"),
    ],
    "million_token_table": [
        Field("subject"),
        Field("model", value=lambda row: _short(row["model"]) if row.get("model") else ""),
        Field("gpus", "GPUs"),
        Field("configured_tokens", "ceiling", value=lambda row: say_tokens(row.get("configured_tokens")), unit="tokens"),
        Field("capacity_tokens", "fits", value=lambda row: say_tokens(row.get("capacity_tokens")), unit="tokens",
              standing="capacity_standing"),
        Field("fresh_found", "found", "fresh document", share_of("fresh_found", "fresh_asked"), "fresh_standing"),
        Field("ramp_1_recalled", "recalled", "ramp, 1 user", share_of("ramp_1_recalled", "ramp_1_asked"), "ramp_1_standing"),
        Field("ramp_2_recalled", "recalled", "ramp, 2 users", share_of("ramp_2_recalled", "ramp_2_asked"), "ramp_2_standing"),
        Field("last_turn_1_ttft_ms", "last turn TTFT", "ms, 1 user", standing="last_turn_1_standing"),
        Field("last_turn_2_ttft_ms", "last turn TTFT", "ms, 2 users", standing="last_turn_2_standing"),
        Field("last_turn_1_decode_tokens_per_s", "last turn decode", "tokens/s, 1 user", standing="last_turn_1_standing"),
        Field("last_turn_2_decode_tokens_per_s", "last turn decode", "tokens/s, 2 users", standing="last_turn_2_standing"),
        Field("ramp_1_usd_per_mtok", "cost", "USD/M tokens, 1 user", standing="ramp_1_cost_standing"),
        Field("ramp_2_usd_per_mtok", "cost", "USD/M tokens, 2 users", standing="ramp_2_cost_standing"),
        Field("quality_score", "quality", "95 % interval", with_interval("quality_score", "quality_score_low",
              "quality_score_high"), "quality_standing"),
        Field("quality_asked", "of", "answers", standing="quality_standing"),
    ],
    "interference": [
        Field("standing"), Field("subject"), Field("layout"), Field("users"), Field("turn"),
        Field("context_tokens", "context", value=lambda row: say_tokens(row.get("context_tokens"))),
        Field("decode_tokens_per_s_alone", "decode alone", "tokens/s"),
        Field("decode_tokens_per_s_slowest", "slowest with others", "tokens/s"),
        Field("decode_slowdown", "slowdown", "times"),
        Field("ttft_ms_alone", "TTFT alone", "ms"), Field("ttft_ms_slowest", "TTFT with others", "ms"),
        Field("others_prefill_share", "time others prefilled", "share"),
    ],
    "quality_scores": [
        Field("standing"), Field("recipe"), Field("workload"), Field("variant"), Field("concurrency", "c", ""),
        Field("context_tokens", "context", value=lambda row: say_tokens(row.get("context_tokens"))), Field("grader"),
        Field("correct", "right", "", share_of("correct", "graded")),
        Field("score", "score", "95 % interval", with_interval("score", "score_low", "score_high")),
        Field("score_lenient", "lenient", "score"), Field("is_grader_suspect", "grader suspect"),
    ],
    "soak_verdicts": [
        Field("verdict"), Field("verdict_reason", "because"), Field("subject"), Field("standing"),
        Field("concurrency", "c", ""), Field("hours", unit="h"), Field("completed_requests", "served", "requests"),
        Field("failed_requests", "failed", "requests"), Field("output_tokens_per_s", "output"),
        Field("output_drift_share_per_hour", "output drift", "share/h"),
        Field("ttft_drift_share_per_hour", "TTFT drift", "share/h"),
        Field("server_memory_drift_mb_per_hour", "memory drift", "MB/h"),
        Field("before_probes", "probes before", "", share_of("before_probes_passed", "before_probes")),
        Field("during_probes", "during", "", share_of("during_probes_passed", "during_probes")),
        Field("after_probes", "after", "", share_of("after_probes_passed", "after_probes")),
        Field("compared_with"), Field("throughput_ratio", "throughput", "ratio"),
        Field("comparison_verdict", "comparison"), Field("confounders"),
    ],
    "cold_starts": [
        Field("recipe"), Field("engine"), Field("cold_starts", "cold", "starts"), Field("warm_starts", "warm", "starts"),
        Field("cold_ready_s", "ready, cold", "s"), Field("warm_ready_s", "ready, warm", "s"),
        Field("saved_s", "saved", "s", with_interval("saved_s", "saved_s_low", "saved_s_high")),
        *(Field(f"{kind}_{phase}_s", f"{phase.replace('_', ' ')}, {kind}", "s")
          for phase in ("process", "weights", "compile", "graph_capture", "kv") for kind in ("cold", "warm")),
        Field("cold_first_request_ttft_ms", "first TTFT, cold", "ms"),
        Field("warm_first_request_ttft_ms", "first TTFT, warm", "ms"),
    ],
    "speculation_comparisons": [
        Field("verdict"), Field("standing"), Field("subject"), Field("base_recipe", "without"),
        Field("changed_recipe", "with"), Field("workload"), Field("concurrency", "c", ""),
        Field("base_decode_tokens_per_s", "decode without", "tokens/s"),
        Field("changed_decode_tokens_per_s", "decode with", "tokens/s"),
        Field("decode_ratio", "times", "95 % interval", with_interval("decode_ratio", "decode_ratio_low", "decode_ratio_high")),
        Field("output_ratio", "output", "times"), Field("acceptance_length_tokens", "accepted", "tokens a step"),
        Field("base_kv_tokens", "KV without", "tokens"), Field("changed_kv_tokens", "KV with", "tokens"),
        Field("kv_ratio", "KV", "times"), Field("base_n", "n", "", lambda row: _pair(row, "base_n", "changed_n")),
        Field("confounders", "also differed"), Field("verdict_reason", "why"),
    ],
    "layout_comparisons": [
        Field("verdict"), Field("standing"), Field("base_recipe", "one"), Field("changed_recipe", "other"),
        Field("under_test", "under test"), Field("workload"), Field("concurrency", "c", ""), Field("metric"),
        Field("base_figure", "one"), Field("changed_figure", "other"),
        Field("ratio", "times", "95 % interval", with_interval("ratio", "ratio_low", "ratio_high")),
        Field("ratio_per_gpu", "a GPU", "times"), Field("base_n", "n", "", lambda row: _pair(row, "base_n", "changed_n")),
        Field("confounders", "also differed"), Field("verdict_reason", "why"),
    ],
    "precision_audit": [
        Field("verdict"), Field("model", value=lambda row: _short(row.get("model"))),
        Field("claimed_precision", "claimed"), Field("precision_label", "label"), Field("precision_true", "true"),
        Field("compute_precision", "computed in"), Field("params", "parameters", ""), Field("weight_bytes", "weights"),
        Field("bytes_per_param", "a parameter", "bytes"), Field("storage_dtypes", "stored as"),
    ],
    "node_islands": [
        Field("node_id", "node"), Field("gpu_name", "GPU"), Field("island"), Field("gpu_ids", "GPUs"),
        Field("island_link", "linked by"), Field("link_between_islands", "between islands"),
        Field("iommu_mode", "IOMMU"), Field("warnings"),
    ],
    "claims": [Field("sentence", "may be said"), Field("standing"), Field("row_ids", "rows", "", lambda row: _count(row.get("row_ids")))],
}  # fmt: skip

PUBLISHED_CLAIM = [
    Field("sentence", "published"), Field("standing", "as published"), Field("condition"),
    Field("document", "document", "", lambda row: " ".join(filter(None, (row.get("document"), _part(row))))),
]  # fmt: skip


def _words(value: Any) -> str:
    return str(value or "").replace("_", " ")


def _change(row: Row) -> str:
    """What a rescue changed, as `setting: from → to`, however the mart holds it."""
    held = row.get("rescue_change")
    try:
        change = json.loads(held) if isinstance(held, str) else held
    except ValueError:
        return str(held)
    if not isinstance(change, dict):
        return "" if change is None else str(change)
    if set(change) >= {"setting", "from", "to"}:
        change = {change["setting"]: [change["from"], change["to"]]}
    said = []
    for setting, value in change.items():
        if isinstance(value, dict):
            value = list(value.values())
        values = value if isinstance(value, list) else [value]
        said.append(f"{_words(setting)}: {' → '.join(say_number(each) or 'unset' for each in values)}")
    return "; ".join(said)


def _pair(row: Row, one: str, other: str) -> str:
    return "" if row.get(one) is None else f"{row[one]} and {row.get(other)}"


def _count(values: Any) -> str:
    return str(len(values)) if isinstance(values, list) else ""


def _part(row: Row) -> str:
    return (
        f"(part {row['part']})"
        if str(row.get("part") or "").isdigit()
        else f"({row['part']})"
        if row.get("part")
        else ""
    )


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
