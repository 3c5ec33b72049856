"""Starts a load process: `python -m flows.load.process FOLDER PROCESS PROCESSES`.

What is done here is done before anything large is imported, because every window waits for it.
"""

from __future__ import annotations

import sys

from flows.priority import ask_to_be_woken


def main() -> None:
    """Run one load process; its arguments are the load folder, its number and how many there are."""
    # A client that waits for a processor would report its wait as the engine's. It uses a few percent of one.
    ask_to_be_woken()
    # httpx imports its command line (click, rich) where these are installed, which is most of a load process's start.
    # Without click it takes its documented way around it, so this process has none.
    sys.modules.setdefault("click", None)  # type: ignore[arg-type]
    from flows.load import worker

    worker.main()


if __name__ == "__main__":
    main()
