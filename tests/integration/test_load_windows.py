"""Windows against the reference server: shapes, stops, deadlines, processes, replicas, certificate."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from load_support import Reference, body, measure, planned, reference_server

from contracts.records import Window
from flows.landing import read_records
from flows.load.plan import Deadlines, PlannedRequest, Shape


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    scenario = {
        "timing": {"ttft_ms": 20, "itl_ms": 3},
        "variants": [
            {"when": {"contains": "slow"}, "set": {"timing": {"itl_ms": 400}}},
            {"when": {"contains": "hangs"}, "set": {"breaks": {"stalls_for_ever": True}}},
        ],
    }
    with reference_server(tmp_path_factory.mktemp("server"), scenario) as started:
        yield started


def _max_in_flight(records: Any) -> int:
    changes = sorted(
        [(record.sent_ns, 1) for record in records] + [(record.end_ns, -1) for record in records]
    )
    level = peak = 0
    for _, step in changes:
        level += step
        peak = max(peak, level)
    return peak


def test_a_closed_loop_keeps_its_concurrency_and_sends_in_the_plans_order(
    server: Reference, tmp_path: Path
) -> None:
    result = measure(tmp_path, server.url, planned(30), shape=Shape(concurrency=5))
    window, records = result.window, list(result.records.values())
    assert (window.planned, window.ok, window.failed) == (30, 30, 0)
    assert (window.asked_concurrency, window.max_concurrency) == (5, 5)
    assert _max_in_flight(records) == 5
    in_order = sorted(records, key=lambda record: record.index)
    assert [record.sent_ns for record in in_order] == sorted(record.sent_ns for record in records)
    ends = {record.end_ns for record in records}
    for record in records:
        # planned is the instant a slot became free: the opening, or the end of another request
        assert record.planned_ns == window.opened_ns or record.planned_ns in ends
        assert record.sent_ns >= record.planned_ns
    truth = server.truth()
    assert all(truth[record.request_id]["output_tokens"] == record.output_tokens == 8 for record in records)
    assert window.opened_ns <= min(record.sent_ns for record in records)
    assert window.closed_ns == max(record.end_ns for record in records)
    mean = sum(record.end_ns - record.sent_ns for record in records) / (window.closed_ns - window.opened_ns)
    assert window.mean_concurrency == pytest.approx(mean)


def test_the_certificate_is_measured_and_lands_with_the_requests(server: Reference, tmp_path: Path) -> None:
    seen: list[Any] = []
    requests = planned(12, phase="warmup")
    for request in requests:
        request.request_id = f"w{request.request_id}"
    result = measure(tmp_path, server.url, requests + planned(40), on_progress=seen.append)
    window = result.window
    assert read_records(result.run.path / "windows/cell.jsonl", Window) == [window]
    assert window.planned == 40
    phases = [record.phase for record in result.records.values()]
    assert (phases.count("warmup"), phases.count("timed")) == (12, 40)
    warm_ends = [record.end_ns for record in result.records.values() if record.phase == "warmup"]
    assert max(warm_ends) < window.opened_ns
    assert window.processes == 1
    assert window.cpus >= 1
    assert window.open_file_limit >= 64
    assert 0 <= window.loop_lag_p50_ms <= window.loop_lag_p99_ms <= window.loop_lag_max_ms
    assert 0 <= window.send_delay_p50_ms <= window.send_delay_p99_ms
    assert 0 < window.cpu_s < 60
    assert 0 < window.cpu_share <= 2
    assert (window.gc_pauses, window.gc_pause_ms) == (0, 0)
    assert window.peak_rss_mb < 300
    assert 1 < len(window.concurrency_ns) <= 2000
    assert window.machine_load_before is not None
    assert [one.phase for one in seen].count("opening") == 1
    assert seen[-1].phase == "written"
    assert (seen[-1].done, seen[-1].failed, seen[-1].planned) == (52, 0, 52)
    assert not (result.run.path / ".load").exists()
    assert set(result.run.seals()) == {"requests/cell.jsonl", "windows/cell.jsonl"}


def test_phases_come_in_order_and_nothing_is_read_before_every_process_has_closed(
    server: Reference, tmp_path: Path
) -> None:
    phases: list[str] = []
    at_closed: list[set[str]] = []

    def follow(progress: Any) -> None:
        if not phases or phases[-1] != progress.phase:
            phases.append(progress.phase)
        if progress.phase == "closed":
            # Two processes hardly ever close together: the earlier one has had the time to read what it received.
            time.sleep(0.3)
            at_closed.append({path.name for path in tmp_path.rglob(".load/cell/*")})

    result = measure(tmp_path, server.url, planned(41), processes=2, on_progress=follow)
    assert [phase for phase in phases if phase != "timed"] == ["opening", "ready", "closed", "written"]
    assert len(at_closed) == 1
    assert at_closed[0]
    assert not [name for name in at_closed[0] if name.startswith("records-")]
    assert result.window.ok == 41


def test_open_loops_follow_the_planned_instants(server: Reference, tmp_path: Path) -> None:
    for shape in (
        Shape(kind="constant", rate_rps=100),
        Shape(kind="poisson", rate_rps=100, seed=7),
        Shape(kind="gamma", rate_rps=100, burstiness=0.5, seed=7),
    ):
        result = measure(tmp_path, server.url, planned(40, 2), shape=shape)
        records = sorted(result.records.values(), key=lambda record: record.index)
        offsets = [record.planned_ns - result.window.opened_ns for record in records]
        assert offsets == sorted(offsets)
        assert all(record.sent_ns >= record.planned_ns for record in records)
        if shape.kind == "constant":
            assert offsets == [round(index * 1e7) for index in range(40)]
        assert result.window.asked_concurrency is None


def test_waiting_behind_a_cap_counts_from_the_planned_instant(server: Reference, tmp_path: Path) -> None:
    shape = Shape(kind="constant", rate_rps=200, max_in_flight=2)
    result = measure(tmp_path, server.url, planned(20, 10), shape=shape)
    records = list(result.records.values())
    assert _max_in_flight(records) <= 2
    # 20 requests of at least 47 ms through two slots take 0.47 s, but are due within 0.1 s
    assert max(record.sent_ns - record.planned_ns for record in records) > 200_000_000


def test_a_trace_is_replayed_by_its_own_instants(server: Reference, tmp_path: Path) -> None:
    requests = planned(6, 2)
    offsets = [0, 150_000_000, 20_000_000, 60_000_000, 100_000_000, 160_000_000]
    for request, offset in zip(requests, offsets, strict=True):
        request.planned_offset_ns = offset
    result = measure(tmp_path, server.url, requests, shape=Shape(kind="trace"))
    for request, offset in zip(requests, offsets, strict=True):
        assert result.records[request.request_id].planned_ns - result.window.opened_ns == offset


def test_a_ramp_starts_its_streams_one_after_the_other(server: Reference, tmp_path: Path) -> None:
    result = measure(tmp_path, server.url, planned(4, 60), shape=Shape(concurrency=4, ramp_up_s=0.2))
    records = sorted(result.records.values(), key=lambda record: record.index)
    offsets = [record.planned_ns - result.window.opened_ns for record in records]
    assert offsets == [0, 50_000_000, 100_000_000, 150_000_000]


def test_sessions_run_their_turns_in_order_with_think_time(server: Reference, tmp_path: Path) -> None:
    requests = []
    for turn in range(3):
        for session in range(3):
            requests.append(
                PlannedRequest(
                    request_id=f"s{session}t{turn}",
                    index=len(requests),
                    body=body(f"session {session} turn {turn}", 3),
                    session_id=f"s{session}",
                    turn=turn,
                    user=session,
                    think_time_s=0.05,
                )
            )
    result = measure(tmp_path, server.url, requests, shape=Shape(kind="sessions", concurrency=2))
    assert result.window.max_concurrency <= 2
    for session in range(3):
        turns = [result.records[f"s{session}t{turn}"] for turn in range(3)]
        assert [(record.session_id, record.turn, record.user) for record in turns] == [
            (f"s{session}", turn, session) for turn in range(3)
        ]
        for before, after in itertools.pairwise(turns):
            assert after.planned_ns == before.end_ns + 50_000_000
            assert after.sent_ns >= after.planned_ns


def test_a_window_that_stops_after_seconds_ends_its_plan_there(server: Reference, tmp_path: Path) -> None:
    result = measure(tmp_path, server.url, planned(5000, 4), shape=Shape(concurrency=3, stop_after_s=0.4))
    window = result.window
    assert 3 <= window.planned == window.ok < 5000
    assert len(result.records) == window.planned
    stop_ns = window.opened_ns + 400_000_000
    assert all(record.planned_ns < stop_ns for record in result.records.values())


def test_requests_of_an_open_loop_that_a_stop_kept_back_are_unsent(server: Reference, tmp_path: Path) -> None:
    shape = Shape(kind="constant", rate_rps=50, max_in_flight=1, stop_after_s=0.3)
    result = measure(tmp_path, server.url, planned(100, 20), shape=shape)
    window = result.window
    assert window.planned == 15 == window.ok + window.unsent
    assert window.unsent > 0


def test_a_window_that_stops_after_requests_plans_only_those(server: Reference, tmp_path: Path) -> None:
    result = measure(tmp_path, server.url, planned(20, 2), shape=Shape(concurrency=2, stop_after_requests=7))
    assert (result.window.planned, result.window.ok) == (7, 7)


def test_the_windows_deadline_cancels_what_still_runs(server: Reference, tmp_path: Path) -> None:
    requests = planned(12, 4)
    for index in (1, 2, 5):
        requests[index].body = body(f"hangs {index}", 4)
    deadlines = Deadlines(window_s=0.8)
    result = measure(tmp_path, server.url, requests, shape=Shape(concurrency=3), deadlines=deadlines)
    window = result.window
    assert window.planned == 12 == window.ok + window.cancelled + window.unsent
    assert window.cancelled == 3
    for record in result.records.values():
        if record.outcome == "cancelled":
            assert record.error_class == "window_deadline"
            assert record.end_ns is not None
        if record.outcome == "unsent":
            assert record.sent_ns is None


def test_an_abort_records_every_request(server: Reference, tmp_path: Path) -> None:
    requests = [
        PlannedRequest(request_id=f"r{index}", index=index, body=body(f"slow {index}", 50))
        for index in range(9)
    ]
    seen: list[Any] = []
    result = measure(
        tmp_path,
        server.url,
        requests,
        shape=Shape(concurrency=3),
        on_progress=seen.append,
        should_abort=lambda: any(one.in_flight == 3 for one in seen),
    )
    window = result.window
    assert (window.planned, window.ok, window.failed, window.cancelled, window.unsent) == (9, 0, 0, 3, 6)
    cancelled = [record for record in result.records.values() if record.outcome == "cancelled"]
    assert {record.error_class for record in cancelled} == {"aborted"}


def test_total_deadline_ends_a_request_that_goes_on_for_ever(server: Reference, tmp_path: Path) -> None:
    requests = [PlannedRequest(request_id="r0", index=0, body=body("slow", 50))]
    deadlines = Deadlines(total_s=0.7)
    record = measure(tmp_path, server.url, requests, deadlines=deadlines).records["r0"]
    assert (record.outcome, record.error_class) == ("failed", "total_timeout")
    assert record.chunk_count >= 1


def test_processes_share_the_plan_start_together_and_lose_nothing(server: Reference, tmp_path: Path) -> None:
    warmup = planned(3, 2, phase="warmup")
    for request in warmup:
        request.request_id = f"w{request.request_id}"
    result = measure(tmp_path, server.url, warmup + planned(31, 4), shape=Shape(concurrency=5), processes=2)
    window = result.window
    assert (window.processes, window.planned, window.ok) == (2, 31, 31)
    timed = [record for record in result.records.values() if record.phase == "timed"]
    assert {record.index: record.process for record in timed} == {index: index % 2 for index in range(31)}
    assert window.max_concurrency == 5
    opening = [record for record in timed if record.planned_ns == window.opened_ns]
    assert len(opening) == 5
    assert {record.process for record in opening} == {0, 1}


def test_replicas_are_used_in_turn_or_by_least_outstanding(server: Reference, tmp_path: Path) -> None:
    with reference_server(tmp_path / "second", {"timing": {"ttft_ms": 20, "itl_ms": 60}}) as slow:
        urls = [server.url, slow.url]
        in_turn = measure(tmp_path, urls, planned(12, 4), shape=Shape(concurrency=4))
        assert all(record.endpoint == record.index % 2 for record in in_turn.records.values())
        least = measure(
            tmp_path, urls, planned(24, 4), shape=Shape(concurrency=4), balance="least_outstanding"
        )
        used = [record.endpoint for record in least.records.values()]
        assert used.count(0) > used.count(1) > 0
        truth = slow.truth()
        assert {r.request_id for r in least.records.values() if r.endpoint == 1} <= set(truth)


def test_a_session_stays_on_one_replica(server: Reference, tmp_path: Path) -> None:
    requests = [
        PlannedRequest(
            request_id=f"s{session}t{turn}",
            index=session * 3 + turn,
            body=body(f"session {session} turn {turn}", 3),
            session_id=f"s{session}",
            turn=turn,
            user=session,
        )
        for session in range(3)
        for turn in range(3)
    ]
    with reference_server(tmp_path / "second", {"timing": {"ttft_ms": 20, "itl_ms": 5}}) as other:
        result = measure(
            tmp_path, [server.url, other.url], requests, shape=Shape(kind="sessions", concurrency=3)
        )
    used = {(record.user, record.endpoint) for record in result.records.values()}
    assert used == {(0, 0), (1, 1), (2, 0)}


def test_answers_are_kept_only_where_the_plan_says_so(server: Reference, tmp_path: Path) -> None:
    record = measure(tmp_path, server.url, planned(1)).records["r0"]
    assert record.output_text is None
    assert len(record.output_sha256) == 64
    kept = measure(tmp_path, server.url, planned(1), keep_text=True).records["r0"]
    assert len(kept.output_text.split()) == 8


def test_a_prompt_of_a_million_tokens_goes_through(server: Reference, tmp_path: Path) -> None:
    scenario = {"timing": {"ttft_ms": 5, "itl_ms": 1}, "start": {"max_model_len": 2_000_000}}
    with reference_server(tmp_path / "large", scenario) as large:
        text = "word " * 1_000_000
        requests = [
            PlannedRequest(request_id=f"r{n}", index=n, body=body(text + str(n), 2)) for n in range(2)
        ]
        result = measure(tmp_path, large.url, requests)
    assert [record.prompt_tokens for record in result.records.values()] == [1_000_001] * 2
    assert result.window.peak_rss_mb < 300


def test_ready_bytes_are_sent_as_they_are(server: Reference, tmp_path: Path) -> None:
    requests = [
        PlannedRequest(
            request_id="r0", index=0, body=msgspec.json.encode(body("two words", 2)), asked_output_tokens=2
        )
    ]
    record = measure(tmp_path, server.url, requests).records["r0"]
    assert (record.outcome, record.prompt_tokens, record.output_tokens) == ("ok", 2, 2)
    assert record.first_block_sha256 == record.prompt_sha256
