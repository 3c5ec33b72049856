"""The reference server's scenario, answers and cache: what the tests take for the truth."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from contracts.errors import BadInput
from flows.engines import reference_recipe
from flows.engines.reference import ReferenceEngine
from flows.engines.reference_answers import Asked, answer_text, make_instance, tool_calls
from flows.engines.reference_scenario import build_scenario, overlay, read_scenario
from flows.engines.reference_server import PrefixCache, count_tokens


def _asked(text: str, **body: Any) -> Asked:
    return Asked({"messages": [{"role": "user", "content": text}]} | body, "chat")


def _answer(asked: Asked, **answers: Any) -> str | None:
    scenario = build_scenario({"answers": answers})
    return answer_text(scenario.answers, asked, count_tokens(asked.text), random.Random(1))


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({"timng": {}}, "timing"), ({"timing": {"ttft": 3}}, "ttft_ms"), ({"breaks": {"statsu": 500}}, "status"),
        ({"variants": [{"when": {"evry": 2}, "set": {}}]}, "every"),
        ({"variants": [{"when": {}, "set": {"timing": {"itl": 3}}}]}, "itl_ms"),
        ({"variants": [{"when": {}, "set": {"life": {}}}]}, "cannot set"),
        ({"timing": {"ttft_ms": "fast"}}, "float"), ({"stream": {"body": "xml"}}, "body"),
    ],
)  # fmt: skip
def test_a_scenario_with_an_unknown_key_names_the_nearest(data: dict[str, Any], hint: str) -> None:
    with pytest.raises(BadInput) as told:
        build_scenario(data, "here.json")
    assert hint in str(told.value)
    assert "here.json" in str(told.value)


def test_scenarios_are_read_from_json_and_yaml(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"timing": {"ttft_ms": 3}}')
    (tmp_path / "b.yaml").write_text("timing: {ttft_ms: 3}\n")
    assert read_scenario(tmp_path / "a.json") == read_scenario(tmp_path / "b.yaml")
    (tmp_path / "c.json").write_text("{")
    for name in ("c.json", "missing.json"):
        with pytest.raises(BadInput, match=name.split(".")[0] if name == "missing.json" else "not JSON"):
            read_scenario(tmp_path / name)


def test_a_variant_changes_only_what_it_names() -> None:
    scenario = build_scenario({"timing": {"ttft_ms": 7}, "answers": {"needle": {"pick": "last"}}})
    changed = overlay(scenario, {"timing": {"itl_ms": 1}, "answers": {"needle": {"miss_share": 1.0}}})
    assert (changed.timing.ttft_ms, changed.timing.itl_ms) == (7, 1)
    assert (changed.answers.needle.pick, changed.answers.needle.miss_share) == ("last", 1.0)
    assert scenario.timing.itl_ms == 10


DOCUMENT = "It rained. " * 60 + "Remember this: the secret code is 73944. " + "It rained. " * 60
QUESTION = DOCUMENT + "\n\nWhat is the secret code?"


def test_codes_are_found_exactly_or_missed_as_told() -> None:
    assert _answer(_asked(QUESTION)) == "The secret code is 73944."
    assert _answer(_asked(QUESTION), needle={"misses_depth_pct": [[40, 60]]}) == "I do not know."
    assert _answer(_asked(QUESTION), needle={"misses_depth_pct": [[0, 20]]}) == "The secret code is 73944."
    wrong = {"wrong_digit": "73945", "extra_digit": "739447", "one_digit_less": "7394"}
    for how, code in wrong.items():
        assert (
            _answer(_asked(QUESTION), needle={"miss_share": 1.0, "on_miss": how})
            == f"The secret code is {code}."
        )
    assert _answer(_asked(QUESTION), needle={"misses_above_tokens": 100}) == "I do not know."
    assert _answer(_asked(DOCUMENT)) is None


def test_sums_are_worked_out() -> None:
    for text, value in (
        ("What is 12 + 30?", 42),
        ("What is 7 * 8 - 6?", 50),
        ("What is 100 - 58?", 42),
        ("What is 2 + 3 * 4?", 14),
    ):
        assert _answer(_asked(text)) == f"The answer is {value}."
    assert _answer(_asked("What is 12 + 30?"), arithmetic="wrong") == "The answer is 43."
    assert _answer(_asked("Why is the sky blue?")) is None


def test_known_answers_are_looked_up_and_spoiled_by_share(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"contains": "apples", "answer": "There are 17 apples left, so 17."}) + "\n")
    assert _answer(_asked("Ben has apples?"), lookup_file=str(path)) == "There are 17 apples left, so 17."
    spoiled = _answer(_asked("Ben has apples?"), lookup_file=str(path), wrong_share=1.0)
    assert spoiled is not None
    assert not spoiled.endswith("so 17.")


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3}, "size": {"enum": ["s", "m"]}, "count": {"type": "integer", "minimum": 2},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 2}, "part": {"type": ["number", "null"]},
    },
    "required": ["name", "size", "count", "tags", "part"],
    "additionalProperties": False,
}  # fmt: skip


def test_json_answers_satisfy_their_schema_or_break_as_told() -> None:
    asked = _asked("Describe", response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
    valid = _answer(asked)
    assert valid is not None
    jsonschema.validate(json.loads(valid), SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(_answer(asked, json="wrong_type") or ""), SCHEMA)
    for how in ("broken", "prose"):
        with pytest.raises(ValueError, match=r"delimiter|Expecting|Unterminated|Extra"):
            json.loads(_answer(asked, json=how) or "")
    jsonschema.validate(make_instance(SCHEMA, random.Random(5)), SCHEMA)


def test_tool_calls_follow_the_choice_and_the_schema() -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("first", "second")
    ]
    answers = build_scenario({}).answers
    [(name, arguments)] = tool_calls(answers, _asked("x", tools=tools), random.Random(1))
    assert name == "first"
    jsonschema.validate(json.loads(arguments), SCHEMA)
    choice = {"type": "function", "function": {"name": "second"}}
    assert (
        tool_calls(answers, _asked("x", tools=tools, tool_choice=choice), random.Random(1))[0][0] == "second"
    )
    assert tool_calls(answers, _asked("x", tools=tools, tool_choice="none"), random.Random(1)) == []
    ignored = build_scenario({"answers": {"tool": "ignored"}}).answers
    assert tool_calls(ignored, _asked("x", tools=tools), random.Random(1)) == []


def test_the_prefix_cache_hits_whole_blocks_and_never_the_last_token() -> None:
    cache = PrefixCache()
    words = [f"w{n}" for n in range(40)]
    assert cache.match(words, 16, None) == 0
    assert cache.match(words, 16, None) == 32
    assert cache.match(words[:32], 16, None) == 16
    assert cache.match([*words[:20], "other", *words[21:]], 16, None) == 16
    assert cache.match(["new", *words], 16, None) == 0
    small = PrefixCache()
    small.match(words, 16, 16)
    assert small.match(words, 16, 16) == 0


def test_a_recipe_carries_its_scenario_to_the_server(tmp_path: Path) -> None:
    recipe = reference_recipe({"model": "known", "timing": {"ttft_ms": 1}}, name="x", claims={"replicas": 2})
    [first, second] = ReferenceEngine().processes(recipe, tmp_path)
    assert first.argv[:3] == second.argv[:3]
    assert first.port != second.port
    assert first.argv[first.argv.index("--model") + 1] == "known"
    wrong = reference_recipe({"timing": {"ttft": 1}})
    with pytest.raises(BadInput, match="ttft"):
        ReferenceEngine().processes(wrong, tmp_path)
