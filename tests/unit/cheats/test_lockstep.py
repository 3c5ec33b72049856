"""Windows in step: who waits for whom, and what the witness is asked."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flows.cheats.lockstep import Lockstep
from flows.load import Progress


class Recorded:
    """A control that notes when it was asked, and calls the rounds of `disturbed` disturbed."""

    def __init__(self, disturbed: tuple[int, ...] = ()) -> None:
        self.events: list[str] = []
        self.disturbed = disturbed
        self.round = 0

    def open(self) -> None:
        self.events.append("open")

    def close(self) -> bool:
        self.events.append("close")
        self.round += 1
        return self.round in self.disturbed


def at(phase: Any) -> Progress:
    return Progress(phase, done=0, failed=0, planned=1)


def run_lanes(windows: list[int], control: Recorded, prepare_s: float = 0.0) -> list[list[bool]]:
    """Lanes of so many windows each; what each lane heard of its windows."""
    step = Lockstep(len(windows), control)
    events, lock = control.events, threading.Lock()

    def note(event: str) -> None:
        with lock:
            events.append(event)

    def run(number: int) -> list[bool]:
        heard = []
        with step.lane(number) as lane:
            for _ in range(windows[number]):
                note("prepare")
                time.sleep(prepare_s * number)
                for phase in ("warmup", "opening", "ready"):
                    lane.follow(at(phase))
                note("timed")
                lane.follow(at("timed"))
                lane.follow(at("closed"))
                heard.append(lane.is_disturbed)
                lane.follow(at("written"))
        return heard

    with ThreadPoolExecutor(max_workers=len(windows)) as pool:
        return list(pool.map(run, range(len(windows))))


def test_nothing_is_prepared_beside_an_open_window() -> None:
    control = Recorded()
    run_lanes([3, 3, 3], control, prepare_s=0.01)
    is_open = False
    for event in control.events:
        if event in ("open", "close"):
            is_open = event == "open"
        assert event != "prepare" or not is_open
        assert event != "timed" or is_open
    assert control.events.count("open") == control.events.count("close") == 3


def test_a_lane_that_ends_is_waited_for_no_longer() -> None:
    control = Recorded()
    assert [len(heard) for heard in run_lanes([1, 4], control)] == [1, 4]
    assert control.events.count("open") == 4


def test_every_lane_hears_that_its_round_was_disturbed() -> None:
    assert run_lanes([3, 3], Recorded(disturbed=(2,))) == [[False, True, False]] * 2


def test_a_window_that_failed_on_its_way_does_not_hold_the_others_up() -> None:
    step = Lockstep(2, Recorded())
    order: list[str] = []

    def fails() -> None:
        with step.lane(0) as lane:
            lane.follow(at("opening"))
            # its load process died here; the next window of the lane prepares
            lane.follow(at("opening"))
            order.append("second window of lane 0 opens")
            for phase in ("ready", "closed"):
                lane.follow(at(phase))

    def goes_on() -> None:
        with step.lane(1) as lane:
            for phase in ("opening", "ready", "closed"):
                lane.follow(at(phase))
            order.append("first window of lane 1 has closed")
            for phase in ("opening", "ready", "closed"):
                lane.follow(at(phase))

    with ThreadPoolExecutor(max_workers=2) as pool:
        for future in [pool.submit(fails), pool.submit(goes_on)]:
            future.result(timeout=10)
    assert order == ["first window of lane 1 has closed", "second window of lane 0 opens"]
