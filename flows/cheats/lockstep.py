"""Windows in step: several lanes open theirs together, and no lane computes while another's window is open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flows.load import Progress

# At each of these a lane has done all that it can beside no open window, and waits for the others: everything is
# prepared; connections stand; the last request has ended.
MEETINGS = ("opening", "ready", "closed")
# Windows that opened in the same instant would send, and read their answers, in the same instants ever after.
STAGGER_S = 0.012


class Lockstep:
    """A barrier whose parties come and go: a lane is held at each of MEETINGS until every lane is.

    A lane counts from the start until it leaves `lane()`, whatever it does in between (starting a server, probes), so
    that nothing of it happens beside an open window. Those held at the furthest meeting go on; that is all of them,
    unless a window failed on its way, whose lane then waits for the others' next one.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._held = dict.fromkeys(MEETINGS, 0)
        self._released = dict.fromkeys(MEETINGS, 0)
        self._changed = threading.Condition()

    @contextmanager
    def lane(self, number: int) -> Iterator[Callable[[Progress], None]]:
        """Be lane `number` (from 0) until this ends. Yields what to give to `run_window(on_progress=...)`."""

        def follow(progress: Progress) -> None:
            if progress.phase in MEETINGS:
                self._meet(progress.phase)
            if progress.phase == "ready":
                time.sleep(number * STAGGER_S)

        try:
            yield follow
        finally:
            with self._changed:
                self._lanes -= 1
                self._release_if_all_are_held()

    def _meet(self, phase: str) -> None:
        with self._changed:
            before = self._released[phase]
            self._held[phase] += 1
            self._release_if_all_are_held()
            self._changed.wait_for(lambda: self._released[phase] > before)

    def _release_if_all_are_held(self) -> None:
        furthest = next((phase for phase in reversed(MEETINGS) if self._held[phase]), None)
        if furthest is None or sum(self._held.values()) < self._lanes:
            return
        self._held[furthest] = 0
        self._released[furthest] += 1
        self._changed.notify_all()
