"""Windows in step: several lanes open theirs together, and no lane computes while another's window is open."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from flows.load import Progress

# At each of these a lane has done all that it can beside no open window, and waits for the others: everything is
# prepared; connections stand; the last request has ended.
MEETINGS = ("opening", "ready", "closed")
# Windows that opened in the same instant would send, and read their answers, in the same instants ever after.
STAGGER_S = 0.012


class Control(Protocol):
    """Observes a round from its opening to its closing (flows.cheats.witness)."""

    def open(self) -> None: ...

    def close(self) -> bool: ...


class Lockstep:
    """A barrier whose parties come and go: a lane is held at each of MEETINGS until every lane is.

    A lane counts from the start until it leaves `lane()`, whatever it does in between (starting a server, probes), so
    that nothing of it happens beside an open window. Those held at the furthest meeting go on; that is all of them,
    unless a window failed on its way, whose lane then waits for the others' next one.
    """

    def __init__(self, lanes: int, control: Control) -> None:
        self._lanes = lanes
        self._control = control
        self._held = dict.fromkeys(MEETINGS, 0)
        self._released = dict.fromkeys(MEETINGS, 0)
        self._is_disturbed = False
        self._changed = threading.Condition()

    @contextmanager
    def lane(self, number: int) -> Iterator[Lane]:
        """Be lane `number` (from 0) until this ends."""
        try:
            yield Lane(self, number)
        finally:
            with self._changed:
                self._lanes -= 1
                self._release_if_all_are_held()

    def meet(self, phase: str) -> bool:
        """Wait until every lane is held. At the last meeting: whether the round was disturbed."""
        with self._changed:
            before = self._released[phase]
            self._held[phase] += 1
            self._release_if_all_are_held()
            self._changed.wait_for(lambda: self._released[phase] > before)
            return self._is_disturbed

    def _release_if_all_are_held(self) -> None:
        furthest = next((phase for phase in reversed(MEETINGS) if self._held[phase]), None)
        if furthest is None or sum(self._held.values()) < self._lanes:
            return
        if furthest == "ready":
            self._control.open()
        elif furthest == "closed":
            self._is_disturbed = self._control.close()
        self._held[furthest] = 0
        self._released[furthest] += 1
        self._changed.notify_all()


class Lane:
    """One party of a Lockstep. is_disturbed: whether the machine disturbed the round that it was last in."""

    def __init__(self, step: Lockstep, number: int) -> None:
        self._step, self._number = step, number
        self.is_disturbed = False

    def follow(self, progress: Progress) -> None:
        """For `run_window(on_progress=...)`: holds the window at each meeting."""
        if progress.phase not in MEETINGS:
            return
        self.is_disturbed = self._step.meet(progress.phase)
        if progress.phase == "ready":
            time.sleep(self._number * STAGGER_S)
