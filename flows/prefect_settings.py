"""Settings that Prefect must find in the environment before it is imported; what the user set stays.

Prefect is used without a server set up: it starts one for the length of the run (20 s or more at first), whose
default start-up limit and analytics both fail on a small machine. A configured PREFECT_API_URL is used as it is.
"""

from __future__ import annotations

import os
from pathlib import Path

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    # A failed flow is told once, by the command, and without a traceback.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
}


def prepare(home: Path | None = None) -> None:
    """Set what is not set. home: where Prefect keeps its files (default `.prefect` in the working folder)."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_HOME", str((home or Path(".prefect")).resolve()))
