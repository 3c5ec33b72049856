"""Every workload against the reference server, where the truth is known: grades, recall, interference, cache, probes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contracts.records import Grade, Probe, Request
from flows import workloads
from flows.engines import bring_up
from flows.engines.reference import reference_recipe
from flows.landing import RunFolder, read_records
from flows.load import run_window
from flows.load.plan import WindowSpec
from flows.workloads import chat_quality, goodput_search, probes
from flows.workloads.base import CellOutcome, CellPlan, PlanContext, TokenCounter
from flows.workloads.interference import READER, WRITER, measure_interference

# Fast, so that a whole conversation takes a fraction of a second; the counts and answers are what is under test.
QUICK = {"ttft_ms": 2.0, "itl_ms": 0.5}


class Bench:
    """A reference server and what the flow does with one: plan, run, read back, grade."""

    def __init__(self, run: RunFolder, served: Any) -> None:
        self.run, self.served = run, served
        self.context = PlanContext(
            campaign=run.campaign,
            run_id=run.run_id,
            seed=11,
            model=served.model,
            server_nonce="bench",
            tokens=TokenCounter(lambda text: len(text.split()), "tokenizer"),
            chat_overhead_tokens=0,
            exchange_overhead_tokens=0,
        )
        self.private: dict[str, tuple[str | None, str | None]] = {}

    def measure(self, plan: CellPlan) -> list[Request]:
        """Run one cell's window and read its timed records back."""
        spec = WindowSpec(
            campaign=self.run.campaign,
            run_id=self.run.run_id,
            cell_id=plan.cell_id,
            endpoints=self.served.endpoints,
            model=self.served.model,
            shape=plan.shape,
            deadlines=plan.deadlines,
            keep_text=plan.keep_text,
            is_text_private=not plan.keep_text,
        )
        run_window(
            spec,
            plan.requests(),
            self.run,
            on_text=lambda name, text, thought: self.private.__setitem__(name, (text, thought)),
        )
        records = read_records(self.run.path / f"requests/{plan.cell_id}.jsonl", Request)
        return sorted((record for record in records if record.phase == "timed"), key=lambda r: r.index)

    def cells(self, name: str, **params: Any) -> list[CellPlan]:
        workload = workloads.get(name)
        return workloads.plan_cells(name, name, workload.Params.model_validate(params), self.context)

    def graded(self, name: str, plan: CellPlan) -> tuple[list[Request], list[Grade]]:
        records = self.measure(plan)
        return records, workloads.get(name).grade(plan, records, self.context)

    def probe(self, phase: Any, **params: Any) -> list[Probe]:
        asked = probes.Parameters(**params)
        plan = probes.plan(asked, self.context, phase)
        assert plan is not None
        return probes.judge(plan, self.measure(plan), self.context, phase)


@contextmanager
def _bench(tmp_path: Path, server: dict[str, Any]) -> Iterator[Bench]:
    run = RunFolder.create(tmp_path / "raw", "reference", "r1")
    served = bring_up(reference_recipe({"timing": QUICK, **server}), run)
    try:
        yield Bench(run, served)
    finally:
        served.stop()


Open = Callable[..., Any]


@pytest.fixture
def open_bench(tmp_path: Path) -> Open:
    return lambda **server: _bench(tmp_path, server)


def test_a_fresh_document_has_its_length_and_its_depths_are_graded(open_bench: Open) -> None:
    missing = {"answers": {"needle": {"misses_depth_pct": [[40, 60]], "on_miss": "extra_digit"}}}
    with open_bench(**missing) as bench:
        (plan,) = bench.cells("fresh_document", context_tokens=[1500], needles_per_depth=3)
        records, grades = bench.graded("fresh_document", plan)
    assert [record.prompt_tokens for record in records] == [1500] * 9
    assert [record.asked_prompt_tokens for record in records] == [1500] * 9
    assert [record.cached_tokens for record in records] == [0] * 9
    by_depth = {depth: [g.is_correct for g in grades if g.depth_pct == depth] for depth in (10, 50, 90)}
    # An extra digit holds the code as a substring, and is wrong.
    assert by_depth == {10: [True] * 3, 50: [False] * 3, 90: [True] * 3}
    assert len({grade.expected for grade in grades}) == 9


def test_a_ramp_recalls_turn_by_turn_and_reuses_what_it_declared(open_bench: Open) -> None:
    with open_bench(answers={"needle": {"misses_after_turns": 3}}) as bench:
        plans = {plan.users: plan for plan in bench.cells(
            "conversation_ramp", turns=5, start_tokens=400, end_tokens=2000, users=[1, 2])}  # fmt: skip
        for users, plan in plans.items():
            records, grades = bench.graded("conversation_ramp", plan)
            assert [r.prompt_tokens for r in records] == [400, 800, 1200, 1600, 2000] * users
            assert [g.is_correct for g in grades] == [True, True, True, False, False] * users
            for record in records:
                assert record.cached_tokens is not None
                # The cache keeps whole blocks of 16 tokens; what is shared is shared to the token.
                assert record.cached_tokens == (record.expected_cached_tokens or 0) // 16 * 16
            share = sum(r.cached_tokens or 0 for r in records) / sum(r.prompt_tokens or 0 for r in records)
            assert plan.cache_budget_min is not None
            assert plan.cache_budget_max is not None
            assert plan.cache_budget_min <= share <= plan.cache_budget_max
            texts = {g.expected for g in grades}
            assert len(texts) == users, "every user has a fact of its own"


def test_no_prompt_shares_its_first_block_unless_declared(open_bench: Open) -> None:
    with open_bench() as bench:
        blocks: list[str | None] = []
        for plan in [
            *bench.cells(
                "sweep", concurrency=[1, 2], prompt_tokens=100, output_tokens=4, requests_per_stream=2
            ),
            *bench.cells("fresh_document", context_tokens=[300]),
            *bench.cells(
                "graded_load", concurrency=[2], prompt_tokens=120, output_tokens=8, requests_per_stream=2
            ),
        ]:
            bench.measure(plan)
            records = read_records(bench.run.path / f"requests/{plan.cell_id}.jsonl", Request)
            assert {record.phase for record in records} == {"warmup", "timed"}
            assert all(record.cached_tokens == 0 for record in records)
            blocks += [record.first_block_sha256 for record in records]
    assert None not in blocks
    assert len(set(blocks)) == len(blocks)


def test_a_sweep_has_its_asked_lengths(open_bench: Open) -> None:
    with open_bench() as bench:
        (plan,) = bench.cells(
            "sweep", concurrency=[3], prompt_tokens=200, output_tokens=24, requests_per_stream=4
        )
        records = bench.measure(plan)
    assert len(records) == plan.planned_requests == 12
    assert {record.prompt_tokens for record in records} == {200}
    assert {record.output_tokens for record in records} == {24}
    assert {record.finish_reason for record in records} == {"length"}


def test_interference_is_what_the_server_does(open_bench: Open) -> None:
    # The writer's gap is 4 ms alone and 18 times that beside one other request: 4 * (1 + 17) = 72 ms.
    timing = {"ttft_ms": 2.0, "itl_ms": 4.0, "prefill_tokens_per_s": 1000, "interference": 17.0}
    with open_bench(timing=timing) as bench:
        alone_plan, beside_plan = bench.cells(
            "interference",
            prefill_tokens=1000,
            first_prefill_after_s=0.4,
            writer_prompt_tokens=64,
            writer_output_tokens=200,
            warmup_requests=0,
        )
        (alone,) = bench.measure(alone_plan)
        writer, reader = bench.measure(beside_plan)
    assert (writer.user, reader.user) == (WRITER, READER)
    found = measure_interference(alone, writer, [reader])
    assert found.overlap_s == pytest.approx(1.0, rel=0.1)
    assert found.alone_tokens_per_s == pytest.approx(250, rel=0.1)
    assert found.factor == pytest.approx(18, rel=0.15)


def test_a_private_problem_file_is_graded_and_leaves_nothing_in_raw(open_bench: Open, tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.jsonl"
    rows = [
        {
            "question": f"Zebra number {n} has how many stripes? {n} + 1,000 is it.",
            "answer": f"so\n#### {n + 1000:,}",
        }
        for n in range(11, 17)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    lookup = {
        f"Zebra number {n} has": f"It is {n + 1000}." if n % 2 else f"#### {n + 1000}" for n in range(11, 16)
    }
    with open_bench(answers={"lookup": {**lookup, "Zebra number 16 has": "It is 7."}}) as bench:
        (plan,) = bench.cells("chat_quality", gsm8k_file=str(path), problems=6, concurrency=2)
        records = bench.measure(plan)
        for record in records:
            record.output_text, record.reasoning_text = bench.private[record.request_id]
        grades = chat_quality.grade_arithmetic(plan, records)
        raw = b"".join(p.read_bytes() for p in bench.run.path.rglob("*") if p.is_file())
    assert [grade.is_correct_lenient for grade in grades] == [True] * 5 + [False]
    assert [grade.is_correct for grade in grades] == [False, True, False, True, False, False]
    assert b"Zebra" not in raw
    assert b"It is 1011" not in raw
    assert all(grade.expected is None and grade.found is None for grade in grades)


def test_generated_problems_are_right_when_the_server_is(open_bench: Open, tmp_path: Path) -> None:
    items = chat_quality._generated(_context_of_seed(11), 30)
    answers = tmp_path / "answers.jsonl"
    answers.write_text(
        "\n".join(json.dumps({"contains": item.question, "answer": f"#### {item.gold}"}) for item in items)
    )
    with open_bench(answers={"lookup_file": str(answers)}) as bench:
        (plan,) = bench.cells("chat_quality", problems=30, concurrency=4)
        _, grades = bench.graded("chat_quality", plan)
    assert [grade.is_correct for grade in grades] == [True] * 30


def _context_of_seed(seed: int) -> PlanContext:
    return PlanContext("c", "r", seed, "m", "n", TokenCounter(lambda text: len(text.split()), "tokenizer"))


@pytest.mark.parametrize(
    ("answers", "json_passes", "tool_passes"),
    [
        ({"json": "valid", "tool": "valid"}, True, True),
        ({"json": "broken", "tool": "broken"}, False, False),
        ({"json": "wrong_type", "tool": "wrong_type"}, False, False),
        ({"json": "prose", "tool": "ignored"}, False, False),
    ],
)
def test_probes_are_judged_by_schema(
    open_bench: Open, answers: dict[str, str], json_passes: bool, tool_passes: bool
) -> None:
    with open_bench(answers=answers) as bench:
        found = bench.probe("before", before=3, kinds=["json", "tool", "needle", "chat"])
    verdicts = {
        kind: {p.is_passed for p in found if p.kind == kind} for kind in ("json", "tool", "needle", "chat")
    }
    assert verdicts == {"json": {json_passes}, "tool": {tool_passes}, "needle": {True}, "chat": {True}}
    assert len(found) == 12
    assert all(probe.why and probe.sent_at for probe in found)


def test_a_500_after_clean_load_is_a_failed_probe(open_bench: Open) -> None:
    # 1 request before, 8 + 4 of load; the first probe after it meets the 500.
    broken = {"when": {"from_request": 14}, "set": {"breaks": {"status": 500}}}
    with open_bench(variants=[broken]) as bench:
        before = bench.probe("before", kinds=["json"])
        (plan,) = bench.cells(
            "sweep", concurrency=[2], prompt_tokens=64, output_tokens=4, requests_per_stream=4
        )
        load = bench.measure(plan)
        after = bench.probe("after", kinds=["json"])
    assert [probe.is_passed for probe in before] == [True]
    assert {record.outcome for record in load} == {"ok"}
    assert [(probe.is_passed, probe.http_status) for probe in after] == [(False, 500)]
    assert "500" in after[0].why


def test_cache_reuse_gives_the_share_that_was_declared(open_bench: Open) -> None:
    with open_bench() as bench:
        for plan in bench.cells(
            "cache_reuse", shares_pct=[0, 50, 90], prompt_tokens=640, output_tokens=2, requests=4
        ):
            records = bench.measure(plan)
            assert {record.prompt_tokens for record in records} == {640}
            share = sum(r.cached_tokens or 0 for r in records) / (640 * 4)
            assert share == pytest.approx(plan.params["share_pct"] / 100, abs=16 / 640 + 0.005)
            assert plan.cache_budget_min is not None
            assert plan.cache_budget_max is not None
            assert plan.cache_budget_min <= share <= plan.cache_budget_max
            assert plan.declares_sharing == bool(plan.params["share_pct"])


def test_kv_offload_shows_where_the_pool_is_full(open_bench: Open) -> None:
    with open_bench(cache={"capacity_tokens": 1600}) as bench:
        cached = {}
        for plan in bench.cells("kv_offload", users=[1, 4], context_tokens=640, warmup_requests=0):
            records, grades = bench.graded("kv_offload", plan)
            second = [record for record in records if record.turn == 1]
            cached[plan.users] = sum(record.cached_tokens or 0 for record in second) / (640 * len(second))
            assert all(grade.is_correct for grade in grades)
            assert [record.expected_cached_tokens for record in second] == [640] * len(second)
    # One user's document stays; four documents of 640 tokens do not fit in 1,600, and the least recent goes first.
    assert cached[1] == pytest.approx(1.0, abs=0.03)
    assert cached[4] == 0.0


@pytest.mark.parametrize("carries", ["needle", "json"])
def test_graded_load_grades_the_very_requests_that_are_timed(open_bench: Open, carries: str) -> None:
    missing = {"needle": {"misses_depth_pct": [[80, 100]], "on_miss": "wrong_digit"}}
    with open_bench(answers=missing) as bench:
        plans = bench.cells(
            "graded_load",
            concurrency=[2],
            carries=carries,
            prompt_tokens=150,
            output_tokens=16,
            requests_per_stream=3,
        )
        graded_records, grades = bench.graded("graded_load", plans[0])
        plain_records, none = bench.graded("graded_load", plans[1])
    assert [plan.variant for plan in plans] == [carries, "plain"]
    assert len(grades) == len(graded_records) == len(plain_records) == 6
    assert none == []
    if carries == "needle":
        assert [grade.is_correct for grade in grades] == [True, True, False] * 2
        assert {r.output_tokens for r in graded_records} == {r.output_tokens for r in plain_records} == {16}
    else:
        # The reference server makes its object from the schema alone: valid, with another value than the code.
        assert {(grade.is_correct, grade.is_correct_lenient) for grade in grades} == {(False, True)}


def test_a_goodput_search_ends_between_a_rate_that_met_and_one_that_missed(open_bench: Open) -> None:
    # Above 3 requests at once every token takes 60 ms instead of 2: at 100 ms an answer that is near 30 a second.
    slow = {"when": {"concurrency_above": 3}, "set": {"timing": {"itl_ms": 60.0, "ttft_ms": 300.0}}}
    with open_bench(timing={"ttft_ms": 5.0, "itl_ms": 2.0}, variants=[slow]) as bench:
        params = goodput_search.Parameters(
            ttft_ms=150, tpot_ms=20, start_rps=4, max_rps=256, requests=20, precision_pct=60, max_cells=8,
            prompt_tokens=40, output_tokens=16, warmup_requests=1,
        )  # fmt: skip
        search = goodput_search.Plan()
        context = replace(bench.context, entry="goodput_search")
        outcomes: list[CellOutcome] = []
        while (plan := search.next_cell(params, context, outcomes)) is not None:
            outcomes.append(CellOutcome(plan, bench.measure(plan)))
    rates = [outcome.plan.shape.rate_rps for outcome in outcomes]
    met = [goodput_search.meets(params, outcome) for outcome in outcomes]
    assert rates[0] == 4
    assert met[0]
    assert not all(met)
    best = goodput_search.best_rate(params, outcomes)
    assert best is not None
    assert best < min(rate for rate, is_met in zip(rates, met, strict=True) if rate and not is_met)
    assert len({outcome.plan.cell_id for outcome in outcomes}) == len(outcomes)


def test_a_soak_stops_by_the_clock_and_plans_what_was_due(open_bench: Open) -> None:
    with open_bench(timing={"ttft_ms": 5.0, "itl_ms": 5.0}) as bench:
        (plan,) = bench.cells(
            "soak",
            concurrency=4,
            duration_s=1.5,
            window_s=0.5,
            max_requests=400,
            prompt_tokens=48,
            output_tokens=8,
        )
        records = bench.measure(plan)
    assert plan.probe_during
    assert {record.outcome for record in records} == {"ok"}
    # About 45 ms an answer: 1.5 s of four streams hold some 130 requests, never the 400 that were prepared.
    assert 40 < len(records) < 200
    assert (plan.params["duration_s"], plan.params["window_s"]) == (1.5, 0.5)


def test_an_open_loop_sweep_keeps_its_rate(open_bench: Open) -> None:
    with open_bench() as bench:
        (plan,) = bench.cells(
            "sweep", rates_rps=[40], arrivals="constant", requests=40, prompt_tokens=40, output_tokens=4
        )
        records = bench.measure(plan)
    sent = sorted(record.planned_ns or 0 for record in records)
    assert (sent[-1] - sent[0]) / 1e9 == pytest.approx(39 / 40, rel=0.02)
