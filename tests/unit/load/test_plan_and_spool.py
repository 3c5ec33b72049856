"""Plans and spools on disk, the concurrency curve, percentiles, clocks, shares."""

from __future__ import annotations

import hashlib
import itertools
import statistics
import time
from array import array
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import BadInput
from flows.load.certificate import concurrency_curve
from flows.load.clock import Epoch, percentile
from flows.load.convert import convert
from flows.load.plan import PlannedRequest, Shape, WindowSpec
from flows.load.planfile import PlanFile, prompt_text, write_plan
from flows.load.schedule import shard, share
from flows.load.spool import FrameHeader, SentLog, SpoolWriter, read_frames, read_sent, spool_path
from flows.load.worker import retry_after_s


def _spec(**shape: Any) -> WindowSpec:
    shape.setdefault("concurrency", 2)
    return WindowSpec(
        campaign="c",
        run_id="r",
        cell_id="x",
        endpoints=["http://127.0.0.1:1"],
        model="m",
        shape=Shape(**shape),
    )


def _requests(count: int, **fields: Any) -> list[PlannedRequest]:
    return [
        PlannedRequest(
            request_id=f"r{n}", index=n, body={"messages": [{"role": "user", "content": f"é {n}"}]}, **fields
        )
        for n in range(count)
    ]


def test_a_plan_reads_back_as_it_was_written(tmp_path: Path) -> None:
    warmup = _requests(2, phase="warmup")
    assert write_plan(tmp_path, _spec(), warmup + _requests(3, asked_output_tokens=5, user=1)) == 3
    plan = PlanFile(tmp_path)
    lines = list(plan.lines())
    assert [line.phase for line in lines] == ["warmup", "warmup", "timed", "timed", "timed"]
    assert [plan.at_position(n).position for n in range(5)] == [0, 1, 2, 3, 4]
    line = lines[3]
    assert (line.request_id, line.asked_output_tokens, line.user) == ("r1", 5, 1)
    assert bytes(plan.body(line)) == '{"messages":[{"role":"user","content":"é 1"}]}'.encode()
    assert line.prompt_sha256 == hashlib.sha256("é 1".encode()).hexdigest()


def test_the_first_block_is_the_prompts_first_256_bytes(tmp_path: Path) -> None:
    long = PlannedRequest(request_id="r", index=0, body={"prompt": "é" * 200}, kind="completions")
    given = PlannedRequest(
        request_id="s", index=1, body={"prompt": "x"}, first_block_sha256="f", prompt_sha256="p"
    )
    write_plan(tmp_path, _spec(), [long, given])
    first, second = PlanFile(tmp_path).lines()
    assert first.first_block_sha256 == hashlib.sha256(("é" * 128).encode()).hexdigest()
    assert (second.first_block_sha256, second.prompt_sha256) == ("f", "p")


def test_the_prompt_is_every_message_one_after_the_other() -> None:
    parts = [
        {"type": "text", "text": "b"},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": "c"},
    ]
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": parts}]
    assert prompt_text({"messages": messages}) == "abc"
    assert prompt_text({"prompt": ["x", "y"]}) == "xy"
    assert prompt_text({"prompt": [1, 2]}) == "1 2"
    assert prompt_text({"input": "hi"}) == "hi"
    assert prompt_text({}) == ""


def test_open_loops_are_planned_from_the_seed_and_keep_their_rate(tmp_path: Path) -> None:
    def offsets(name: str, **shape: Any) -> list[int]:
        (tmp_path / name).mkdir()
        write_plan(tmp_path / name, _spec(**shape), _requests(2000))
        return [line.planned_offset_ns or 0 for line in PlanFile(tmp_path / name).lines()]

    assert offsets("even", kind="constant", rate_rps=4)[:4] == [0, 250_000_000, 500_000_000, 750_000_000]
    for name, burstiness, cv in (("poisson", 1.0, 1.0), ("gamma", 4.0, 0.5)):
        found = offsets(name, kind=name, rate_rps=10, burstiness=burstiness, seed=3)
        assert found == offsets(f"{name}-again", kind=name, rate_rps=10, burstiness=burstiness, seed=3)
        assert found != offsets(f"{name}-other", kind=name, rate_rps=10, burstiness=burstiness, seed=4)
        gaps = [b - a for a, b in itertools.pairwise(found)]
        assert statistics.mean(gaps) == pytest.approx(1e8, rel=0.1)
        assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(cv, rel=0.12)


@pytest.mark.parametrize(
    "shape",
    [
        {"kind": "closed", "concurrency": 0}, {"kind": "sessions", "concurrency": None}, {"kind": "constant"},
        {"kind": "poisson", "rate_rps": 0.0}, {"kind": "gamma", "rate_rps": 1.0, "burstiness": 0.0}, {"kind": "trace"},
    ],
)  # fmt: skip
def test_a_shape_without_what_it_needs_is_refused(tmp_path: Path, shape: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        write_plan(tmp_path, _spec(**shape), _requests(1))


def test_shards_are_disjoint_whole_and_keep_sessions_together(tmp_path: Path) -> None:
    requests = _requests(10)
    for request in requests:
        request.session_id = f"s{request.index % 3}"
    write_plan(tmp_path, _spec(kind="sessions"), requests)
    plan = PlanFile(tmp_path)
    shards = [shard(plan, plan.spec.shape, process, 2) for process in range(2)]
    assert sorted(shards[0] + shards[1]) == list(range(10))
    assert shards[0] == [0, 3, 6, 9, 2, 5, 8]
    assert [share(10, process, 4) for process in range(4)] == [3, 3, 2, 2]


def _write(folder: Path, frames: list[tuple[FrameHeader, list[int], list[bytes]]]) -> None:
    writer = SpoolWriter(folder, 0)
    for frame in frames:
        writer.put(*frame)
    writer.close()


def test_frames_read_back_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    _write(
        tmp_path,
        [
            (FrameHeader(position=4, sent_ns=7, http_status=200), [10, 20], [b"ab", b"cde"]),
            (FrameHeader(position=5, outcome="failed", error_class="reset"), [], []),
        ],
    )
    path = spool_path(tmp_path, 0, 0)
    frames = list(read_frames(path))
    assert [frame.header.position for frame in frames] == [4, 5]
    assert (frames[0].instants.tolist(), frames[0].lengths.tolist(), frames[0].payload) == (
        [10, 20],
        [2, 3],
        b"abcde",
    )
    assert frames[1].header.error_class == "reset"
    whole = path.read_bytes()
    for cut in (1, 30, 60):
        path.write_bytes(whole[:-cut])
        assert len(list(read_frames(path))) < 2
    path.write_bytes(whole + b"\0" * 100)
    assert len(list(read_frames(path))) == 2


def test_parts_of_a_long_answer_are_joined_across_spool_files(tmp_path: Path) -> None:
    write_plan(tmp_path, _spec(), _requests(1))
    import msgspec

    (tmp_path / "epoch.json").write_bytes(msgspec.json.encode(Epoch(0, 0)))
    events = [b'data: {"choices":[{"delta":{"content":"%d"}}]}\n\n' % n for n in range(3)] + [
        b"data: [DONE]\n\n"
    ]
    wire = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
    wire[0] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + wire[0]
    first_file = spool_path(tmp_path, 0, 0)
    _write(tmp_path, [(FrameHeader(position=0, is_part=True), [10], wire[:1])])
    (tmp_path / "other").mkdir()
    last = SpoolWriter(tmp_path / "other", 0)
    last.put(FrameHeader(position=0, is_part=True), [20], wire[1:2])
    last.put(
        FrameHeader(position=0, sent_ns=5, end_ns=40, http_status=200),
        [30, 40],
        [wire[2], wire[3] + b"0\r\n\r\n"],
    )
    last.close()
    spool_path(tmp_path / "other", 0, 0).rename(spool_path(tmp_path, 0, 1))
    plan = PlanFile(tmp_path)
    convert(tmp_path, plan, 0, 0)
    convert(tmp_path, plan, 0, 1)
    convert(tmp_path, plan, 0, 1)
    assert not first_file.exists()
    assert (tmp_path / "records-0-000000.jsonl").read_bytes() == b""
    record = msgspec.json.decode((tmp_path / "records-0-000001.jsonl").read_bytes())
    assert record["chunk_gap_ns"] == [5, 10, 10]
    assert record["outcome"] == "ok"


def test_full_spool_files_are_read_by_a_process_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    from flows.load import convert as converting

    monkeypatch.setattr("flows.load.spool.ROTATE_BYTES", 2_000)
    write_plan(tmp_path, _spec(), _requests(40))
    (tmp_path / "epoch.json").write_bytes(msgspec.json.encode(Epoch(0, 0)))
    event = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
        len(event),
        event,
    )
    writer = SpoolWriter(tmp_path, 0, on_rotate=lambda number: converting.start_reader(tmp_path, 0, number))
    for position in range(40):
        writer.put(FrameHeader(position=position, sent_ns=1, end_ns=9, http_status=200), [5], [answer])
        while writer.done <= position:
            pass
    writer.close()
    converting.wait_for_reader()
    monkeypatch.setattr(converting, "_reader", None)
    assert writer.number >= 2
    assert len(list(tmp_path.glob("records-*.jsonl"))) == writer.number
    converting.convert_all(tmp_path, PlanFile(tmp_path), 0, writer.number)
    lines = [
        line for path in sorted(tmp_path.glob("records-*.jsonl")) for line in path.read_bytes().splitlines()
    ]
    assert [msgspec.json.decode(line)["request_id"] for line in lines] == [f"r{n}" for n in range(40)]
    assert list(tmp_path.glob("spool-*")) == []


def test_the_sent_log_knows_what_left(tmp_path: Path) -> None:
    log = SentLog(tmp_path, 0, 5)
    log.mark(3, 100, 110)
    assert read_sent(tmp_path) == {3: (100, 110)}


def test_the_concurrency_curve_is_exact_and_thinned() -> None:
    curve, peak, mean = concurrency_curve(array("q", [100, 300, 200, 400]), 100, 500)
    assert curve == [[0, 1], [100, 2], [200, 1], [300, 0]]
    assert (peak, mean) == (2, (200 + 200) / 400)
    many = array("q", itertools.chain.from_iterable((n * 10, n * 10 + 5) for n in range(5000)))
    curve, peak, mean = concurrency_curve(many, 0, 50_000)
    assert len(curve) <= 2000
    assert (peak, mean) == (1, 0.5)
    assert curve[-1] == [49_995, 0]
    assert concurrency_curve(array("q"), 0, 10) == ([], None, None)


def test_percentiles_are_values_that_occurred() -> None:
    ordered = list(range(1, 101))
    assert [percentile(ordered, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert percentile([7], 0.99) == 7
    assert percentile([1, 2], 0.5) == 1


def test_an_epoch_turns_instants_into_wall_time_and_tells_drift() -> None:
    epoch = Epoch(1_000_000_000, 1_700_000_000_123_456_789)
    assert epoch.wall(1_000_000_000) == "2023-11-14T22:13:20.123456Z"
    assert epoch.wall(2_500_000_000) == "2023-11-14T22:13:21.623456Z"
    later = Epoch(61_000_000_000, 1_700_000_060_125_456_789)
    assert epoch.drift_ms_per_min(later) == pytest.approx(2.0)
    assert epoch.drift_ms_per_min(Epoch(1_500_000_000, 0)) is None


def test_an_epoch_is_the_closest_of_its_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    # The second reading was not interrupted; in the others the process waited between the clocks.
    monotonic = iter([0, 900, 1_000, 1_002, 2_000, 2_800, 3_000, 3_500, 4_000, 4_500])
    wall = iter([10, 20, 30, 40, 50])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(monotonic))
    monkeypatch.setattr(time, "time_ns", lambda: next(wall))
    assert Epoch.read() == Epoch(1_001, 20)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("0", 0.0), ("1.5", 1.5), (None, None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("nan", None)],
)  # fmt: skip
def test_retry_after_is_seconds_or_unknown(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value) == seconds
