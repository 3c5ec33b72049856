# ruff: noqa: SIM905  (a list of words reads better as words)
"""Planted facts: the sentence, the question, and a grade on the fact itself, not on its wording."""

from __future__ import annotations

import itertools
import random
import re
import unicodedata
from dataclasses import dataclass

GRADER = "needle_v1"

# Of the phrasings that the small test model was trained on, the pair that it and SmolLM2-135M answered best
# (10 of 18 and 9 of 9 codes at 512 and 600 tokens).
QUESTION = "\n\nWhat is the secret code?"
CODE_DIGITS = 5


def code(rng: random.Random) -> str:
    """A code of five digits: no leading zero, no digit twice in a row, so that a grouping or a slip shows."""
    while True:
        digits = str(rng.randrange(10 ** (CODE_DIGITS - 1), 10**CODE_DIGITS))
        if all(a != b for a, b in itertools.pairwise(digits)):
            return digits


def sentence(value: str) -> str:
    """The sentence that plants `value`."""
    return f"Remember this: the secret code is {value}."


@dataclass(frozen=True)
class Verdict:
    """is_correct: the fact, once, and no other guess. is_contained: the fact was said at all. found: as read."""

    is_correct: bool
    is_contained: bool
    found: str | None
    why: str


_REASONING = re.compile(
    r"<(think|thinking|thought|reasoning|analysis|scratchpad)>(.*?)(?:</\1>|\Z)", re.S | re.I
)
_STRAY_CLOSE = re.compile(r"\A(.*)</(?:think|thinking|thought|reasoning|analysis|scratchpad)>", re.S | re.I)


def split_reasoning(text: str | None, reasoning: str | None = None) -> tuple[str, str]:
    """(visible answer, reasoning): tags in the text are taken out of it; an unclosed block is all reasoning."""
    visible, thought = text or "", [reasoning] if reasoning else []
    thought += [match.group(2) for match in _REASONING.finditer(visible)]
    visible = _REASONING.sub(" ", visible)
    # A chat template may open the block itself, so that only its end is in the answer.
    stray = _STRAY_CLOSE.match(visible)
    if stray:
        thought.append(stray.group(1))
        visible = visible[stray.end() :]
    return visible.strip(), "\n".join(thought).strip()


_SEPARATOR = r"(?:,\s|[,.'’_\u066c\u00a0\u2009\u202f\u2007 \-\u2010\u2011\u2012\u2013])"
_NUMBER = re.compile(rf"(?<![^\W_])\d+(?:{_SEPARATOR}\d+)*(?![^\W_])")
_GLUED = re.compile(r"\w*\d\w*")
_NOT_BEFORE = re.compile(
    r"(?:\bnot|n['’]t|\bnever|\brather than|\binstead of|\bother than|\bexcept|\bwithout)"
    r"(?:\s+(?:be|the|a|an|secret|access|magic|code|number|password|is|was|it|equal|to|actually|really|exactly|"
    r"simply|just|necessarily|as|of))*[\s:\"'(*`_]*$",
    re.I,
)
_NOT_AFTER = re.compile(
    r"^[\s\"')*`_.,]*(?:is|was|would be|seems|looks)\s*(?:n['’]t|not|wrong|incorrect|false|never)\b", re.I
)
_DENIAL = re.compile(
    r"\b(?:i\s+(?:do\s*n['o’]?t|cannot|can['’]?t|could\s*n['o’]?t)\s+(?:know|find|see|recall|tell|determine)|"
    r"no (?:secret )?code|not (?:mentioned|found|given|provided|stated|specified))",
    re.I,
)


def grade(expected: str, text: str | None, reasoning: str | None = None) -> Verdict:
    """Judge an answer on the code that was planted.

    Right: the code in any digit grouping or script, in figures or words, bare, in a sentence, or in the reasoning
    when nothing else was said. Wrong: one digit more or less, another code beside it (a guess list), the code denied,
    an empty answer. Source of the rules: the public needle cases, and 739447 graded as 73944 by a substring match.
    """
    visible, thought = split_reasoning(text, reasoning)
    if not visible and not thought:
        return Verdict(False, False, None, "the answer is empty")
    verdict = _judge(expected, visible)
    if verdict is not None:
        return verdict
    if visible and _DENIAL.search(visible):
        return Verdict(False, expected in numbers(thought), None, "the answer says that it does not know")
    inner = _judge(expected, thought)
    if inner is None:
        return Verdict(False, False, None, "no code of that kind in the answer")
    return Verdict(inner.is_correct, inner.is_contained, inner.found, f"{inner.why} (in the reasoning)")


def grade_opening(expected: str, text: str | None, reasoning: str | None = None) -> Verdict:
    """Judge the first code that was said, for answers that the engine was made to continue past their end.

    What a model writes after its answer, because its end token was ignored, is no guess of its own.
    """
    visible, thought = split_reasoning(text, reasoning)
    if not visible and not thought:
        return Verdict(False, False, None, "the answer is empty")
    for place, part in (("", visible), (" (in the reasoning)", thought)):
        found = _candidates(part, len(expected))
        if not found:
            continue
        value, is_denied = found[0]
        is_right = value == expected and not is_denied
        is_contained = any(other == expected and not denied for other, denied in found)
        why = (
            "the code was given"
            if is_right
            else "the code was denied"
            if is_denied
            else "another code was given"
        )
        return Verdict(is_right, is_contained, value, why + place)
    return Verdict(False, False, None, "no code of that kind in the answer")


def _judge(expected: str, text: str) -> Verdict | None:
    """None where the text has no number long enough to be a code."""
    found = _candidates(text, len(expected))
    rivals = [value for value, is_denied in found if not is_denied and value != expected]
    has_code = any(value == expected and not is_denied for value, is_denied in found)
    is_denied_code = any(value == expected and is_denied for value, is_denied in found)
    if not found:
        return None
    if has_code and not is_denied_code and not rivals:
        return Verdict(True, True, expected, "the code was given")
    if has_code and rivals:
        return Verdict(False, True, ", ".join([expected, *rivals]), "several codes were given: a guess list")
    if has_code and is_denied_code:
        return Verdict(False, True, expected, "the code was given and denied")
    if is_denied_code and not rivals:
        return Verdict(False, False, expected, "the code was denied")
    if not rivals:
        return None
    return Verdict(False, False, ", ".join(rivals), "another code was given")


def numbers(text: str) -> list[str]:
    """Every number in the text that is not denied, digits only."""
    return [value for value, is_denied in _candidates(text, 1) if not is_denied]


def _candidates(text: str, length: int) -> list[tuple[str, bool]]:
    """(digits, is denied) of every number that could be meant as a code of `length` digits, in order, once each."""
    plain = _flatten(text)
    found: dict[tuple[str, bool], None] = {}
    for match in _NUMBER.finditer(plain):
        is_denied = bool(_NOT_BEFORE.search(plain[max(0, match.start() - 60) : match.start()])) or bool(
            _NOT_AFTER.match(plain[match.end() : match.end() + 30])
        )
        for value in _values(match.group(), length):
            # A number one digit short may be a slip of the code; shorter ones (a list's numbering) are not codes.
            if len(value) >= max(1, length - 1):
                found[(value, is_denied)] = None
    for match in _GLUED.finditer(plain):
        word = match.group()
        if (
            not word.isdigit()
            and not _NUMBER.fullmatch(word)
            and re.search(rf"\d{{{max(1, length - 1)},}}", word)
        ):
            found[(word, False)] = None
    return list(found)


_ONES = "zero one two three four five six seven eight nine".split()
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SMALL = {
    **{word: value for value, word in enumerate(_ONES)},
    **{word: value + 10 for value, word in enumerate(_TEENS)},
    **{word: 10 * (value + 2) for value, word in enumerate(_TENS)},
    "oh": 0,
}
_BIG = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_WORD_RUN = re.compile(
    rf"\b(?:{'|'.join([*_SMALL, *_BIG])})(?:(?:[\s,\-]+(?:and\s+)?)(?:{'|'.join([*_SMALL, *_BIG])}))+\b", re.I
)


def _flatten(text: str) -> str:
    """Digits of any script as ASCII, marks of bold, code and LaTeX taken away, number words as figures."""
    plain = unicodedata.normalize("NFKC", text.replace("{,}", ",").replace("\\,", ",").replace("\\ ", " "))
    plain = "".join(str(unicodedata.digit(c)) if c.isdecimal() and not c.isascii() else c for c in plain)
    plain = plain.replace("\u200b", "").replace("\u2060", "").replace("\ufeff", "")
    return _WORD_RUN.sub(lambda match: _from_words(match.group()), plain)


def _from_words(phrase: str) -> str:
    words = [word for word in re.split(r"[\s,\-]+", phrase.lower()) if word != "and"]
    if not any(word in _BIG for word in words) and all(_SMALL[word] < 10 for word in words):
        return "".join(str(_SMALL[word]) for word in words)
    total = group = 0
    for word in words:
        if word in _SMALL:
            group += _SMALL[word]
        elif word == "hundred":
            group = max(1, group) * 100
        else:
            total += max(1, group) * _BIG[word]
            group = 0
    return str(total + group)


def _values(run: str, length: int) -> list[str]:
    """What a run of digit groups says: one grouped number where the grouping is a known one, else each group."""
    groups = re.split(_SEPARATOR, run)
    marks = re.findall(_SEPARATOR, run)
    if len(groups) == 1:
        return groups
    decimal = re.fullmatch(r"(.*\d)\.(0+)", run)
    if decimal and (len(groups) == 2 or len(decimal.group(2)) != 3):
        return _values(decimal.group(1), length)
    same = len({mark.strip() or " " for mark in marks}) == 1
    joined = "".join(groups)
    if same and all(len(group) == 1 for group in groups):
        # Single digits: 7-3-9-4-4. A list of single digits of another length is no code.
        return [joined]
    if same and len(marks[0]) == 1 and all(len(group) <= 3 for group in groups):
        is_thousands = all(len(group) == 3 for group in groups[1:])
        if is_thousands or len(joined) == length:
            return [joined]
    if len(groups) == 2 and marks[0] == "." and len(groups[0]) >= length:
        # A fraction makes it another number: 73944.5 is not the code.
        return [run]
    return groups
