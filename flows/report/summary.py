"""What the page says in plain words, counted from the rows; and where the evidence lies."""

from __future__ import annotations

from collections import Counter
from typing import Any

from contracts.policies import POLICIES
from flows.report.blocks import is_quotable
from flows.report.marts import Marts, Row
from flows.report.sections import price_of
from flows.report.words import SCREENS, say, say_count, say_tokens


def campaigns(rows: list[Row], runs: list[Row]) -> list[str]:
    """Names of the campaigns in the warehouse, sorted."""
    return sorted({str(row["campaign"]) for row in [*rows, *runs] if row.get("campaign")})


def policies(rows: list[Row], runs: list[Row]) -> list[str]:
    """Names of the publication policies that the campaigns chose."""
    return sorted({str(row["policy"]) for row in [*rows, *runs] if row.get("policy")})


def header_facts(rows: list[Row], runs: list[Row], marts: Marts) -> list[tuple[str, str]]:
    """The facts under the title: nodes, devices, engines, policy, and when it was measured."""
    facts = []
    nodes = _distinct(runs, "node_id")
    devices = _distinct([*runs, *rows], "gpu_name")
    if nodes:
        facts.append(("node" if len(nodes) == 1 else "nodes", ", ".join(nodes)))
    gpus = max((row.get("gpus") or 0 for row in [*runs, *rows]), default=0)
    if devices:
        facts.append(("devices", f"up to {gpus} × {', '.join(devices)}" if gpus else ", ".join(devices)))
    elif any(row.get("source") != "imported" for row in runs):
        # A CPU node is priced as one device, and names no GPU.
        facts.append(("devices", "CPU"))
    engines = sorted(
        {
            " ".join(filter(None, (r.get("engine"), r.get("engine_version"))))
            for r in runs
            if r.get("engine_version")
        }
    )
    if engines:
        facts.append(("engine" if len(engines) == 1 else "engines", ", ".join(engines)))
    if policies(rows, runs):
        facts.append(("policy", ", ".join(policies(rows, runs))))
    price = price_of(marts)
    if price:
        facts.append(("price", price))
    measured = sorted(str(run["started_at"])[:10] for run in runs if run.get("started_at"))
    if measured:
        facts.append(
            ("measured", measured[0] if measured[0] == measured[-1] else f"{measured[0]} to {measured[-1]}")
        )
    return facts


def paragraphs(
    rows: list[Row], runs: list[Row], marts: Marts, screens: list[str], not_run: list[str]
) -> list[tuple[str, str]]:
    """(heading, sentence) of the summary: asked, quotable, failed, and what it does not show."""
    if not rows and not runs:
        return [
            (
                "Nothing has been measured yet",
                "The warehouse holds no runs. `weighbridge run campaigns/quickstart.yaml` measures this machine; "
                "`weighbridge build` judges what lies in raw/.",
            )
        ]
    return [
        ("What was asked", _asked(rows, runs)),
        ("What can be quoted", _quotable(rows)),
        ("What failed", _failed(rows, runs)),
        ("What this does not show", _not_shown(rows, screens, not_run)),
    ]


def _asked(rows: list[Row], runs: list[Row]) -> str:
    recipes, models = _distinct(runs or rows, "recipe"), _distinct(runs or rows, "model")
    text = f"{say_count(len(recipes), 'recipe')} of {say_count(len(models), 'model')} in {say_count(len(runs), 'run')}"
    imported = sum(1 for row in rows if row.get("source") == "imported")
    workloads = []
    for name in _distinct(rows, "workload"):
        some = [row for row in rows if row.get("workload") == name]
        levels = sorted({row["concurrency"] for row in some if row.get("concurrency")})
        contexts = sorted({row["context_tokens"] for row in some if row.get("context_tokens")})
        about = []
        if len(levels) > 1:
            about.append("at concurrency " + ", ".join(map(str, levels)))
        if contexts:
            about.append(
                f"up to {say_tokens(contexts[-1])} tokens"
                if len(contexts) > 1
                else f"at {say_tokens(contexts[0])} tokens"
            )
        workloads.append(
            f"{name.replace('_', ' ')} " + " and ".join(about) if about else name.replace("_", " ")
        )
    if workloads:
        text += f". Workloads: {'; '.join(word.strip() for word in workloads)}"
    text += f". That gave {say_count(len(rows), 'row')}"
    if imported:
        text += f", {imported:,} of them read from other tools' result files"
    synthetic = sum(1 for row in rows if row.get("source") == "synthetic")
    if synthetic:
        text += f", {synthetic:,} of them synthetic (made by a generator, no measurement)"
    return text + "."


def _quotable(rows: list[Row]) -> str:
    passed = [row for row in rows if row.get("standing") == "publishable" and is_quotable(row)]
    if not passed:
        return "No row. Every figure below is evidence, and none of them may be quoted."
    text = f"{len(passed):,} of {say_count(len(rows), 'row')} passed every screen that the campaign's policy requires."
    best = max(
        (row for row in passed if row.get("output_tokens_per_s")),
        key=lambda r: r["output_tokens_per_s"],
        default=None,
    )
    if best is not None:
        text += (
            f" The highest quotable output is {say('output_tokens_per_s', best['output_tokens_per_s'])} tokens/s: "
            f"recipe {best.get('recipe')}, {str(best.get('workload')).replace('_', ' ')}"
            f" at concurrency {best.get('concurrency')} (row {best.get('row_id')})."
        )
    return text


def _failed(rows: list[Row], runs: list[Row]) -> str:
    failed = [run for run in runs if run.get("failure_class") and not run.get("reproduces_run_id")]
    again = [run for run in runs if run.get("reproduces_run_id")]
    parts = []
    if failed:
        classes = Counter(f"{run.get('recipe')} ({run['failure_class']})" for run in failed)
        said = ", ".join(name if n == 1 else f"{name} × {n}" for name, n in classes.items())
        parts.append(f"{say_count(len(failed), 'bring-up')} failed: {said}.")
        if again:
            repeated = sum(1 for run in again if run.get("failure_class"))
            parts.append(f"Tried again, {repeated} of {len(again)} failed again.")
        saved = sorted(
            {
                f"{run['rescues']} by {run['recipe']}"
                for run in runs
                if run.get("rescues") and run.get("state") == "served"
            }
        )
        if saved:
            parts.append(f"Rescued: {', '.join(saved)}.")
    for standing, word in (
        ("held", "failed a required screen"),
        ("invalid", "broke as measurements"),
        ("provisional", "could not be proven"),
    ):
        some = [row for row in rows if row.get("standing") == standing]
        if some:
            reasons = Counter(_first_reason(row) for row in some if _first_reason(row))
            why = ", ".join(name for name, _ in reasons.most_common(3))
            parts.append(f"{say_count(len(some), 'row')} {word}" + (f" ({why})." if why else "."))
    return " ".join(parts) or "Nothing: every recipe came up, and every row passed what its policy requires."


def _first_reason(row: Row) -> str:
    """The start of a standing's reason: the screen's name where it is one, else the first words."""
    reason = str(row.get("standing_reason") or "")
    named = next((name for name in SCREENS if reason.startswith(name)), None)
    return named or reason[:60]


def _not_shown(rows: list[Row], screens: list[str], not_run: list[str]) -> str:
    parts = []
    judged = [row for row in rows if row.get("standing_strict")]
    if judged:
        strict = sum(1 for row in judged if row["standing_strict"] == "publishable")
        text = f"Under the strict policy, all screens, {strict:,} of {say_count(len(judged), 'row')} would publish"
        open_screens = Counter(
            name for row in judged for name in screens if row.get(name) in ("fail", "unknown")
        )
        if open_screens and strict < len(judged):
            text += "; most often open: " + ", ".join(
                f"{name} ({n:,})" for name, n in open_screens.most_common(3)
            )
        parts.append(text + ".")
    if not_run:
        parts.append(f"Not run here: {', '.join(map(_in_sentence, not_run))}.")
    parts.append(
        "A quotable row holds for this node, this engine version and these settings. Finding planted facts is not reasoning, "
        "and a short window is no promise for production."
    )
    return " ".join(parts)


def _in_sentence(title: str) -> str:
    """A title as it stands inside a sentence; an abbreviation keeps its capitals."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def required_screens() -> dict[str, list[str]]:
    """Policy -> the screens that it requires."""
    return {policy: list(names) for policy, names in POLICIES.items()}


def quarantine(marts: Marts) -> dict[str, Any]:
    """Lines of raw that no row was made from, by reason."""
    if not marts.columns("stg_quarantine", "staging"):
        return {"total": None, "reasons": []}
    found = marts.query(
        "select reason, count(*) as lines from staging.stg_quarantine group by reason order by lines desc"
    )
    return {
        "total": sum(row["lines"] for row in found),
        "reasons": [(str(row["reason"]).replace("_", " "), row["lines"]) for row in found],
    }


def counts(marts: Marts) -> list[tuple[str, int]]:
    """(mart, rows) of every table, so that a reader sees what there is."""
    return [(name, marts.count(name) or 0) for name in marts.tables()]


def provenance(rows: list[Row], runs: list[Row], marts: Marts) -> list[dict[str, str]]:
    """Where each run's raw evidence lies, and what it was made with. seals: landed files whose sha256 is on record."""
    sealed = marts.query(
        """
        select run_id, count(*) filter (where sealed_sha256 is not null) as files
        from staging.stg_files group by run_id
        """,
        or_none=True,
    )
    seals = {row["run_id"]: row["files"] for row in sealed}
    return [
        {
            "run_id": str(run.get("run_id") or ""),
            "raw": f"raw/{run.get('campaign')}/{run.get('run_id')}",
            "state": str(run.get("state") or ""),
            "rows": str(sum(1 for row in rows if row.get("run_id") == run.get("run_id"))),
            "engine": " ".join(filter(None, (run.get("engine"), run.get("engine_version")))),
            "seals": str(seals.get(run.get("run_id"), "")),
        }
        for run in runs
    ]


def _distinct(rows: list[Row], key: str) -> list[str]:
    return list(dict.fromkeys(str(row[key]) for row in rows if row.get(key)))
