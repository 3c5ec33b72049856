"""Grades an answer against a fact stated in words, a list of required parts, or an arithmetic target.

For planted codes see `needle`; here the fact is a phrase, as in the public needle tests, and what counts is that its
informative part was retrieved: more text is no failure, an empty answer is never right, and a quantity that the answer
spreads over several things (`each`, `per`) is another quantity.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from flows.workloads import needle, scoring

_STOP_WORDS = frozenset(
    "a an the of to in on at by for and or is are was were be been it its that this with as from you your i".split()  # noqa: SIM905
)
_SHARED_OUT = re.compile(r"\b(?:each|every|per|apiece|individually|respectively|a ?piece)\b", re.I)
_WITH_UNIT = re.compile(r"\d+(?:[.,]\d+)*\s*[^\W\d]+")


_DENIED = re.compile(
    r"\b(?:does|do|did|is|was)\s*(?:n['’]t|not)\s+(?:\w+\s+)?(?:say|mention|state|contain|include|suggest)",
    re.I,
)


@dataclass(frozen=True)
class FactVerdict:
    """is_passed: the fact is in the answer. is_exact: the answer is the fact and nothing else, reported apart."""

    is_passed: bool
    is_exact: bool
    why: str


def grade_phrase(fact: str, output: str | None, reasoning: str | None = None) -> FactVerdict:
    """Whether the informative part of `fact` is in the answer, letter case, punctuation and small words aside."""
    visible, thought = needle.split_reasoning(output, reasoning)
    answer = visible or thought
    if not _words(answer):
        return FactVerdict(False, False, "the answer is empty")
    wanted, said = _words(fact), _words(answer)
    if not wanted:
        return FactVerdict(False, False, "there is no fact to look for")
    is_exact = wanted == said
    if any(
        _contains(_words(line), wanted) and _DENIED.search(line) for line in re.split(r"[.!?\n]+", answer)
    ):
        return FactVerdict(False, is_exact, "the answer says that the text does not say so")
    if _contains(said, wanted):
        return FactVerdict(True, is_exact, "the fact is in the answer")
    core = [word for word in wanted if word not in _STOP_WORDS] or wanted
    heard = [word for word in said if word not in _STOP_WORDS]
    if _contains(heard, core):
        return FactVerdict(True, is_exact, "the fact is in the answer, small words aside")
    missing = [word for word in core if word not in heard]
    if not missing:
        return FactVerdict(False, is_exact, "its words are in the answer, but not together")
    return FactVerdict(False, is_exact, f"missing: {', '.join(dict.fromkeys(missing))}")


def grade_parts(parts: list[str], output: str | None) -> FactVerdict:
    """Whether every part is in the answer as a word of its own, and no quantity among them is shared out.

    `4 cores, each occupying 730 MB` has `730 MB` in it, and says 2,920 MB.
    """
    visible, thought = needle.split_reasoning(output)
    answer = visible or thought
    if not _words(answer):
        return FactVerdict(False, False, "the answer is empty")
    said = _words(answer)
    for part in parts:
        if not _contains(said, _words(part)):
            return FactVerdict(False, False, f"missing: {part}")
    for part in parts:
        if _WITH_UNIT.fullmatch(part.strip()) and _is_shared_out(part, answer):
            return FactVerdict(False, False, f"{part} is said of each of several things, not of the whole")
    return FactVerdict(
        True, " ".join(said) == " ".join(_words(" ".join(parts))), "every part is in the answer"
    )


def _is_shared_out(part: str, answer: str) -> bool:
    """Whether the clause with `part` shares it out; `per second` and the like belong to a unit, not to a share."""
    wanted = _words(part)
    for clause in re.split(r"[.;!?\n]+(?=\s|$)", answer):
        if _contains(_words(clause), wanted) and _SHARED_OUT.search(clause):
            shared = _SHARED_OUT.search(clause)
            assert shared is not None
            follows = clause[shared.end() :].split()
            is_rate = (
                shared.group().lower() == "per" and follows[:1] and follows[0].lower().rstrip(",.") in _TIMES
            )
            if not is_rate:
                return True
    return False


_TIMES = frozenset("s second sec minute min hour h day week month year".split())  # noqa: SIM905


_OUTPUT_KEYS = (
    "output", "response", "answer_text", "completion", "prediction", "model_output", "generated_text", "generation",
    "visible", "content", "text",
)  # fmt: skip
_TARGET_KEYS = (
    "gold",
    "gold_answer",
    "target",
    "expected",
    "reference",
    "ground_truth",
    "code",
    "answer",
    "label",
)
# What a row about a planted fact has beside its target: its code is not the last number of a calculation.
_NEEDLE_KEYS = (
    "depth",
    "depth_pct",
    "depth_percent",
    "haystack",
    "context_tokens",
    "context_length",
    "code",
    "secret",
)


def grade_object(row: dict[str, Any]) -> dict[str, Any] | None:
    """The verdict on one line that holds an answer and its target, or a gold field alone; None when it holds neither."""
    output = _text(row, _OUTPUT_KEYS)
    reasoning = _text(row, ("reasoning", "reasoning_content", "reasoning_text", "thinking"))
    if "resps" in row:
        return _lm_eval_sample(row)
    if "gold_field" in row:
        gold = scoring.gold_answer(str(row["gold_field"]))
        return {
            "kind": "gold",
            "gold": gold,
            "verdict": None,
            "why": "what stands after the last ####, normalised",
        }
    if "pattern" in row and output is not None:
        parts = re.findall(r"['\"]([^'\"]+)['\"]", str(row["pattern"]))
        return _verdict("parts", grade_parts(parts or [str(row["pattern"])], output))
    fact = _text(row, ("needle", "fact"))
    if fact is not None and output is not None:
        if re.fullmatch(r"\d{4,}", fact.strip()):
            code = needle.grade(fact.strip(), output, reasoning)
            return {"kind": "code", "verdict": "pass" if code.is_correct else "fail", "why": code.why}
        return _verdict("needle", grade_phrase(fact, output, reasoning))
    target = next((row[key] for key in _TARGET_KEYS if row.get(key) is not None), None)
    if target is not None and output is not None:
        if re.fullmatch(r"\d{4,}", str(target).strip()) and any(key in row for key in _NEEDLE_KEYS):
            code = needle.grade(str(target).strip(), output, reasoning)
            return {"kind": "code", "verdict": "pass" if code.is_correct else "fail", "why": code.why}
        gold = scoring.gold_answer(str(target))
        if gold is None:
            return _verdict("needle", grade_phrase(str(target), output, reasoning))
        return _arithmetic(gold, output, reasoning)
    if target is not None and "####" in str(target):
        gold = scoring.gold_answer(str(target))
        return {
            "kind": "gold",
            "gold": gold,
            "verdict": None,
            "why": "what stands after the last ####, normalised",
        }
    return None


def _lm_eval_sample(row: dict[str, Any]) -> dict[str, Any] | None:
    """One line of lm_eval's `--log_samples`: the first answer of the first try, against the document's target."""
    answer: Any = row["resps"]
    while isinstance(answer, list):
        answer = answer[0] if answer else ""
    document = row.get("doc") if isinstance(row.get("doc"), dict) else {}
    assert document is not None
    gold = scoring.gold_answer(str(row.get("target") or document.get("answer") or ""))
    return None if gold is None else _arithmetic(gold, str(answer), None)


def _arithmetic(gold: str, output: str, reasoning: str | None) -> dict[str, Any]:
    marks = scoring.mark(gold, output, reasoning)
    return {
        "kind": "arithmetic",
        "gold": gold,
        "strict": marks.is_strict,
        "lenient": marks.is_lenient,
        "found": marks.lenient_found,
        "verdict": "pass" if marks.is_lenient else "fail",
        "why": marks.why,
    }


def _verdict(kind: str, verdict: FactVerdict) -> dict[str, Any]:
    return {
        "kind": kind,
        "verdict": "pass" if verdict.is_passed else "fail",
        "is_exact": verdict.is_exact,
        "why": verdict.why,
    }


def _text(row: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((str(row[key]) for key in keys if isinstance(row.get(key), str)), None)


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    # A number keeps its inner marks less the thousands': 1,024 is 1024, 7.30 stays 7.30.
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", plain)
    return re.findall(r"\d+(?:\.\d+)?|[^\W\d_]+(?:'[^\W\d_]+)?", plain)


def _contains(said: list[str], wanted: list[str]) -> bool:
    if not wanted:
        return False
    size = len(wanted)
    return any(said[place : place + size] == wanted for place in range(len(said) - size + 1))
