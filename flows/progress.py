"""What a person sees while a campaign runs: a live display in a terminal, plain dated lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


class Display:
    """Steps, bars and results of one campaign. Safe to call from other threads; never raises into the measurement.

    In a terminal one bar counts the steps and a second one the requests of the current window; elsewhere each
    step is a line with the seconds since the start, and a window reports at most every ten seconds.
    """

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.quiet = quiet
        self._started = time.monotonic()
        self._live: Progress | None = None
        self._steps: TaskID | None = None

    @contextmanager
    def running(self, title: str, steps: int | None = None) -> Iterator[Display]:
        """Show the display for the length of a `with` block."""
        self._started = time.monotonic()
        if self.quiet or not self.console.is_terminal:
            self.line(title)
            yield self
            return
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        with self._live:
            self._steps = self._live.add_task(title, total=steps)
            yield self
        self._live = self._steps = None

    def expect(self, steps: int) -> None:
        """Add `steps` to the number of steps that the bar counts to."""
        if self._live is not None and self._steps is not None:
            total = self._live.tasks[0].total or 0
            self._live.update(self._steps, total=total + steps)

    def step(self, text: str) -> None:
        """Say what happens now, without counting it as done."""
        if self._live is not None and self._steps is not None:
            self._live.update(self._steps, description=text)
        else:
            self.line(text)

    def detail(self, text: str) -> None:
        """A part of the current step: shown in a terminal, left out of a plain log."""
        if self._live is not None:
            self.step(text)

    def done(self, text: str | None = None, style: str = "") -> None:
        """Count one step, with a line that stays on the screen."""
        if text:
            self.line(text, style)
        if self._live is not None and self._steps is not None:
            self._live.advance(self._steps)

    def line(self, text: str, style: str = "") -> None:
        """A line that stays: in a terminal above the bars, elsewhere with the seconds since the start."""
        if self.quiet:
            return
        console = self._live.console if self._live is not None else self.console
        stamp = f"{time.monotonic() - self._started:7.1f} s  "
        console.print(stamp + text, style=style, markup=False, soft_wrap=True)

    @contextmanager
    def window(self, name: str, planned: int) -> Iterator[_WindowBar]:
        """The bar of one window; yields an object to call with how many requests are done."""
        task: TaskID | None = None
        if self._live is not None:
            task = self._live.add_task(f"  {name}", total=planned or None)
        try:
            yield _WindowBar(self, task, name, planned)
        finally:
            if self._live is not None and task is not None:
                self._live.remove_task(task)


class _WindowBar:
    def __init__(self, display: Display, task: TaskID | None, name: str, planned: int) -> None:
        self._display, self._task, self._name, self._planned = display, task, name, planned
        self._next_line = time.monotonic() + 10.0

    def __call__(self, done: int, failed: int = 0) -> None:
        live = self._display._live
        text = f"  {self._name}" + (f"  {failed} failed" if failed else "")
        if live is not None and self._task is not None:
            live.update(self._task, completed=done, description=text)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + 10.0
            self._display.line(f"{text}  {done} of {self._planned} requests")


def is_terminal() -> bool:
    """Whether a person watches: standard error is a terminal."""
    return sys.stderr.isatty()
