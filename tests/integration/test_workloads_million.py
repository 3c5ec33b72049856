"""A million tokens: the client stays small, planning lies outside the window, and the loop does not stall."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import pytest

from contracts.records import Request, Window
from flows import workloads
from flows.engines import bring_up
from flows.engines.reference import reference_recipe
from flows.landing import RunFolder, read_records
from flows.load import run_window
from flows.load.plan import WindowSpec
from flows.workloads.base import CellPlan, PlanContext, TokenCounter

# The reference server reads a million tokens at this rate, so a window lasts seconds and not minutes.
SERVER = {
    "timing": {"ttft_ms": 5.0, "itl_ms": 2.0, "prefill_tokens_per_s": 2_000_000},
    "start": {"max_model_len": 1_100_000, "kv_tokens": 4_000_000},
}


def measure(tmp_path: Path, name: str, **params: Any) -> list[tuple[CellPlan, list[Request], Window, float]]:
    """Every cell of a workload on one server: plan, timed records, certificate, planning seconds."""
    run = RunFolder.create(tmp_path, "million", "r1")
    served = bring_up(reference_recipe(SERVER), run)
    found = []
    try:
        context = PlanContext(
            campaign="million",
            run_id="r1",
            seed=3,
            model=served.model,
            server_nonce="n",
            tokens=TokenCounter(lambda text: len(text.split()), "tokenizer"),
            chat_overhead_tokens=0,
            exchange_overhead_tokens=0,
        )
        workload = workloads.get(name)
        for plan in workloads.plan_cells(name, name, workload.Params(**params), context):
            spec = WindowSpec(
                campaign="million",
                run_id="r1",
                cell_id=plan.cell_id,
                endpoints=served.endpoints,
                model=served.model,
                shape=plan.shape,
                deadlines=plan.deadlines,
                keep_text=True,
            )
            started = time.monotonic()
            planning = []

            def requests(
                plan: CellPlan = plan, started: float = started, planning: list[float] = planning
            ) -> Any:
                yield from plan.requests()
                planning.append(time.monotonic() - started)

            window = run_window(spec, requests(), run)
            records = read_records(run.path / f"requests/{plan.cell_id}.jsonl", Request)
            timed = sorted((r for r in records if r.phase == "timed"), key=lambda record: record.index)
            found.append((plan, timed, window, planning[0]))
    finally:
        served.stop()
    return found


def own_peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_token_document_is_planned_outside_the_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = measure(tmp_path, "fresh_document", context_tokens=[1_000_000], warmup_requests=1)
    plan, records, window, planning_s = cell
    assert [record.prompt_tokens for record in records] == [1_000_000] * 3
    assert all(grade.is_correct for grade in workloads.get("fresh_document").grade(plan, records, None))
    assert window.peak_rss_mb is not None
    assert window.peak_rss_mb < 1000
    assert own_peak_mb() < 1000
    with capsys.disabled():
        print(
            f"\n1M fresh document x 3: planned in {planning_s:.1f} s, load process {window.peak_rss_mb:.0f} MB, "
            f"flow {own_peak_mb():.0f} MB, loop lag max {window.loop_lag_max_ms} ms, p99 {window.loop_lag_p99_ms} ms"
        )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_ramp_to_a_million_tokens_recalls_at_every_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = measure(
        tmp_path, "conversation_ramp", turns=10, start_tokens=32_000, end_tokens=1_000_000, users=[2]
    )
    plan, records, window, planning_s = cell
    wanted = [round(32_000 + 968_000 * turn / 9) for turn in range(10)]
    assert [record.prompt_tokens for record in records] == wanted * 2
    assert all(grade.is_correct for grade in workloads.get("conversation_ramp").grade(plan, records, None))
    assert all(r.cached_tokens == (r.expected_cached_tokens or 0) // 16 * 16 for r in records)
    assert window.peak_rss_mb is not None
    assert window.peak_rss_mb < 1000
    assert own_peak_mb() < 1000
    with capsys.disabled():
        print(
            f"\n32K to 1M ramp, 2 users: planned in {planning_s:.1f} s, load process {window.peak_rss_mb:.0f} MB, "
            f"flow {own_peak_mb():.0f} MB, loop lag max {window.loop_lag_max_ms} ms, p99 {window.loop_lag_p99_ms} ms"
        )
