"""Plans: the same seed gives the same bytes, lengths are exact, prompts share nothing undeclared, facts lie at depth."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from tokenizers import Tokenizer

from contracts.errors import BadInput
from contracts.records import Request
from flows import workloads
from flows.workloads import (
    chat_quality,
    goodput_search,
    interference,
    lengths,
    measure,
    overhead,
    probes,
    prose,
    word_problems,
)
from flows.workloads.base import CellOutcome, CellPlan, PlanContext, TokenCounter

TOKENIZER = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "needle-2.8m" / "tokenizer.json"


def words_context(**changes: Any) -> PlanContext:
    context = PlanContext(
        "c", "r1", 5, "m", "nonce", TokenCounter(lambda text: len(text.split()), "tokenizer"), None, 7, 4
    )
    return replace(context, **changes)


def bpe_context() -> PlanContext:
    if not TOKENIZER.exists():
        pytest.skip("the small model's tokenizer is not among the fixtures")
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    return words_context(
        tokens=TokenCounter(
            lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids), "tokenizer"
        )
    )


SMALL: dict[str, dict[str, Any]] = {
    "sweep": {"concurrency": [1, 2], "prompt_tokens": 120, "output_tokens": 8, "requests_per_stream": 2},
    "fresh_document": {"context_tokens": [400], "needles_per_depth": 2},
    "conversation_ramp": {"turns": 3, "start_tokens": 200, "end_tokens": 600},
    "chat_quality": {"problems": 6},
    "probes": {"kinds": ["json", "tool", "needle", "chat"]},
    "soak": {"concurrency": 2, "duration_s": 60, "max_requests": 6, "prompt_tokens": 80},
    "cold_start": {},
    "interference": {"prefill_tokens": 300, "prefills": 2, "writer_output_tokens": 32},
    "cache_reuse": {"prompt_tokens": 200, "requests": 2},
    "kv_offload": {"users": [2], "context_tokens": 200},
    "goodput_search": {"ttft_ms": 100, "tpot_ms": 10, "requests": 10, "prompt_tokens": 80},
    "graded_load": {"concurrency": [2], "prompt_tokens": 120, "output_tokens": 16, "requests_per_stream": 2},
}


def plans(name: str, context: PlanContext) -> list[CellPlan]:
    workload = workloads.get(name)
    return workloads.plan_cells(name, name, workload.Params.model_validate(SMALL[name]), context)


def test_every_workload_is_tried_here() -> None:
    assert set(SMALL) == set(workloads.NAMES)


@pytest.mark.parametrize("name", workloads.NAMES)
def test_the_same_seed_gives_the_same_plan_byte_for_byte(name: str) -> None:
    def written(context: PlanContext) -> bytes:
        return b"".join(
            msgspec.json.encode(request) for plan in plans(name, context) for request in plan.requests()
        )

    assert written(words_context()) == written(words_context())
    assert written(words_context()) != written(words_context(server_nonce="another bring-up"))


@pytest.mark.parametrize("name", workloads.NAMES)
def test_a_plan_keeps_what_it_says(name: str) -> None:
    seen: set[str] = set()
    for plan in plans(name, words_context()):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", plan.cell_id)
        assert plan.cell_id not in seen
        seen.add(plan.cell_id)
        requests = list(plan.requests())
        timed = [request for request in requests if request.phase == "timed"]
        assert len(timed) == plan.planned_requests
        assert len(requests) - len(timed) == plan.warmup_requests
        assert len({request.request_id for request in requests}) == len(requests)
        assert all(request.request_id.startswith("r1.") for request in requests)
        assert set(plan.expected) <= {request.request_id for request in timed}
        # What is expected stays here: neither the plan's key nor its grade is on the wire.
        assert all(b"expected" not in msgspec.json.encode(request.body) for request in requests)
        for request in requests:
            assert isinstance(request.body, dict)
            assert request.body["model"] == "m"
            assert request.body["stream"] == request.is_streamed
        if not plan.declares_sharing:
            blocks = [request.first_block_sha256 for request in requests]
            assert len(set(blocks)) == len(blocks)
        if plan.total_prompt_tokens is not None and name not in ("probes", "chat_quality"):
            asked = sum(request.asked_prompt_tokens or 0 for request in requests)
            assert asked == pytest.approx(plan.total_prompt_tokens, rel=0.02)


@pytest.mark.parametrize("context", [words_context, bpe_context])
@pytest.mark.parametrize("target", [60, 137, 600, 4001])
def test_text_is_as_long_as_asked_in_the_models_own_tokens(
    context: Callable[[], PlanContext], target: int
) -> None:
    counter = context().tokens
    for seed in range(4):
        built = measure.fit(
            measure.ruler_of(counter),
            target,
            prose.sentences(random.Random(seed)),
            front="Abcdefgh. ",
            back="\n\nWhat is the secret code?",
            plants=[(50.0, "Remember this: the secret code is 90412.")],
        )
        assert counter.count(built.text) == built.tokens == target


@pytest.mark.parametrize("depth", [0, 10, 50, 90, 100])
def test_a_fact_lies_where_it_should(depth: float) -> None:
    counter = words_context().tokens
    built = measure.fit(
        measure.ruler_of(counter), 5000, prose.sentences(random.Random(1)), plants=[(depth, "CODE 90412.")]
    )
    place = len(built.text[: built.text.index("CODE")].split()) / 5000 * 100
    assert place == pytest.approx(depth, abs=0.5)
    assert built.depths_pct[0] == pytest.approx(depth, abs=0.5)


def test_a_target_below_its_fixed_parts_says_what_was_built() -> None:
    counter = words_context().tokens
    built = measure.fit(
        measure.ruler_of(counter), 3, prose.sentences(random.Random(1)), back=" one two three four five"
    )
    assert built.tokens == 5 == counter.count(built.text)


@pytest.mark.parametrize("filler", ["broad", "plain"])
def test_prose_does_not_repeat_and_has_no_digit(filler: Any) -> None:
    source = prose.sentences(random.Random(3), filler)
    lines = [next(source) for _ in range(20_000)]
    assert len(set(lines)) == len(lines)
    assert not any(re.search(r"\d", line) for line in lines)
    # Even information: no tenth packs better than another.
    tenths = [" ".join(lines[part * 2000 : (part + 1) * 2000]).encode() for part in range(10)]
    packed = [len(zlib.compress(tenth)) / len(tenth) for tenth in tenths]
    assert max(packed) / min(packed) < 1.02


def test_a_ramps_history_never_holds_an_answer() -> None:
    (plan,) = workloads.plan_cells(
        "ramp", "conversation_ramp",
        workloads.get("conversation_ramp").Params(turns=3, start_tokens=200, end_tokens=600, users=[1]),
        words_context(),
    )  # fmt: skip
    timed = [request for request in plan.requests() if request.phase == "timed"]
    code = plan.expected[timed[0].request_id]["code"]
    assert plan.variant == "ramp"
    for turn, request in enumerate(timed):
        assert isinstance(request.body, dict)
        messages = request.body["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant"] * turn + ["user"]
        text = json.dumps(messages)
        assert text.count(code) == 1, "the fact stands in the first part and nowhere else"
        assert text.count("What is the secret code?") == 1, "only the last turn asks"
        assert request.turn == turn
    first, second = timed[0].body, timed[1].body
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["messages"][0]["content"].startswith(second["messages"][0]["content"])
    # 7 for the template, the question's 5 words and the acknowledgement's exchange are not shared.
    assert timed[1].expected_cached_tokens == 200 - 7 - 5


def test_a_template_is_measured_from_two_answers() -> None:
    def ask(messages: list[dict[str, str]]) -> int:
        return 20 + sum(5 + len(message["content"].split()) for message in messages) + 3

    found = overhead.measure_overhead(ask, lambda text: len(text.split()))
    assert (found.chat_tokens, found.exchange_tokens) == (28, 10)
    assert overhead.measure_overhead(lambda _: None, len) == overhead.Overhead(None, None)
    assert overhead.measure_overhead(lambda _: 1, len) == overhead.Overhead(None, None)


def test_two_entries_of_one_workload_have_keys_of_their_own() -> None:
    params = workloads.get("sweep").Params.model_validate(SMALL["sweep"])
    a = workloads.plan_cells("first", "sweep", params, words_context())
    b = workloads.plan_cells("second", "sweep", params, words_context())
    assert {plan.cell_id for plan in a}.isdisjoint(plan.cell_id for plan in b)
    assert {plan.variant for plan in a} == {"first"}
    with pytest.raises(BadInput, match="did you mean sweep"):
        workloads.get("swep")


def test_lengths_are_drawn_as_declared(tmp_path: Path) -> None:
    adapter = pydantic.TypeAdapter(lengths.Lengths)
    rng = random.Random(1)
    spread = adapter.validate_python({"min_tokens": 10, "max_tokens": 20})
    drawn = [spread.draw(rng, i) for i in range(2000)]
    assert (min(drawn), max(drawn)) == (10, 20)
    shape = {"mean_tokens": 200, "sd_tokens": 50, "max_tokens": 2000}
    for kind in ("normal", "lognormal"):
        dist = adapter.validate_python({"distribution": kind, **shape})
        drawn = [dist.draw(rng, i) for i in range(20_000)]
        mean = sum(drawn) / len(drawn)
        assert mean == pytest.approx(200, rel=0.02)
        assert (sum((x - mean) ** 2 for x in drawn) / len(drawn)) ** 0.5 == pytest.approx(50, rel=0.05)
    weighted = adapter.validate_python({"choices_tokens": [10, 90], "weights": [3, 1]})
    assert weighted.mean_tokens == 30
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt\n0,100\n0.5,300\n")
    read = adapter.validate_python({"trace_file": str(trace), "column": "prompt"})
    assert [read.draw(rng, i) for i in range(3)] == [100, 300, 100]
    trace.with_name("bad.csv").write_text("prompt\n100\nmany\n")
    with pytest.raises(BadInput, match=r"bad\.csv:3"):
        lengths.trace_column(str(trace.with_name("bad.csv")), "prompt")
    for wrong in ("4k", 2.5, True, {"min_tokens": 9}, {"tokens": 0}, {}):
        with pytest.raises(pydantic.ValidationError):
            adapter.validate_python(wrong)


def test_a_traced_sweep_keeps_its_instants(tmp_path: Path) -> None:
    trace = tmp_path / "arrivals.jsonl"
    trace.write_text('{"arrival_s": 0.0}\n{"arrival_s": 0.25}\n{"arrival_s": 1.5}\n')
    params = workloads.get("sweep").Params(
        arrivals="trace", arrival_file=str(trace), prompt_tokens=60, output_tokens=4
    )
    (plan,) = workloads.plan_cells("sweep", "sweep", params, words_context())
    timed = [request for request in plan.requests() if request.phase == "timed"]
    assert [request.planned_offset_ns for request in timed] == [0, 250_000_000, 1_500_000_000]
    assert plan.shape.kind == "trace"


def test_word_problems_have_hundreds_of_forms_and_right_answers() -> None:
    found = word_problems.problems(random.Random(9), 500)
    assert len({problem.form for problem in found}) == 500
    assert all(problem.answer > 0 for problem in found)
    by_text = {problem.question: problem.answer for problem in found}
    assert len(by_text) == 500
    # Two steps solved by hand from their own sentences.
    for problem in found:
        match = re.fullmatch(
            r"(\w+) has (\d+) (\w+)\. Then [^.]* gives \1 (\d+) more \3\. \1 takes (\d+) of them to [^.]*\. [^.]*\?",
            problem.question,
        )
        if match:
            assert problem.answer == int(match[2]) + int(match[4]) - int(match[5])


def test_a_problem_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.jsonl"
    path.write_text('{"question": "2+2?", "answer": "#### 4"}\n{"question": "3+3?"}\n')
    with pytest.raises(BadInput, match=r"gsm8k\.jsonl:2"):
        chat_quality.read_gsm8k(path)
    assert chat_quality.read_gsm8k(path, limit=1)[0].gold == "4"


def record(**fields: Any) -> Request:
    values: dict[str, Any] = {
        "campaign": "c", "run_id": "r", "cell_id": "x", "request_id": "1", "index": 0, "outcome": "ok",
        "planned_ns": 0, "sent_ns": 0, "first_token_ns": 50_000_000, "last_token_ns": 150_000_000, "output_tokens": 11,
    }  # fmt: skip
    return Request(**{**values, **fields})


def test_goodput_counts_only_requests_that_met_both() -> None:
    params = goodput_search.Parameters(ttft_ms=60, tpot_ms=10)
    assert goodput_search.is_good(params, record())
    assert not goodput_search.is_good(params, record(first_token_ns=61_000_000))
    assert not goodput_search.is_good(params, record(last_token_ns=151_000_000))
    assert not goodput_search.is_good(params, record(outcome="failed"))
    assert not goodput_search.is_good(params, record(output_tokens=None))
    # Queueing in the client counts: TTFT runs from the planned sending.
    assert not goodput_search.is_good(params, record(planned_ns=-20_000_000))
    assert goodput_search.is_good(params, record(output_tokens=1, last_token_ns=50_000_000))


def test_the_search_doubles_then_halves_the_gap() -> None:
    params = goodput_search.Parameters(ttft_ms=1, tpot_ms=1, start_rps=2, max_rps=64, precision_pct=10)
    assert goodput_search.next_rate(params, []) == 2
    assert goodput_search.next_rate(params, [(2, True)]) == 4
    assert goodput_search.next_rate(params, [(2, True), (4, True)]) == 8
    assert goodput_search.next_rate(params, [(2, True), (4, True), (8, False)]) == 6
    assert goodput_search.next_rate(params, [(4, True), (8, False), (6, True)]) == 7
    assert goodput_search.next_rate(params, [(6, True), (6.5, False)]) is None
    assert goodput_search.next_rate(params, [(2, False)]) == 1
    assert goodput_search.next_rate(params, [(2, False), (1, False), (0.5, False)]) == 0.25
    assert goodput_search.next_rate(params, [(0.25, False)]) is None
    assert goodput_search.next_rate(params, [(64, True)]) is None
    # A capacity of 11.3 requests a second is found within the stated 10 %.
    tried: list[tuple[float, bool]] = []
    while (rate := goodput_search.next_rate(params, tried)) is not None:
        tried.append((rate, rate <= 11.3))
    best = max(rate for rate, is_met in tried if is_met)
    assert 11.3 / 1.1 <= best <= 11.3


def test_an_unmet_share_is_of_what_was_planned() -> None:
    params = goodput_search.Parameters(ttft_ms=60, tpot_ms=10, attainment_pct=90)
    plan = goodput_search.Plan().cells(params, words_context())[0]
    plan.planned_requests = 10
    nine = [record(index=place) for place in range(9)]
    assert goodput_search.meets(params, CellOutcome(plan, [*nine, record(outcome="failed")]))
    assert not goodput_search.meets(params, CellOutcome(plan, nine[:8]))


def test_interference_is_worked_by_hand() -> None:
    ms = 1_000_000
    # Alone: 11 tokens, 10 gaps of 10 ms: 100 tokens/s. Beside: 5 gaps of 10 ms, then 5 of 100 ms under a prefill.
    alone = record(
        first_token_ns=0, last_token_ns=100 * ms, output_tokens=11, chunk_gap_ns=[0] + [10 * ms] * 10
    )
    beside = record(
        first_token_ns=0,
        last_token_ns=550 * ms,
        output_tokens=11,
        chunk_gap_ns=[0] + [10 * ms] * 5 + [100 * ms] * 5,
    )
    reader = record(sent_ns=50 * ms, first_token_ns=550 * ms)
    found = interference.measure_interference(alone, beside, [reader])
    assert found.alone_tokens_per_s == pytest.approx(100)
    assert found.beside_tokens_per_s == pytest.approx(10)
    assert (found.overlap_s, found.factor) == (pytest.approx(0.5), pytest.approx(10))
    late = record(sent_ns=600 * ms, first_token_ns=700 * ms)
    assert interference.measure_interference(alone, beside, [late]).factor is None


def test_probes_of_a_phase_are_counted_and_named() -> None:
    params = probes.Parameters(before=2, during=1, after=0, kinds=["json", "tool"])
    before = probes.plan(params, words_context(), "before")
    assert before is not None
    assert before.planned_requests == 4
    assert probes.plan(params, words_context(), "after") is None
    beside = probes.plan(params, words_context(), "during", beside_cell="soak-c0002-r0")
    assert beside is not None
    assert beside.cell_id == "probes-during-soak-c0002-r0"
    judged = probes.judge(before, [], words_context(), "before")
    assert [probe.is_passed for probe in judged] == [False] * 4
    assert judged[0].why == "no record of this probe"


@pytest.mark.parametrize(
    ("text", "finish", "says"),
    [
        ('{"name": "Oslo", "country": "Norway", "inhabitants": 700000}', "stop", "valid"),
        ('{"name": "Oslo", "country": "Norway", "inhabitants": "many"}', "stop", "inhabitants"),
        ('{"name": "Oslo", "country": "Norway"}', "stop", "required"),
        ('{"name": "Oslo", "country": "Norway", "inhabitants": 1, "x": 1}', "stop", "Additional"),
        ('{"name": "Oslo", "name": "Rome", "country": "Norway", "inhabitants": 1}', "stop", "twice"),
        ('{"name": "Oslo", "country"', "length", "cut at the token limit"),
        ('```json\n{"name": "Oslo", "country": "Norway", "inhabitants": 1}\n```', "stop", "not JSON"),
        ('{"name": "Oslo", "country": "Norway", "inhabitants": NaN}', "stop", "NaN"),
        ("", "stop", "empty"),
    ],
)
def test_json_is_validated_by_its_schema(text: str, finish: str, says: str) -> None:
    expected = {"kind": "json", "schema": probes._JSON_TASKS[0][2]}
    is_passed, why = probes.check(expected, record(output_text=text, finish_reason=finish, http_status=200))
    assert is_passed == (says == "valid")
    assert says in why


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        (
            [{"function": {"name": "get_weather", "arguments": '{"city": "Oslo", "unit": "celsius"}'}}],
            "valid",
        ),
        ([{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "celsius"}}], "valid"),
        (
            [{"function": {"name": "get_weather", "arguments": '{"city": "Oslo", "unit": "kelvin"}'}}],
            "kelvin",
        ),
        ([{"function": {"name": "get_weather", "arguments": '{"city": "Oslo"'}}], "not JSON"),
        ([{"function": {"name": "weather", "arguments": "{}"}}], "'weather'"),
        ([], "no tool"),
        (None, "no tool"),
    ],
)
def test_tool_arguments_are_validated_by_their_schema(calls: Any, says: str) -> None:
    tool, _, _, schema = probes._TOOL_TASKS[0]
    expected = {"kind": "tool", "tool": tool, "schema": schema}
    is_passed, why = probes.check(expected, record(tool_calls=calls, output_text="get_weather Oslo celsius"))
    assert is_passed == (says == "valid")
    assert says in why
