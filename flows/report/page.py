"""The report: one HTML file that needs no network, made from the published database."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from contracts.errors import BadInput
from flows import __version__
from flows.report import curves, sections, summary
from flows.report.blocks import Chart, Section, is_quotable
from flows.report.failures import failures
from flows.report.marts import Marts, Row, open_marts
from flows.report.words import (
    QUANTITIES,
    SCREENS,
    STANDING_MARK,
    STANDING_MEANS,
    STANDINGS,
    VERDICT_MARK,
    label_of,
    say,
    say_count,
    say_number,
    say_share,
    say_tokens,
    unit_of,
)

# The figures of the rows table; one that no row has is left out.
FIGURES = ("output_tokens_per_s", "ttft_ms_mean", "ttft_ms_p50", "tpot_ms_p50")

TEMPLATES = Path(__file__).parent / "templates"

# vega-embed brings the addresses of its menu and of an issue; the page has no menu and should name no address. (Without
# vega-embed the bundler of vl-convert 1.9 drops vega itself.)
_BUNDLE_EXPORTS = "window.vegaEmbed=vegaEmbed;"
_ADDRESS = re.compile(r"https://(?:vega\.github\.io|github\.com)/[^\s\"'`]*")


def write_page(database: Path, out: Path) -> Path:
    """Write the page, whole or not at all. Raises BadInput where there is no database, or `out` is a folder."""
    if out.is_dir():
        raise BadInput(
            f"{out} is a folder", required="a file for the page", next_step=f"--out {out / 'report.html'}"
        )
    with open_marts(database) as marts:
        context = gather(marts)
    html = render(context)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    part.write_text(html, encoding="utf-8")
    os.replace(part, out)
    return out


def gather(marts: Marts) -> dict[str, Any]:
    """Everything that the page says, as plain values."""
    rows = marts.rows(
        "measured_rows",
        order=("campaign", "recipe", "workload", "context_tokens", "users", "concurrency", "repeat"),
    )
    runs = marts.rows("runs", order=("campaign", "started_at", "run_id"))
    screens = [name for name in SCREENS if name in marts.columns("measured_rows")]
    figures = [name for name in FIGURES if any(row.get(name) is not None for row in rows)]
    results = _open_screens(marts)
    made, not_run = make_sections(marts)
    policies, required = summary.policies(rows, runs), summary.required_screens()
    written_at = datetime.fromtimestamp(marts.database.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {
        "title": "Weighbridge: " + (", ".join(summary.campaigns(rows, runs)) or "nothing measured yet"),
        "facts": [*summary.header_facts(rows, runs, marts), ("database written", written_at)],
        "campaigns": summary.campaigns(rows, runs),
        "paragraphs": summary.paragraphs(rows, runs, marts, screens, [title for title, _ in not_run]),
        "tallies": [
            {
                "standing": standing,
                "mark": STANDING_MARK[standing],
                "means": STANDING_MEANS[standing],
                "count": sum(1 for row in rows if row.get("standing") == standing),
                "strict": sum(1 for row in rows if row.get("standing_strict") == standing),
            }
            for standing in STANDINGS
        ],
        "synthetic": sum(1 for row in rows if row.get("source") == "synthetic"),
        "has_strict": any(row.get("standing_strict") for row in rows),
        "policies": policies,
        "figures": [QUANTITIES[name] for name in figures],
        "rows": [
            _row_view(
                row, screens, figures, marts.columns("measured_rows"), results.get(row.get("row_id"), [])
            )
            for row in rows
        ],
        "filters": {key: _values(rows, key) for key in ("campaign", "model", "recipe", "workload")},
        "screens": [{"name": name, "means": SCREENS[name]} for name in screens],
        "screen_tallies": [_screen_tally(rows, name) for name in screens],
        "required": required,
        "required_names": {name for policy in policies for name in required.get(policy, [])},
        "sections": made,
        "not_run": not_run,
        "quarantine": summary.quarantine(marts),
        "counts": summary.counts(marts),
        "campaign_table": sections.campaigns(marts),
        "provenance": summary.provenance(rows, runs, marts),
        "charts": [block for section in made for block in section.blocks if isinstance(block, Chart)],
        "version": __version__,
        "verdict_marks": VERDICT_MARK,
        "standing_marks": STANDING_MARK,
    }


def make_sections(marts: Marts) -> tuple[list[Section], list[tuple[str, str]]]:
    """The sections that have rows, in reading order; (title, question) of those that were not run."""
    made: list[Section] = [
        section
        for section in (
            curves.load(marts), curves.recall(marts), failures(marts), sections.rescues(marts),
            sections.claims(marts), sections.cost(marts), sections.probes(marts), sections.roofline(marts),
        )
        if section is not None
    ]  # fmt: skip
    not_run: list[tuple[str, str]] = []
    for each in sections.optional(marts):
        if isinstance(each, Section):
            made.append(each)
        else:
            not_run.append(each)
    made += sections.others(marts)
    published = sections.published(marts)
    if published is not None:
        made.append(published)
    return made, not_run


def _row_view(
    row: Row, screens: list[str], figures: list[str], types: dict[str, str], results: list[Row]
) -> dict[str, Any]:
    """A row as the rows table shows it: main cells, the sixteen verdicts, and everything else for its detail."""
    standing = row.get("standing") or "unknown"
    undecided = [name for name in screens if row.get(name) == "unknown"]
    failed = [name for name in screens if row.get(name) == "fail"]
    shown_elsewhere = {*screens, *figures, "row_id", "standing", "standing_reason", "recipe", "workload", "variant",
                       "concurrency", "context_tokens", "repeat", "campaign", "model"}  # fmt: skip
    more = [
        (label_of(name), say(name, row[name]), unit_of(name).replace("UTC", ""))
        for name in types
        if name not in shown_elsewhere and row.get(name) is not None
    ]
    return {
        "row_id": row.get("row_id") or "",
        "standing": standing,
        "mark": STANDING_MARK.get(standing, "·"),
        "is_quotable": is_quotable(row),
        "source": row.get("source") if row.get("source") != "measured" else "",
        "campaign": row.get("campaign") or "",
        "model": row.get("model") or "",
        "recipe": row.get("recipe") or "",
        "workload": row.get("workload") or "",
        "variant": row.get("variant") or "",
        "concurrency": say("concurrency", row.get("concurrency")),
        "context": say_tokens(row.get("context_tokens")),
        "repeat": say("repeat", row.get("repeat")),
        "figures": [say(name, row.get(name)) for name in figures],
        "ok": say_share(row.get("requests_ok"), row.get("requests_planned")),
        "recall": say_share(row.get("needles_found"), row.get("needles_asked")),
        "reason": row.get("standing_reason") or "",
        "strict": row.get("standing_strict"),
        "strict_mark": STANDING_MARK.get(row.get("standing_strict") or "", "·"),
        "verdicts": [(name, row.get(name) or "unknown") for name in screens],
        "failed": failed,
        "undecided": undecided,
        "more": more,
        "open": [
            {
                "screen": each["screen"],
                "verdict": each["verdict"],
                "part": each["part"],
                "measured": _say_measured(each),
                "required": each["required"] or "",
                "reason": each["reason"] or "",
            }
            for each in results
        ],
    }


def _say_measured(result: Row) -> str:
    value = result["measured"]
    if value is None:
        return "nothing"
    number = say_number(int(value) if float(value).is_integer() else value)
    return f"{number} {result['unit'] or ''}".strip()


def _open_screens(marts: Marts) -> dict[Any, list[Row]]:
    """row_id -> its screens that failed or could not be decided, with the part that decided it."""
    order = {name: at for at, name in enumerate(SCREENS)}
    found: dict[Any, list[Row]] = {}
    for row in marts.query(
        """
        select row_id, screen, verdict, part, measured, required, unit, reason
        from intermediate.int_screen_results
        where verdict in ('fail', 'unknown')
        """,
        or_none=True,
    ):
        found.setdefault(row["row_id"], []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: (row["verdict"] != "fail", order.get(row["screen"], len(order))))
    return found


def _values(rows: list[Row], key: str) -> list[str]:
    return sorted({str(row[key]) for row in rows if row.get(key)})


def _screen_tally(rows: list[Row], name: str) -> dict[str, Any]:
    counts = {verdict: sum(1 for row in rows if row.get(name) == verdict) for verdict in VERDICT_MARK}
    return {"name": name, "means": SCREENS[name], "counts": counts, "total": max(sum(counts.values()), 1)}


def render(context: dict[str, Any]) -> str:
    """The page as text; everything from the database is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(say_count=say_count)
    specs = {chart.name: chart.spec for chart in context["charts"]}
    return environment.get_template("page.html.jinja").render(
        context,
        css=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        script=(TEMPLATES / "page.js").read_text(encoding="utf-8"),
        bundle=_vega_bundle() if specs else "",
        # `</` inside a script element would end it.
        specs=json.dumps(specs, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/"),
    )


@cache
def _vega_bundle() -> str:
    import vl_convert

    return _ADDRESS.sub("", vl_convert.javascript_bundle(_BUNDLE_EXPORTS)).replace("</script", "<\\/script")
