"""Starts a load process: `python -m flows.load.process FOLDER PROCESS PROCESSES`.

httpx imports its command line (click, rich) where these are installed, which is most of a load process's start. Without
click it takes its documented way around it, so this process has none.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run one load process; its arguments are the load folder, its number and how many there are."""
    sys.modules.setdefault("click", None)  # type: ignore[arg-type]
    from flows.load import worker

    worker.main()


if __name__ == "__main__":
    main()
