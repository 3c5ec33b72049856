"""Arithmetic answers: strict and lenient readings, sizes and intervals, and scores that must not be published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.errors import BadInput
from flows.cli import app
from flows.workloads import facts, score_files, scoring

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "scoring"


@pytest.mark.parametrize("text", ["70000", "70,000", "$70,000", "70000.", "70000.00", " 70 000 ", "70{,}000"])
def test_one_number_has_one_form(text: str) -> None:
    assert scoring.plain_number(text) == "70000"


@pytest.mark.parametrize("text", [".", "...", ",", "", "$", "one", "nan", "inf"])
def test_marks_alone_are_no_number(text: str) -> None:
    assert scoring.plain_number(text) is None


def test_the_gold_is_what_stands_after_the_last_mark() -> None:
    field = "2*3=<<2*3=6>>6 #### is a mark\nso 6*1,000=$<<6*1000=6000>>6,000\n#### 6,000"
    assert scoring.gold_answer(field) == "6000"


@pytest.mark.parametrize(
    ("answer", "strict", "lenient"),
    [
        ("3 + 4 = 7\n#### 7", "7", "7"),
        ("#### 7.", "7", "7"),
        ("#### $1,250", "1250", "1250"),
        ("#### -3", "-3", "-3"),
        ("The answer is 7.", None, "7"),
        ("She has 7 apples left", None, "7"),
        ("so \\boxed{1{,}250} it is", None, "1250"),
        ("The answer is 7, which he reached in 2024.", None, "7"),
        ("Well... I cannot say.", None, None),
        ("", None, None),
        ("<think>Example: #### 99</think>#### 7", "7", "7"),
        ("#### 99 was the example. Now: #### 7", "7", "7"),
        ("<think>it is 7", None, None),
        ("48/2 = <<48/2=24>>24 clips", None, "24"),
    ],
)
def test_strict_and_lenient_read_what_they_should(
    answer: str, strict: str | None, lenient: str | None
) -> None:
    assert scoring.strict_answer(answer) == strict
    assert scoring.lenient_answer(answer) == lenient


def test_an_empty_answer_is_never_right() -> None:
    marks = scoring.mark("7", "", reasoning="it is #### 7")
    assert (marks.is_strict, marks.is_lenient, marks.is_empty) == (False, False, True)


def test_wilsons_interval_is_the_textbooks() -> None:
    # 8 of 10, worked by hand from the formula: 0.4902 to 0.9433.
    low, high = scoring.wilson(8, 10)
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)
    assert scoring.wilson(0, 10)[0] == 0.0
    assert scoring.wilson(10, 10)[1] == 1.0
    with pytest.raises(ValueError, match="empty sample"):
        scoring.wilson(0, 0)


def test_two_sizes_are_never_compared() -> None:
    assert scoring.compare(scoring.Share(45, 50), scoring.Share(900, 1000)) == "not_comparable"
    assert scoring.compare(scoring.Share(900, 1000), scoring.Share(905, 1000)) == "not_distinguished"
    assert scoring.compare(scoring.Share(950, 1000), scoring.Share(800, 1000)) == "higher"
    share = scoring.Share(9, 10)
    assert scoring.compare(share, share, filter_a="strict", filter_b="flexible") == "not_comparable"
    assert str(scoring.Share(8, 10)) == "0.800 (0.490 to 0.943, n=10)"


def test_strict_zero_beside_a_high_flexible_score_is_the_scorers_failure() -> None:
    reading = score_files.read_scores(FIXTURES / "strict_zero.json")[0]
    assert reading["score"] == 0.81
    assert reading["filter"] == "flexible-extract"
    by_filter = {score["filter"]: score for score in reading["scores"]}
    assert by_filter["strict-match"]["status"] == "format_failure"
    assert not by_filter["strict-match"]["is_publishable"]
    assert by_filter["flexible-extract"]["is_publishable"]


def test_a_part_of_the_set_is_diagnostic_and_says_its_margin() -> None:
    reading = score_files.read_scores(FIXTURES / "lm_eval_limit.json")[0]
    assert reading["n"] == 40
    assert not reading["is_publishable"]
    assert all(score["status"] == "diagnostic" for score in reading["scores"])
    assert any("±" in reason and "40 of 1319" in reason for reason in reading["reasons"])


def test_different_sizes_shots_and_filters_are_not_comparable() -> None:
    def score(**fields: object) -> score_files.Score:
        values = {"task": "t", "metric": "m", "filter": "f", "value": 0.5, "count": 100, "shots": 8} | fields
        return score_files.Score(**values)  # type: ignore[arg-type]

    assert score_files.compare_scores(score(), score(value=0.9))[0] == "lower"
    for other in ({"count": 50}, {"filter": "g"}, {"shots": 0}, {"task": "u"}):
        assert score_files.compare_scores(score(), score(**other))[0] == "not_comparable"
    assert score_files.compare_scores(score(count=None), score(count=None))[0] == "not_comparable"


def test_a_standard_error_of_another_sample_is_named() -> None:
    group = score_files.judge_scores(
        [score_files.Score("t", "exact_match", "none", 0.5, count=1000, of_count=1000, stderr=0.05)]
    )
    assert any("stderr" in reason for reason in group[0].reasons)


@pytest.mark.parametrize("line", range(12))
def test_own_answers_are_judged_as_they_say(line: int) -> None:
    text = (FIXTURES / "answers.jsonl").read_text().splitlines()[line]
    row = json.loads(text)
    wanted = row.pop("wanted")
    reading = score_files.judge_object(row)
    assert reading["verdict"] == wanted, reading


def test_a_broken_line_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text('{"output": "x", "needle": "x"}\n{"output": \n')
    with pytest.raises(BadInput) as caught:
        score_files.read_scores(path)
    assert f"{path}:2" in str(caught.value)


def test_the_command_prints_what_it_read() -> None:
    result = CliRunner().invoke(app, ["score", str(FIXTURES / "strict_zero.json"), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.output)["readings"][0]["score"] == 0.81


# The public cases


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


@pytest.mark.shared_cases
def test_public_lm_eval_results_have_both_filters(shared_cases: Path) -> None:
    reading = score_files.read_scores(shared_cases / "scoring/01-lm_eval-gsm8k-dsv4.json")[0]
    found = {score["filter"]: (round(score["value"], 3), score["n"]) for score in reading["scores"]}
    assert found == {"strict-match": (0.918, 1319), "flexible-extract": (0.951, 1319)}
    strict, flexible = score_files.lm_eval_scores(
        json.loads((shared_cases / "scoring/01-lm_eval-gsm8k-dsv4.json").read_text())
    )
    assert score_files.compare_scores(strict, flexible)[0] == "not_comparable"


@pytest.mark.shared_cases
def test_public_strict_zero_is_never_published(shared_cases: Path) -> None:
    reading = score_files.read_scores(shared_cases / "scoring/03-gsm8k-qwen36-custom.json")[0]
    assert round(reading["score"], 3) == 0.855
    strict = next(score for score in reading["scores"] if score["filter"] == "strict-match")
    assert strict["status"] == "format_failure"


@pytest.mark.shared_cases
def test_public_gold_field_and_its_equivalents(shared_cases: Path) -> None:
    row = json.loads(
        (shared_cases / "scoring/05-gsm8k-target-with-commas-and-calculator-marks.json").read_text()
    )
    gold = scoring.gold_answer(row["gold_field"])
    assert gold == row["right"]["gold"]
    for text in row["right"]["equivalents"]:
        assert scoring.mark(gold, f"#### {text}").is_strict


@pytest.mark.shared_cases
def test_public_strict_against_flexible(shared_cases: Path) -> None:
    one, two, three, four, five, six = (
        score_files.judge_object(row)
        for row in _lines(shared_cases / "scoring/06-lm_eval-strict-vs-flexible.jsonl")
    )
    assert round(one["score"], 3) == 0.855
    assert {score["filter"] for score in two["scores"]} == {"strict-match", "flexible-extract"}
    assert all(score["status"] == "diagnostic" for score in three["scores"])
    assert any("±9 points" in reason for reason in three["reasons"])
    assert four["score"] is None
    assert not four["is_publishable"]
    status = {
        (score["task"], score["answer_tokens"]): (score["value"], score["status"]) for score in five["scores"]
    }
    assert status == {
        ("task", 384): (0.72, "invalid"),
        ("task", 2048): (1.0, "ok"),
        ("mmlu", 256): (0.48, "invalid"),
        ("mmlu", 2048): (0.92, "ok"),
    }
    assert six["verdict"] is None
    recited = "<think>Example: 2+2 = 4 #### 4\nExample: #### 12</think>First #### 5, no: #### 7"
    assert scoring.strict_answer(recited) == "7"


@pytest.mark.shared_cases
def test_public_filter_traps_are_avoided(shared_cases: Path) -> None:
    traps = json.loads((shared_cases / "scoring/07-lm_eval-gsm8k-filters.json").read_text())["traps"]
    assert len(traps) == 3
    assert scoring.lenient_answer("I count... well, nothing,,") is None
    assert scoring.lenient_answer("The answer is 12. That was in 1998.") == "12"
    assert scoring.strict_answer("#### 12.") == "12"


@pytest.mark.shared_cases
def test_public_needle_answers(shared_cases: Path) -> None:
    rows = {row["id"]: row for row in _lines(shared_cases / "scoring/09-needle-scoring.jsonl")}
    assert facts.grade_phrase(rows["niah-39"]["needle"], rows["niah-39"]["output"]).is_passed
    assert not facts.grade_phrase(rows["niah-39"]["needle"], rows["niah-39"]["output"]).is_exact
    assert score_files.judge_object(rows["xllama-243"])["verdict"] == "fail"
    assert not facts.grade_phrase("anything", "").is_passed


def test_results_of_older_versions_and_other_spellings_are_read() -> None:
    old = {"results": {"arc": {"acc": 0.5, "acc_stderr": 0.05, "acc_norm": 0.55}}, "config": {"limit": 100}}
    scores = score_files.lm_eval_scores(old)
    assert {(score.metric, score.filter, score.value, score.count) for score in scores} == {
        ("acc", "none", 0.5, 100),
        ("acc_norm", "none", 0.55, 100),
    }
    reading = score_files.judge_object({"strict_match": 0.0, "flexible_extract": 0.9, "n": 500})
    assert (reading["score"], reading["filter"]) == (0.9, "flexible-extract")
    all_zero = score_files.judge_object({"strict": 0.0, "flexible": 0.0, "n": 100})
    assert all_zero["score"] is None
    assert not all_zero["is_publishable"]


def test_two_files_are_compared_only_where_size_and_filter_agree() -> None:
    files = [str(FIXTURES / "strict_zero.json"), str(FIXTURES / "lm_eval_limit.json")]
    result = CliRunner().invoke(app, ["score", *files, "--json"])
    pairs = json.loads(result.output)["comparisons"]
    assert len(pairs) == 4
    assert {pair["verdict"] for pair in pairs} == {"not_comparable"}
