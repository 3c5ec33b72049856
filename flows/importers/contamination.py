"""What several rows of one server, and metrics dumps beside them, say about the prompts having been seen before."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.errors import BadInput
from flows.engines.metrics import read_counters
from flows.importers.result import ResultRow

# Tokens of a row against the prompt tokens that the server counted: closer than this, the dumps span exactly the rows.
SPAN_TOLERANCE = 0.005
# A row below this share of the span's tokens has no claim to the span's counters.
OWN_SHARE = 0.5
# Hits that the repeat of a seed predicts, against hits counted: block rounding and shared first tokens differ.
REPEAT_TOLERANCE = 0.05
# Cold prompts may share this much by accident (first blocks, templates): the cache screen's own cold budget.
COLD_SHARE = 0.01


@dataclass
class Dumps:
    """The engine's counters before and after, and their differences; None where the engine gives no such counter."""

    before: dict[str, Any]
    after: dict[str, Any]
    paths: list[Path]
    deltas: dict[str, float | None] = field(default_factory=dict)


def read_dumps(before: Path | None, after: Path | None) -> Dumps | None:
    """Read the dumps. Raises BadInput for one without the other, no known metric, or a restart between them."""
    if before is None and after is None:
        return None
    if before is None or after is None:
        raise BadInput(
            "a metrics dump needs its other half: counters are differences",
            required="--metrics-before and --metrics-after",
            evidence=str(before or after),
        )
    first, last = _counters(before), _counters(after)
    dumps = Dumps(first, last, [before, after])
    started = first.get("process_start_time_s"), last.get("process_start_time_s")
    if None not in started and started[0] != started[1]:
        raise BadInput(
            "the server was restarted between the two metrics dumps: their difference means nothing",
            measured=f"process start {started[0]:.0f} before, {started[1]:.0f} after",
            evidence=str(after),
        )
    for name in (
        "prompt_tokens",
        "cached_prompt_tokens",
        "prefix_queries",
        "output_tokens",
        "requests_ok",
        "preemptions",
    ):
        if first.get(name) is not None and last.get(name) is not None:
            delta = last[name] - first[name]
            if delta < 0:
                raise BadInput(
                    f"{name} falls from the dump before to the one after",
                    measured=f"{first[name]:g} before, {last[name]:g} after",
                    evidence=str(after),
                    next_step="check that the two files are not swapped and are of one server",
                )
            dumps.deltas[name] = delta
        elif last.get(name) is not None and name not in first:
            dumps.deltas[name] = None
    return dumps


def _counters(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"metrics dump {path.name} cannot be read: {error}", evidence=str(path)) from None
    counters = read_counters(text)
    if all(counters.get(name) is None for name in ("prompt_tokens", "prefix_queries", "output_tokens")):
        raise BadInput(f"{path.name} holds no metric of tokens of a known engine", evidence=str(path))
    return counters


def compare_rows(rows: list[ResultRow], dumps: Dumps | None) -> list[ResultRow]:
    """Hold rows of one server lifetime against each other and against the dumps; returns them in order of time.

    Fills evidence: repeated_prompt_share, is_repeat_confirmed, span_*; and notes. Nothing here is a verdict.
    """
    ordered = sorted(rows, key=lambda row: (row.started_at or "", row.source.name, row.row_in_file))
    shares = _predict_repeats(ordered)
    for row, share in zip(ordered, shares, strict=True):
        if share:
            row.evidence["repeated_prompt_share"] = share
            row.notes.append(
                f"an earlier row of the same shape ran on what may be the same server: with the default seed "
                f"{share:.0%} of these prompts had been sent before; the file does not record the seed"
            )
    _note_inversions(ordered)
    if dumps is not None:
        _read_span(ordered, dumps)
    return ordered


def _predict_repeats(ordered: list[ResultRow]) -> list[float]:
    """Share of each row's prompts that were sent before, if the dataset's seed is the same for all (its default)."""
    largest: dict[Any, float] = {}
    shares = []
    for row in ordered:
        count, mean = (
            row.figure("requests_planned") or row.figure("requests_ok"),
            row.figure("prompt_tokens_mean"),
        )
        if not count or mean is None or row.part_of != "row" or row.evidence.get("sweep_run") is not None:
            shares.append(0.0)
            continue
        key = (row.tool, row.model, row.label, round(mean))
        shares.append(min(largest.get(key, 0.0), count) / count)
        largest[key] = max(largest.get(key, 0.0), count)
    return shares


def _note_inversions(ordered: list[ResultRow]) -> None:
    """TTFT that falls where load rises is what a warm cache looks like; alone it proves nothing."""
    for row in ordered:
        for other in ordered:
            mine, theirs = row.figure("asked_concurrency"), other.figure("asked_concurrency")
            ttft, other_ttft = row.figure("ttft_p50_ms"), other.figure("ttft_p50_ms")
            if (
                None in (mine, theirs, ttft, other_ttft)
                or row.label != other.label
                or row.model != other.model
            ):
                continue
            assert mine is not None and theirs is not None and ttft is not None and other_ttft is not None
            same_shape = round(row.figure("prompt_tokens_mean") or 0) == round(
                other.figure("prompt_tokens_mean") or 0
            )
            if mine >= 2 * theirs and ttft < other_ttft and same_shape:
                row.evidence["ttft_inversion"] = True
                row.notes.append(
                    f"median TTFT at concurrency {mine:g} ({ttft:.0f} ms) is below that at {theirs:g} "
                    f"({other_ttft:.0f} ms): what a prefix cache warmed by the earlier row looks like"
                )
                break


def _read_span(ordered: list[ResultRow], dumps: Dumps) -> None:
    prompt, cached = dumps.deltas.get("prompt_tokens"), dumps.deltas.get("cached_prompt_tokens")
    output = dumps.deltas.get("output_tokens")
    tokens = [row.figure("prompt_tokens") or 0.0 for row in ordered]
    span = {
        "prompt_tokens": prompt,
        "cached_prompt_tokens": cached,
        "output_tokens": output,
        "rows": len(ordered),
    }
    total = sum(tokens)
    matches = bool(prompt) and abs(total - (prompt or 0.0)) <= SPAN_TOLERANCE * (prompt or 1.0)
    for row in ordered:
        row.evidence["span"] = {**span, "matches_rows": matches}
    if not prompt or cached is None:
        for row in ordered:
            row.missing.append("cached prompt tokens: the dumps hold no such counter")
        return
    share = cached / prompt
    predicted = sum(
        (row.evidence.get("repeated_prompt_share") or 0.0) * count
        for row, count in zip(ordered, tokens, strict=True)
    )
    confirmed = (
        matches and cached > COLD_SHARE * prompt and abs(predicted - cached) <= REPEAT_TOLERANCE * cached
    )
    for row, count in zip(ordered, tokens, strict=True):
        row.evidence["span_cached_share"] = share
        if not matches and count < OWN_SHARE * prompt:
            row.evidence["span_is_own"] = False
            row.notes.append(
                f"the dumps span {prompt:,.0f} prompt tokens, this row has {count:,.0f}: they say little of it"
            )
            continue
        row.evidence["span_is_own"] = len(ordered) == 1
        repeated = row.evidence.get("repeated_prompt_share") or 0.0
        if confirmed:
            row.evidence["is_repeat_confirmed"] = repeated > 0
            if repeated:
                # Of a row that no repeat explains, the hits that are left over may still be its own: unknown.
                row.evidence["attributed_cached_share"] = repeated
                row.evidence["prompts_repeated"] = round(
                    repeated * (row.figure("requests_planned") or row.figure("requests_ok") or 0)
                )
            row.notes.append(
                f"the engine served {cached:,.0f} of {prompt:,.0f} prompt tokens ({share:.1%}) from its prefix cache; "
                f"the same seed in every row predicts {predicted:,.0f}: {repeated:.0%} of this row's prompts repeat"
            )
        else:
            row.notes.append(
                f"the engine served {cached:,.0f} of {prompt:,.0f} prompt tokens ({share:.1%}) from its prefix cache "
                f"while {'this row' if len(ordered) == 1 else f'these {len(ordered)} rows'} ran"
            )
    if matches and output is not None:
        counted = sum(row.figure("output_tokens") or 0.0 for row in ordered)
        for row in ordered:
            row.evidence["span_output_ratio"] = counted / output if output else None
            if counted and abs(output / counted - 1) > SPAN_TOLERANCE:
                row.evidence["counted_output_ratio"] = output / counted
            row.evidence["span_prompt_ratio"] = total / prompt
