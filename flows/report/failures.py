"""The section of kept failures: what did not come up or did not last, with the lines that decided its class."""

from __future__ import annotations

import json
from typing import Any

from flows.report.blocks import Block, Evidence, Section
from flows.report.marts import Marts, Row
from flows.report.words import say_share


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
