"""Reads score files of other tools (lm_eval's results, flat summaries, JSONL of answers) and says what they support.

A score is never given without its filter, its sample size and an interval, and never when it is a scorer's failure: a
strict 0 beside a high flexible score is a missing `####`, not a model that cannot add.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.errors import BadInput
from flows.workloads import facts, scoring

# A chain of thought cut at this many tokens has cost other people half of a score (0.72 for 1.00, 0.48 for 0.92).
SHORT_ANSWER_TOKENS = 512
# More than this share of empty or cut answers makes a low score the limit's and not the model's.
MAX_CUT_SHARE = 0.01
_STRICT = ("strict", "strict-match", "strict_match")
_FLEXIBLE = ("flexible", "flexible-extract", "flexible_extract")
_PLAIN_METRICS = ("exact_match", "acc", "acc_norm", "em", "f1")


@dataclass
class Score:
    """One metric under one filter. value: a share. count: answers it was computed from; of_count: the whole set's.

    status: `ok`; `diagnostic` (a part of the set); `format_failure` (the scorer's, not the model's); `suspect` (refuse
    until the share of cut answers is known); `invalid` (contradicts itself, or empty answers were scored).
    """

    task: str
    metric: str
    filter: str
    value: float
    count: int | None = None
    of_count: int | None = None
    stderr: float | None = None
    shots: int | None = None
    answer_tokens: int | None = None
    status: str = "ok"
    reasons: list[str] = field(default_factory=list)

    @property
    def is_publishable(self) -> bool:
        return self.status == "ok" and self.count is not None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95 % interval; None where the size is unknown."""
        if not self.count:
            return None
        return scoring.wilson(round(self.value * self.count), self.count)

    def as_dict(self) -> dict[str, Any]:
        interval = self.interval
        return {
            "task": self.task,
            "metric": self.metric,
            "filter": self.filter,
            "value": self.value,
            "n": self.count,
            "n_total": self.of_count,
            "stderr": self.stderr,
            "interval_95": None if interval is None else [round(bound, 4) for bound in interval],
            "num_fewshot": self.shots,
            "answer_tokens": self.answer_tokens,
            "status": self.status,
            "is_publishable": self.is_publishable,
            "reasons": self.reasons,
        }


def read_scores(path: Path) -> list[dict[str, Any]]:
    """What each object of a JSON or JSONL file says: `{where, kind, ...}`. Raises BadInput for what is no JSON."""
    readings = []
    for where, row in _objects(path):
        reading = judge_object(row)
        readings.append({"where": where, **reading})
    return readings


def compare_readings(readings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every score of one reading against every score of another on the same task: comparable or not, and why."""
    found = []
    for place, left in enumerate(readings):
        for right in readings[place + 1 :]:
            for a in left.get("scores", []):
                for b in right.get("scores", []):
                    if a["task"] != b["task"] or left["kind"] == "limits" or right["kind"] == "limits":
                        continue
                    verdict, why = compare_scores(_as_score(a), _as_score(b))
                    found.append(
                        {
                            "a": f"{left['where']} {a['filter']}",
                            "b": f"{right['where']} {b['filter']}",
                            "verdict": verdict,
                            "why": why,
                        }
                    )
    return found


def _as_score(row: dict[str, Any]) -> Score:
    return Score(
        row["task"], row["metric"], row["filter"], row["value"], row["n"], row["n_total"], row["stderr"],
        row["num_fewshot"], row["answer_tokens"], row["status"], row["reasons"],
    )  # fmt: skip


def judge_object(row: dict[str, Any]) -> dict[str, Any]:
    """One object by its shape: scores (results), an answer with its target, or a note with neither."""
    if isinstance(row.get("results"), dict):
        return _scores("lm_eval", lm_eval_scores(row))
    if any(key.startswith(("exact_match", "acc")) for key in row) and "resps" not in row:
        return _scores("summary", flat_scores(row))
    if any(name in row for name in (*_STRICT, *_FLEXIBLE)):
        return _scores("summary", _paired_scores(row))
    limited = limit_runs(row)
    if limited:
        return _scores("limits", limited)
    graded = facts.grade_object(row)
    if graded is not None:
        return graded
    return {"kind": "note", "verdict": None, "why": "neither a score nor an answer with its target"}


def _scores(kind: str, scores: list[Score]) -> dict[str, Any]:
    headline = next((score for score in _by_preference(scores) if score.status in ("ok", "diagnostic")), None)
    return {
        "kind": kind,
        "score": None if headline is None else headline.value,
        "filter": None if headline is None else headline.filter,
        "n": None if headline is None else headline.count,
        "is_publishable": headline is not None and headline.is_publishable,
        "reasons": sorted({reason for score in scores for reason in score.reasons}),
        "scores": [score.as_dict() for score in scores],
    }


def _by_preference(scores: list[Score]) -> list[Score]:
    """The flexible reading first: it is the one that survives another format."""
    return sorted(scores, key=lambda score: score.filter not in _FLEXIBLE)


def lm_eval_scores(row: dict[str, Any]) -> list[Score]:
    """Every `metric,filter` of an lm_eval results file, with sizes, shots and limits where the file has them."""
    config = row.get("config") or {}
    scores = []
    for task, values in row["results"].items():
        if not isinstance(values, dict):
            continue
        own = (row.get("configs") or {}).get(task) or {}
        sizes = (row.get("n-samples") or {}).get(task) or {}
        count = (
            _whole(sizes.get("effective"))
            or _whole(values.get("sample_len"))
            or _whole(values.get("samples"))
        )
        total = _whole(sizes.get("original"))
        if count is None:
            count = _whole(config.get("limit"))
        shots = _whole((row.get("n-shot") or {}).get(task))
        if shots is None:
            shots = _whole(own.get("num_fewshot"))
        group = []
        for key, value in values.items():
            metric, comma, name = key.partition(",")
            # Before 0.4, lm_eval named no filter: `acc`, `acc_norm`, `acc_stderr`.
            if (
                (not comma and metric not in _PLAIN_METRICS)
                or metric.endswith("_stderr")
                or not isinstance(value, (int, float))
                or isinstance(value, bool)
            ):
                continue
            error = values.get(f"{metric}_stderr,{name}" if comma else f"{metric}_stderr")
            group.append(
                Score(
                    task=task,
                    metric=metric,
                    filter=name or "none",
                    value=float(value),
                    count=count,
                    of_count=total,
                    stderr=float(error) if isinstance(error, (int, float)) else None,
                    shots=shots,
                    answer_tokens=_answer_tokens(own, config),
                )
            )
        scores += judge_scores(group)
    return scores


def flat_scores(row: dict[str, Any]) -> list[Score]:
    """Scores of a flat summary whose keys are `<metric>_<filter>` with `_stderr` beside them."""
    group = []
    for key, value in row.items():
        if key.endswith("_stderr") or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        match = re.fullmatch(r"(exact_match|acc_norm|acc)[,_]?(.*)", key)
        if not match:
            continue
        error = row.get(f"{key}_stderr")
        group.append(
            Score(
                task=str(row.get("task", "unknown")),
                metric=match.group(1),
                filter=match.group(2).replace("_", "-") or "none",
                value=float(value),
                count=_first_whole(row, ("sample_count", "n", "samples", "n_samples", "sample_len", "limit")),
                of_count=_first_whole(row, ("total", "n_total", "original")),
                stderr=float(error) if isinstance(error, (int, float)) else None,
                shots=_whole(row.get("num_fewshot")),
                answer_tokens=_answer_tokens(row, row.get("gen_kwargs") or {}),
            )
        )
    return judge_scores(group)


# Sizes of test sets that are quoted without their size.
_SET_SIZES = {"gsm8k": 1319, "gsm8k_cot": 1319}


def _paired_scores(row: dict[str, Any]) -> list[Score]:
    text = " ".join(str(value) for value in row.values() if isinstance(value, str))
    named = re.match(r"[a-z0-9_]+", str(row.get("task", "gsm8k")).lower())
    task = named.group() if named else "gsm8k"
    count = _whole(row.get("n"))
    limit = _whole(row.get("limit"))
    total = _SET_SIZES.get(task)
    group = [
        Score(
            task=task,
            metric="exact_match",
            filter=name,
            value=float(row[key]),
            count=count if count is not None else limit,
            of_count=total if total and count and total >= count else None,
            stderr=float(row["stderr"]) if isinstance(row.get("stderr"), (int, float)) else None,
            shots=_whole(row.get("num_fewshot")),
            answer_tokens=_answer_tokens(row, {}) or _tokens_in_text(text),
        )
        for keys, name in ((_STRICT, "strict-match"), (_FLEXIBLE, "flexible-extract"))
        for key in keys
        if isinstance(row.get(key), (int, float)) and not isinstance(row.get(key), bool)
    ]
    return judge_scores(group, cut_share=_cut_share(row))


def limit_runs(row: dict[str, Any]) -> list[Score]:
    """The same task at several answer limits (`max_tokens_384`, `mmlu_2048`, ...): a lower limit's lower score is its own.

    A run is invalid when a longer limit scores clearly higher on the same task.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for key, value in row.items():
        match = re.fullmatch(r"(?:((?!max_)\w+?)_)?(?:max_(?:gen_)?tok(?:en)?s_)?(\d{2,6})", key)
        if match and isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
            found.setdefault(match.group(1) or "task", []).append((int(match.group(2)), float(value)))
    scores = []
    empty = _cut_share(row)
    for task, runs in found.items():
        if len(runs) < 2:
            continue
        runs.sort()
        best = runs[-1][1]
        for limit, value in runs:
            score = Score(
                task=task, metric="share", filter=f"limit {limit}", value=value, answer_tokens=limit
            )
            size = re.search(r"(\d+)\s+items", str(row.get("task", "")))
            score.count = int(size.group(1)) if size and task == "task" else None
            if limit < runs[-1][0] and best - value > 0.05:
                score.status = "invalid"
                score.reasons.append(
                    f"cut at {limit} tokens: {value:g}, where {runs[-1][0]} tokens give {best:g}"
                    + (f"; {empty:.0%} of its visible answers are empty" if empty else "")
                )
            scores.append(score)
    return scores


def judge_scores(group: list[Score], cut_share: float | None = None) -> list[Score]:
    """Set the status of the scores of one task, strict and flexible seen together."""
    strict = next((score for score in group if score.filter in _STRICT), None)
    flexible = next((score for score in group if score.filter in _FLEXIBLE), None)
    for score in group:
        if not math.isfinite(score.value) or not 0 <= score.value <= 1:
            _set(score, "invalid", f"{score.value:g} is no share")
            continue
        if score.count is not None and score.of_count is not None and score.count < score.of_count:
            low, high = score.interval or (0.0, 1.0)
            _set(
                score,
                "diagnostic",
                f"{score.count} of {score.of_count} answers: ±{100 * (high - low) / 2:.0f} points at 95 %, "
                "not comparable to the full set",
            )
        if score.count is None:
            score.reasons.append("no sample size")
        if score.stderr is not None and score.count is not None and not _error_fits(score):
            score.reasons.append(
                f"stderr {score.stderr:.4f} is not that of {score.count} answers at {score.value:.3f}"
            )
    if (
        strict is not None
        and flexible is not None
        and flexible.value - strict.value > 0.2
        and strict.value < 0.5 * flexible.value
    ):
        _set(
            strict,
            "format_failure",
            f"strict {strict.value:g} beside flexible {flexible.value:.3f}: the answers do not print ####; never publish it",
        )
    limits = [score.answer_tokens for score in group if score.answer_tokens is not None]
    best = max((score.value for score in group), default=0.0)
    if cut_share is not None and cut_share > MAX_CUT_SHARE:
        for score in group:
            _set(
                score,
                "invalid",
                f"{cut_share:.0%} of the answers are cut or empty, at most {MAX_CUT_SHARE:.0%}",
            )
    elif cut_share is None and limits and min(limits) <= SHORT_ANSWER_TOKENS and best < 0.5:
        for score in group:
            _set(
                score,
                "suspect",
                f"answers end at {min(limits)} tokens; refused until the share with finish_reason length is known",
            )
    elif group and best == 0.0 and (strict is not None or flexible is not None):
        for score in group:
            _set(
                score,
                "suspect",
                "every reading is 0: a scorer, template or limit failure until shown otherwise",
            )
    return group


def compare_scores(a: Score, b: Score) -> tuple[str, str]:
    """(verdict, why): `higher`, `lower`, `not_distinguished` or `not_comparable`, for a against b."""
    for name, left, right in (
        ("task", a.task, b.task),
        ("metric", a.metric, b.metric),
        ("filter", a.filter, b.filter),
        ("shots", a.shots, b.shots),
        ("sample size", a.count, b.count),
    ):
        if left != right:
            return "not_comparable", f"{name} differs: {left} against {right}"
    for score in (a, b):
        if score.status not in ("ok", "diagnostic"):
            return "not_comparable", score.reasons[0] if score.reasons else score.status
        if score.count is None:
            return "not_comparable", "no sample size"
    assert a.interval is not None
    assert b.interval is not None
    left_share = scoring.Share(round(a.value * (a.count or 0)), a.count or 0)
    right_share = scoring.Share(round(b.value * (b.count or 0)), b.count or 0)
    return scoring.compare(left_share, right_share), f"{left_share} against {right_share}"


# The gravest status that was found stands.
_ORDER = ("ok", "diagnostic", "format_failure", "suspect", "invalid")


def _set(score: Score, status: str, reason: str) -> None:
    if _ORDER.index(status) > _ORDER.index(score.status):
        score.status = status
    score.reasons.append(reason)


def _error_fits(score: Score) -> bool:
    """lm_eval's stderr of a mean of 0 and 1 is sqrt(p(1-p)/(n-1)); 5 % apart is another sample."""
    if score.count is None or score.stderr is None or score.count < 2:
        return True
    wanted = math.sqrt(max(0.0, score.value * (1 - score.value)) / (score.count - 1))
    return abs(score.stderr - wanted) <= max(0.05 * wanted, 1e-6)


def _answer_tokens(*places: Any) -> int | None:
    for place in places:
        if not isinstance(place, dict):
            continue
        for inner in (
            place,
            place.get("generation_kwargs"),
            place.get("gen_kwargs"),
            place.get("model_args"),
        ):
            if isinstance(inner, str):
                found = _tokens_in_text(inner)
                if found:
                    return found
            if isinstance(inner, dict):
                for key in ("max_gen_toks", "max_tokens", "max_new_tokens", "max_completion_tokens"):
                    if (value := _whole(inner.get(key))) is not None:
                        return value
    return None


def _tokens_in_text(text: str) -> int | None:
    match = re.search(r"max_(?:gen_toks|tokens|new_tokens|completion_tokens)\D{0,3}(\d+)", text)
    return int(match.group(1)) if match else None


def _cut_share(row: dict[str, Any]) -> float | None:
    """The share of answers that were cut or empty, where the object states one (`11/25`, 0.44)."""
    for key in ("empty_visible", "length_share", "finish_reason_length", "truncated", "empty"):
        value = row.get(key)
        if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", value)):
            return int(match.group(1)) / int(match.group(2)) if int(match.group(2)) else None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
    return None


def _first_whole(row: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    return next((value for key in keys if (value := _whole(row.get(key))) is not None), None)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value) or value < 0:
        return None
    return int(value)


def _objects(path: Path) -> list[tuple[str, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput("the score file does not exist", evidence=str(path)) from None
    except UnicodeDecodeError:
        raise BadInput("the score file is not text", evidence=str(path)) from None
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        return _lines(path, text, error)
    rows = whole if isinstance(whole, list) else [whole]
    named = [(str(path) if len(rows) == 1 else f"{path}[{place}]", row) for place, row in enumerate(rows)]
    for where, row in named:
        if not isinstance(row, dict):
            raise BadInput("a score file holds objects", measured=type(row).__name__, evidence=where)
    return named


def _lines(path: Path, text: str, whole_error: json.JSONDecodeError) -> list[tuple[str, dict[str, Any]]]:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if len(lines) < 2:
        raise BadInput(f"not JSON: {whole_error.msg}", evidence=f"{path}:{whole_error.lineno}")
    found = []
    for number, line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInput(f"not JSON: {error.msg}", evidence=f"{path}:{number}") from None
        if not isinstance(row, dict):
            raise BadInput(
                "a score file holds objects", measured=type(row).__name__, evidence=f"{path}:{number}"
            )
        found.append((f"{path}:{number}", row))
    return found
