"""probes: small JSON-schema, tool-call, needle and chat requests before, during and after load.

They run through the load process like any window, in a cell of workload `probes`, and become Probe records. Arguments
are validated by their schema, never by their text. An HTTP 500 is a failed probe, whatever load went well before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import jsonschema
from pydantic import Field

from contracts.records import Grade, Probe, Request
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.recipe import Strict
from flows.workloads import measure, needle, prompts, prose
from flows.workloads.base import CellPlan, PlanContext

Kind = Literal["json", "tool", "needle", "chat"]
Phase = Literal["before", "during", "after"]


class Parameters(Strict):
    """before, during, after: probes of each kind in that phase. timeout_s bounds one probe from send to end.

    during: sent beside the timed load of every cell that allows it (soak does).
    """

    before: int = Field(default=1, ge=0)
    during: int = Field(default=0, ge=0)
    after: int = Field(default=1, ge=0)
    kinds: list[Kind] = Field(default=["json", "tool"])
    answer_tokens: int = Field(default=160, gt=0)
    needle_tokens: int = Field(default=400, ge=100)
    timeout_s: float = Field(default=120.0, gt=0)

    def count(self, phase: Phase) -> int:
        return {"before": self.before, "during": self.during, "after": self.after}[phase]


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_WORD = {"type": "string", "minLength": 1, "maxLength": 40}

# (what to ask for, schema): short, so that a small model can end them, and of several types.
_JSON_TASKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "city",
        "Describe one city as JSON: its name, its country and its number of inhabitants.",
        _object(name=_WORD, country=_WORD, inhabitants={"type": "integer", "minimum": 0}),
    ),
    (
        "book",
        "Describe one book as JSON: its title, its year and whether it is a novel.",
        _object(title=_WORD, year={"type": "integer"}, is_novel={"type": "boolean"}),
    ),
    (
        "order",
        "Give one order as JSON: the product, the quantity and the size, which is small, medium or large.",
        _object(
            product=_WORD,
            quantity={"type": "integer", "minimum": 1},
            size={"type": "string", "enum": ["small", "medium", "large"]},
        ),
    ),
    (
        "trip",
        "Give one trip as JSON: where it starts, where it ends and its length in kilometres.",
        _object(start=_WORD, end=_WORD, kilometres={"type": "number", "minimum": 0}),
    ),
)

_TOOL_TASKS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    (
        "get_weather",
        "What is the weather in Oslo, in celsius? Use the tool.",
        "The weather at a place",
        _object(city=_WORD, unit={"type": "string", "enum": ["celsius", "fahrenheit"]}),
    ),
    (
        "book_table",
        "Book a table for four people at the restaurant Maple at 19 hours. Use the tool.",
        "Books a table at a restaurant",
        _object(
            restaurant=_WORD,
            people={"type": "integer", "minimum": 1},
            hour={"type": "integer", "minimum": 0, "maximum": 23},
        ),
    ),
    (
        "convert_length",
        "How many metres are three miles? Use the tool.",
        "Converts a length",
        _object(
            value={"type": "number"},
            from_unit={"type": "string", "enum": ["mile", "metre", "foot"]},
            to_unit={"type": "string", "enum": ["mile", "metre", "foot"]},
        ),
    ),
)


def plan(
    params: Parameters, context: PlanContext, phase: Phase, beside_cell: str | None = None
) -> CellPlan | None:
    """The probes of a phase, in order, one at a time; None where the campaign asks for none.

    beside_cell: for phase `during`, the cell that is under load meanwhile.
    """
    count = params.count(phase)
    if not count or not params.kinds:
        return None
    cell = f"probes-{phase}" if beside_cell is None else f"probes-{phase}-{beside_cell}"
    jobs = [(kind, place) for place in range(count) for kind in params.kinds]
    expected = {
        prompts.request_id(context, cell, index): _expectation(context, cell, kind, place)
        for index, (kind, place) in enumerate(jobs)
    }

    def requests() -> Iterator[PlannedRequest]:
        for index in range(len(jobs)):
            yield _request(params, context, cell, index, expected[prompts.request_id(context, cell, index)])

    return CellPlan(
        total_prompt_tokens=100 * len(jobs),
        total_output_tokens=params.answer_tokens * len(jobs),
        cell_id=cell,
        workload=Plan.name,
        concurrency=1,
        shape=Shape(kind="closed", concurrency=1, seed=context.seed),
        requests=requests,
        seed=context.seed,
        variant=phase,
        planned_requests=len(jobs),
        cache_budget_min=None,
        cache_budget_max=None,
        deadlines=Deadlines(first_token_s=params.timeout_s, total_s=params.timeout_s),
        params={"kinds": list(params.kinds), "beside_cell": beside_cell},
        expected=expected,
    )


def judge(
    cell: CellPlan, records: list[Request], context: PlanContext, phase: Phase | None = None
) -> list[Probe]:
    """One Probe record per planned probe; a probe whose record is missing has failed, and says so."""
    phase = phase or cell.variant  # type: ignore[assignment]
    by_id = {record.request_id: record for record in records}
    found = []
    for request_id, expected in cell.expected.items():
        record = by_id.get(request_id)
        is_passed, why = (False, "no record of this probe") if record is None else check(expected, record)
        found.append(
            Probe(
                campaign=context.campaign,
                run_id=context.run_id,
                probe_id=request_id,
                phase=phase or "before",
                kind=expected["kind"],
                cell_id=cell.params.get("beside_cell") or cell.cell_id,
                is_passed=is_passed,
                why=why,
                http_status=None if record is None else record.http_status,
                latency_ms=None if record is None else _latency_ms(record),
                sent_at=(record.sent_at if record is not None else None) or "",
                output_text=None if record is None else record.output_text,
                tool_calls=None if record is None else record.tool_calls,
            )
        )
    return found


def check(expected: dict[str, Any], record: Request) -> tuple[bool, str]:
    """Whether one probe passed, and why. `expected` is the plan's own expectation for that request."""
    if record.outcome != "ok":
        status = f"HTTP {record.http_status}, " if record.http_status else ""
        return False, f"{status}{record.error_class or record.outcome}" + (
            f": {record.error_detail[:200]}" if record.error_detail else ""
        )
    if record.http_status is not None and record.http_status != 200:
        return False, f"HTTP {record.http_status}"
    kind = expected["kind"]
    if kind == "json":
        return _check_json(expected["schema"], record)
    if kind == "tool":
        return _check_tool(expected["tool"], expected["schema"], record)
    if kind == "needle":
        verdict = needle.grade(expected["code"], record.output_text, record.reasoning_text)
        return verdict.is_correct, verdict.why
    visible, _ = needle.split_reasoning(record.output_text)
    return bool(visible), "the answer has text" if visible else "the answer is empty"


def _check_json(schema: dict[str, Any], record: Request) -> tuple[bool, str]:
    text, _ = needle.split_reasoning(record.output_text)
    if not text:
        return False, "the answer is empty"
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_twice)
    except ValueError as error:
        cut = " (cut at the token limit)" if record.finish_reason == "length" else ""
        return False, f"not JSON{cut}: {error}"
    return _validate(value, schema)


def _check_tool(tool: str, schema: dict[str, Any], record: Request) -> tuple[bool, str]:
    calls = record.tool_calls or []
    if not calls:
        return False, "no tool was called"
    for call in calls:
        function = call.get("function") if isinstance(call.get("function"), dict) else call
        assert function is not None
        if function.get("name") != tool:
            return False, f"called {function.get('name')!r} where {tool!r} was offered"
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(
                    arguments, parse_constant=_refuse_constant, object_pairs_hook=_refuse_twice
                )
            except ValueError as error:
                return False, f"arguments are not JSON: {error}"
        is_valid, why = _validate(arguments, schema)
        if not is_valid:
            return False, f"arguments: {why}"
    return True, f"{tool} was called with valid arguments"


def _validate(value: Any, schema: dict[str, Any]) -> tuple[bool, str]:
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(value))
    if error is None:
        return True, "valid by its schema"
    place = "/".join(map(str, error.absolute_path)) or "top level"
    return False, f"not valid by its schema, at {place}: {error.message[:160]}"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError("a key stands twice in one object")
    return dict(pairs)


def _latency_ms(record: Request) -> float | None:
    if record.sent_ns is None or record.end_ns is None:
        return None
    return round((record.end_ns - record.sent_ns) / 1e6, 3)


def _expectation(context: PlanContext, cell: str, kind: Kind, place: int) -> dict[str, Any]:
    if kind == "json":
        name, ask, schema = _JSON_TASKS[place % len(_JSON_TASKS)]
        return {"kind": kind, "name": name, "ask": ask, "schema": schema}
    if kind == "tool":
        tool, ask, meaning, schema = _TOOL_TASKS[place % len(_TOOL_TASKS)]
        return {"kind": kind, "tool": tool, "ask": ask, "meaning": meaning, "schema": schema}
    if kind == "needle":
        return {"kind": kind, "code": needle.code(prompts.seeded(context, cell, "code", place))}
    return {"kind": kind, "ask": "Say in one sentence what a bridge is."}


def _request(
    params: Parameters, context: PlanContext, cell: str, index: int, expected: dict[str, Any]
) -> PlannedRequest:
    kind = expected["kind"]
    front = prompts.front_line(context, cell, index)
    extra: dict[str, Any] = {}
    if kind == "needle":
        built = measure.fit(
            measure.ruler_of(context.tokens),
            params.needle_tokens - prompts.overhead(context),
            prose.sentences(prompts.seeded(context, cell, index)),
            front=front,
            back=needle.QUESTION,
            plants=[(50.0, needle.sentence(expected["code"]))],
        )
        content = built.text
    else:
        content = front + expected["ask"]
    if kind == "json":
        extra["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": expected["name"], "strict": True, "schema": expected["schema"]},
        }
    if kind == "tool":
        extra["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": expected["tool"],
                    "description": expected["meaning"],
                    "parameters": expected["schema"],
                },
            }
        ]
        extra["tool_choice"] = "required"
    body = prompts.chat_body(
        context, [{"role": "user", "content": content}], params.answer_tokens, is_streamed=False, **extra
    )
    return prompts.planned(context, cell, index, body)


class Plan:
    """Registered so that a campaign can also run probes as an entry of their own; the flow uses `plan` and `judge`."""

    name: ClassVar[str] = "probes"
    Params: ClassVar[type[Strict]] = Parameters

    def cells(self, params: Parameters, context: PlanContext) -> list[CellPlan]:
        cell = plan(params, context, "before")
        return [] if cell is None else [cell]

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        return []
