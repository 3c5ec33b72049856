"""What the reference server says: codes found or missed, JSON and tool calls made from their schema, sums."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import msgspec

from flows.engines.reference_scenario import Answers

WORDS = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
]
UNICODE = ["日本", "語の", "テスト", "é", "🙂", "한국", "üß", "中文"]


class Asked:
    """What a request's body asks for."""

    def __init__(self, body: dict[str, Any], kind: str) -> None:
        self.body = body
        self.kind = kind
        self.texts = _texts(body)
        self.text = "\n".join(self.texts)
        self.schema = _schema(body)
        tools = body.get("tools")
        self.tools = [t for t in tools if isinstance(t, dict)] if isinstance(tools, list) else []
        if body.get("tool_choice") == "none":
            self.tools = []

    @property
    def last(self) -> str:
        return self.texts[-1] if self.texts else ""

    @property
    def turn(self) -> int:
        """Which user turn of a conversation this is, from 1."""
        messages = self.body.get("messages")
        if not isinstance(messages, list):
            return 1
        return sum(isinstance(m, dict) and m.get("role") == "user" for m in messages) or 1

    def what(self, answers: Answers) -> str:
        """json, tool, needle, arithmetic or plain."""
        if self.tools:
            return "tool"
        if self.schema is not None:
            return "json"
        if re.search(answers.needle.question, self.last[-400:]) and find_code(answers, self.text) is not None:
            return "needle"
        if _expression(self.last) is not None:
            return "arithmetic"
        return "plain"


def _texts(body: dict[str, Any]) -> list[str]:
    for name in ("messages", "input", "prompt"):
        value = body.get(name)
        if isinstance(value, str):
            return [value]
        if isinstance(value, list):
            return [_plain(item) for item in value]
    return []


def _plain(item: Any) -> str:
    if isinstance(item, dict):
        return _plain(item.get("content") if item.get("content") is not None else item.get("text"))
    if isinstance(item, list):
        return "".join(_plain(part) for part in item)
    return "" if item is None else str(item)


def _schema(body: dict[str, Any]) -> dict[str, Any] | None:
    asked = body.get("response_format")
    if isinstance(asked, dict):
        if asked.get("type") == "json_object":
            return {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
        wrapped = asked.get("json_schema")
        if isinstance(wrapped, dict):
            schema = wrapped.get("schema", wrapped)
            return schema if isinstance(schema, dict) else None
    text = body.get("text")
    if isinstance(text, dict) and isinstance(text.get("format"), dict):
        schema = text["format"].get("schema")
        return schema if isinstance(schema, dict) else None
    guided = body.get("guided_json") or body.get("json_schema")
    return guided if isinstance(guided, dict) else None


def find_code(answers: Answers, text: str) -> tuple[str, float] | None:
    """(the planted code, its depth in percent of the text), or None."""
    found = list(re.finditer(answers.needle.pattern, text, re.I))
    if not found:
        return None
    match = found[0] if answers.needle.pick == "first" else found[-1]
    return match.group(1).rstrip("-"), 100.0 * match.start() / max(1, len(text))


def answer_text(answers: Answers, asked: Asked, prompt_tokens: int, draw: random.Random) -> str | None:
    """The answer's text; None for one that is only filler words."""
    if answers.text is not None:
        return answers.text
    for part, said in lookup(answers).items():
        if part in asked.text:
            return _spoil_number(said, draw) if draw.random() < answers.wrong_share else said
    what = asked.what(answers)
    if what == "json":
        return _json_text(answers.json, asked.schema or {}, draw)
    if what == "needle":
        return _needle_text(answers, asked, prompt_tokens, draw)
    if what == "arithmetic" and answers.arithmetic != "none":
        value = _expression(asked.last) or 0
        is_wrong = answers.arithmetic == "wrong" or draw.random() < answers.wrong_share
        return f"The answer is {value + (1 if is_wrong else 0)}."
    return answers.filler or None


_lookups: dict[str, dict[str, str]] = {}


def lookup(answers: Answers) -> dict[str, str]:
    """Part of a prompt -> what is answered to it; lookup_file has {"contains", "answer"} a line."""
    if answers.lookup_file is None:
        return answers.lookup
    known = _lookups.get(answers.lookup_file)
    if known is None:
        lines = Path(answers.lookup_file).read_bytes().splitlines()
        rows = [msgspec.json.decode(line) for line in lines if line.strip()]
        known = _lookups[answers.lookup_file] = {str(row["contains"]): str(row["answer"]) for row in rows}
    return {**answers.lookup, **known}


def _needle_text(answers: Answers, asked: Asked, prompt_tokens: int, draw: random.Random) -> str:
    code, depth = find_code(answers, asked.text) or ("", 0.0)
    needle = answers.needle
    misses = any(low <= depth <= high for low, high in needle.misses_depth_pct)
    misses = misses or (needle.misses_above_tokens is not None and prompt_tokens > needle.misses_above_tokens)
    misses = misses or (needle.misses_after_turns is not None and asked.turn > needle.misses_after_turns)
    misses = misses or draw.random() < needle.miss_share
    if not misses:
        return needle.form.format(code=code)
    if needle.on_miss == "unknown":
        return "I do not know."
    if needle.on_miss == "empty_words":
        return "It is a sunny day in the town."
    wrong = {"wrong_digit": _other_digit(code), "extra_digit": code + "7", "one_digit_less": code[:-1]}
    return needle.form.format(code=wrong[needle.on_miss])


def _other_digit(code: str) -> str:
    last = code[-1:]
    return code[:-1] + (str((int(last) + 1) % 10) if last.isdigit() else "0")


def _spoil_number(text: str, draw: random.Random) -> str:
    return re.sub(r"\d+(?!.*\d)", lambda match: str(int(match.group()) + draw.randint(1, 9)), text, count=1)


_SUM = re.compile(r"(?<![\w.])(-?\d+(?:\s*[-+*x×/]\s*-?\d+)+)(?![\w.])")


def _expression(text: str) -> int | None:
    """The value of the last sum such as `12 + 30` or `7 * 8` that a text holds; None where it has none."""
    found = _SUM.findall(text[-4_000:])
    if not found:
        return None
    terms = re.findall(r"-?\d+|[-+*x×/]", re.sub(r"\s+", "", found[-1]))
    # "12-30" reads as 12 and -30: a sum without a sign between two numbers.
    total, product, sign = 0, int(terms[0]), "+"
    position = 1
    while position < len(terms):
        if terms[position] in "+-*x×/" and position + 1 < len(terms):
            sign, number = terms[position], int(terms[position + 1])
            position += 2
        else:
            sign, number = "+", int(terms[position])
            position += 1
        if sign in "*x×":
            product *= number
        elif sign == "/":
            product = product // number if number else 0
        else:
            total += product
            product = number if sign == "+" else -number
    return total + product


def _json_text(mode: str, schema: dict[str, Any], draw: random.Random) -> str:
    if mode == "prose":
        return "Oslo is a city in Norway with many inhabitants."
    value = make_instance(schema, draw)
    if mode == "wrong_type":
        value = _wrong_types(value)
    text = msgspec.json.encode(value).decode()
    return text[: max(1, len(text) - 2)] if mode == "broken" else text


def _wrong_types(value: Any) -> Any:
    """The same keys, every leaf of another type."""
    if isinstance(value, dict):
        return {key: _wrong_types(inner) for key, inner in value.items()}
    return 12.5 if isinstance(value, str) else "twelve"


def make_instance(schema: dict[str, Any], draw: random.Random) -> Any:
    """A value that satisfies a plain JSON schema (types, enum, const, bounds, required, items, anyOf)."""
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return make_instance(schema[name][0], draw)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return draw.choice(schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object" or "properties" in schema:
        return {key: make_instance(inner, draw) for key, inner in (schema.get("properties") or {}).items()}
    if kind == "array":
        count = max(1, schema.get("minItems") or 1)
        return [make_instance(schema.get("items") or {"type": "string"}, draw) for _ in range(count)]
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in schema))
        high = schema.get("maximum", low + 20)
        value = draw.randint(int(low), max(int(low), int(high)))
        return value if kind == "integer" else value + 0.0
    if kind == "boolean":
        return draw.random() < 0.5
    if kind == "null":
        return None
    word = draw.choice(WORDS).capitalize()
    return word.ljust(schema.get("minLength") or 0, "x")[: schema.get("maxLength") or 1_000]


def tool_calls(answers: Answers, asked: Asked, draw: random.Random) -> list[tuple[str, str]]:
    """(name, arguments as JSON text) of every call that the answer makes; none when tools are ignored."""
    if not asked.tools or answers.tool == "ignored":
        return []
    wanted = asked.body.get("tool_choice")
    forced = None
    if isinstance(wanted, dict):
        function = wanted.get("function")
        forced = function.get("name") if isinstance(function, dict) else wanted.get("name")
    functions: list[dict[str, Any]] = []
    for tool in asked.tools:
        inner = tool.get("function")
        functions.append(inner if isinstance(inner, dict) else tool)
    chosen = [function for function in functions if forced in (None, function.get("name"))] or functions
    calls = []
    for function in chosen[:1] * 2 if answers.tool == "parallel" else chosen[:1]:
        value = make_instance(function.get("parameters") or {"type": "object", "properties": {}}, draw)
        if answers.tool == "wrong_type":
            value = _wrong_types(value)
        text = msgspec.json.encode(value).decode()
        calls.append(
            (str(function.get("name")), text[: max(1, len(text) - 2)] if answers.tool == "broken" else text)
        )
    return calls
