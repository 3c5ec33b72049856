"""Watches a window from the flow's process: the engine's counters and the GPUs, while the load process measures."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from contracts.records import Counters, Telemetry
from flows.landing import RunFolder, utc_now
from flows.load import Progress
from flows.node import telemetry

if TYPE_CHECKING:
    from flows.engines.served import Served

# Often enough to see a queue or a preemption storm, rare enough that scraping costs the server nothing measurable.
COUNTER_PERIOD_S = 5.0
GPU_PERIOD_S = 1.0


class Watch:
    """Samples the engine's counters and the GPUs while a window is open, from threads of the flow's process."""

    def __init__(self, served: Served, run: RunFolder, cell_id: str, gpu_ids: list[int] | None) -> None:
        self._served, self._run, self._cell_id = served, run, cell_id
        self._counters: list[Counters] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name=f"counters-{cell_id}", daemon=True)
        self._gpus = telemetry.Sampler(gpu_ids, period_s=GPU_PERIOD_S)
        self._samples: list[dict[str, Any]] = []
        self._is_open = False

    def __enter__(self) -> Watch:
        return self

    def follow(self, progress: Progress) -> None:
        """Told of the window's progress: reads the engine just before it opens, samples it, reads it at its end.

        `before` is thus read when warm-up is over and nothing is in flight, so that a difference is the window's own.
        """
        if progress.phase == "opening":
            self._scrape("before")
            self._gpus.__enter__()
            self._thread.start()
            self._is_open = True
        elif progress.phase == "closed":
            self._close()

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._stop.set()
        self._thread.join(timeout=30)
        self._gpus.__exit__(None, None, None)
        self._samples = list(self._gpus.samples)
        self._scrape("after")

    def land(self) -> None:
        """Land what was sampled; a file without samples is not written."""
        if self._counters:
            self._run.land_records(f"counters/{self._cell_id}.jsonl", self._counters)
        if self._samples:
            self._run.land_records(
                f"telemetry/{self._cell_id}.jsonl",
                [
                    Telemetry(
                        campaign=self._run.campaign, run_id=self._run.run_id, cell_id=self._cell_id, **sample
                    )
                    for sample in self._samples
                ],
            )

    def _sample(self) -> None:
        while not self._stop.wait(COUNTER_PERIOD_S):
            self._scrape("during")

    def _scrape(self, at: str) -> None:
        at_ns, scraped_at = time.monotonic_ns(), utc_now()
        for counters in self._served.counters():
            known = {key: value for key, value in counters.items() if key in Counters.__struct_fields__}
            self._counters.append(
                Counters(
                    campaign=self._run.campaign,
                    run_id=self._run.run_id,
                    cell_id=self._cell_id,
                    at=at,  # type: ignore[arg-type]
                    at_ns=at_ns,
                    scraped_at=scraped_at,
                    **known,
                )
            )
