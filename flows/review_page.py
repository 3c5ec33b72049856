"""The campaign review as one HTML page that reads offline: no script, no font, no address outside the page."""

from __future__ import annotations

from html import escape

from contracts.review import METRICS, Finding, Review

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 74rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24 }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d8dee4; vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.moved { color: #a40e26; font-weight: 600 } .steady { color: #1a7f37 } .unknown { color: #6e7781 }
.note { color: #6e7781 }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3 } th, td { border-color: #30363d }
  .moved { color: #ff7b72 } .steady { color: #3fb950 }
}
"""
KINDS = {
    "median": (
        "Medians, cell by cell",
        "The current median against the earlier one, give or take its own spread.",
    ),
    "distribution": (
        "Distributions",
        "Every row as a ratio to its cell's earlier median, all cells together.",
    ),
    "share": ("Standing", "The share of rows that are publishable under the campaign's policy."),
}


def render_review(review: Review) -> str:
    """The page's HTML. Findings that moved stand first; what could not be judged is said, not hidden."""
    headline = {
        True: '<span class="moved">something moved</span>',
        False: '<span class="steady">nothing moved</span>',
        None: '<span class="unknown">nothing could be judged</span>',
    }[review.has_drift]
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'>",
        f"<title>Review of {escape(review.campaign)}</title><style>{STYLE}</style></head><body>",
        f"<h1>Review of {escape(review.campaign)}: {headline}</h1>",
        f"<p>Against {escape(', '.join(review.against)) or 'no earlier campaign'}. A review is for a person to read;",
        " it publishes nothing and holds nothing back. The screens do that, row by row.</p>",
    ]
    for kind, (title, lead) in KINDS.items():
        findings = [finding for finding in review.findings if finding.kind == kind]
        if findings:
            parts += [f"<h2>{title}</h2><p class='note'>{lead}</p>", _table(findings)]
    for title, cells in (
        ("Cells that only the earlier campaigns have", review.missing_cells),
        ("Cells that are new", review.new_cells),
    ):
        if cells:
            parts += [f"<h2>{title}</h2><ul>", *(f"<li>{escape(cell)}</li>" for cell in cells), "</ul>"]
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _table(findings: list[Finding]) -> str:
    order = {"moved": 0, "unknown": 1, "steady": 2}
    rows = [
        "<table><thead><tr><th>verdict</th><th>what</th><th>metric</th><th class='number'>earlier (rows)</th>"
        "<th class='number'>current (rows)</th><th class='number'>change</th><th class='number'>allowed</th>"
        "</tr></thead><tbody>"
    ]
    for finding in sorted(findings, key=lambda found: (order[found.verdict], -abs(found.change_share or 0))):
        note = f"<br><span class='note'>{escape(finding.note)}</span>" if finding.note else ""
        change = "" if finding.change_share is None else f"{finding.change_share:+.1%}"
        rows.append(
            f"<tr><td class='{finding.verdict}'>{finding.verdict}</td><td>{escape(finding.subject)}{note}</td>"
            f"<td>{escape(METRICS.get(finding.metric, finding.metric.replace('_', ' ')))}</td>"
            f"<td class='number'>{_figure(finding.earlier)} ({finding.earlier_rows})</td>"
            f"<td class='number'>{_figure(finding.current)} ({finding.current_rows})</td>"
            f"<td class='number'>{change}</td><td class='number'>{_allowed(finding)}</td></tr>"
        )
    return "\n".join([*rows, "</tbody></table>"])


def _allowed(finding: Finding) -> str:
    if finding.low is None and finding.high is None:
        return ""
    if finding.low is None:
        return f"below {_figure(finding.high)} nats"
    return f"{_figure(finding.low)} to {_figure(finding.high)}"


def _figure(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
