"""A planted code is graded on the fact: its wording, script and grouping do not matter, a digit more does."""

from __future__ import annotations

import itertools
import random

import pytest

from flows.workloads import needle

CODE = "73944"


@pytest.mark.parametrize(
    "answer",
    [
        "73944",
        "The secret code is 73944.",
        "73,944",
        "73 944",
        "73.944",
        "73'944",
        "73\u2009944",
        "73_944",
        "7-3-9-4-4",
        "7 3 9 4 4",
        "7, 3, 9, 4, 4",
        "739-44",
        "**73944**",
        "`73944`",
        "$\\boxed{73944}$",
        "73{,}944",
        "\uff17\uff13\uff19\uff14\uff14",
        "\u0667\u0663\u0669\u0664\u0664",
        "73944.0",
        "seventy-three thousand nine hundred and forty-four",
        "seven three nine four four",
        "1. The code is 73944.",
        "It is 73944. I repeat: 73944.",
        "<think>The text says the code is 73944.</think>",
        "<think>Let me see. It says 73944.",
        "<think>12345 is not in the text.</think>The code is 73944",
        "I read that in </think>73944",
        "It is not 12345; it is 73944.",
        "I'm not sure, but it says 73944.",
        "The code is 73944 (section 12).",
    ],
)
def test_the_code_is_found_however_it_is_written(answer: str) -> None:
    verdict = needle.grade(CODE, answer)
    assert verdict.is_correct, verdict


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   ",
        "739447",
        "7394",
        "173944",
        "The secret code is 739447.",
        "73944.5",
        "073944",
        "73944B",
        "37944",
        "It is not 73944.",
        "The secret code isn't 73944",
        "73944 is not the code.",
        "anything but, never 73944",
        "73944 or 12345",
        "It could be 12345, 73944 or 99999.",
        "12345\n73944\n55555",
        "Codes: 73944, 73945",
        "12345 73944",
        "I do not know.",
        "<think>The code is 73944.</think>I do not know.",
        "<think>73944?</think>The code is 12345.",
        "<think>12345, 73944, 55555</think>",
        "seventy-three thousand nine hundred and forty-five",
        "The code was in the text.",
    ],
)
def test_what_is_not_the_code_is_wrong(answer: str) -> None:
    verdict = needle.grade(CODE, answer)
    assert not verdict.is_correct, verdict
    assert verdict.why


def test_an_answer_in_the_reasoning_field_counts_when_nothing_else_was_said() -> None:
    assert needle.grade(CODE, "", "the passage has 73944").is_correct
    assert needle.grade(CODE, None, "the passage has 73944").is_correct


def test_a_guess_list_says_that_the_code_was_in_it() -> None:
    verdict = needle.grade(CODE, "12345 or 73944")
    assert (verdict.is_correct, verdict.is_contained) == (False, True)
    assert "guess list" in verdict.why


def test_what_follows_the_answer_of_a_fixed_length_request_is_no_guess() -> None:
    rambling = "The secret code is 73944. The code is 11111. Then 22222."
    assert not needle.grade(CODE, rambling).is_correct
    assert needle.grade_opening(CODE, rambling).is_correct
    assert not needle.grade_opening(CODE, "11111, or 73944").is_correct
    assert not needle.grade_opening(CODE, "739447 then 73944").is_correct


def test_codes_have_five_digits_and_none_twice_in_a_row() -> None:
    codes = [needle.code(random.Random(seed)) for seed in range(300)]
    assert all(len(code) == 5 and code[0] != "0" for code in codes)
    assert all(a != b for code in codes for a, b in itertools.pairwise(code))
    assert len(set(codes)) > 290
