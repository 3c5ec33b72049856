"""Drives the dbt process: started early, told to build when raw is loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from contracts.errors import BuildFailed

PROJECT = Path(__file__).resolve().parents[2] / "dbt"
Tell = Callable[[str], None]


class DbtProcess:
    """dbt, importing itself while others work. Use as a context manager: the process never outlives it.

    folder: where the database lies; also dbt's working folder. target: where dbt keeps its artefacts; a parse kept
    there makes the next one fast. profiles: where profiles.yml lies.
    """

    def __init__(self, folder: Path, target: Path, profiles: Path = PROJECT) -> None:
        self.folder, self.target, self.profiles = folder, target, profiles
        target.mkdir(parents=True, exist_ok=True)
        self._take_parse()
        self._errors = (target / "dbt_stderr.log").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flows.warehouse.dbt_process"],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        if profiles == PROJECT:
            self._send(["parse"])  # while raw is loaded; the build then need not

    def __enter__(self) -> DbtProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        if kind is not None:
            self._process.kill()
        self._process.wait(timeout=60)
        if self._process.stdout:
            self._process.stdout.close()
        self._errors.close()

    def run(self, arguments: list[str], on_event: Tell | None = None) -> None:
        """Run one dbt command. Raises BuildFailed, with the first failures, when dbt does not succeed."""
        self._send(arguments)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] == "done":
                if not event["success"]:
                    raise _failed(event["failures"], self.target)
                self._keep_parse()
                return
            if on_event and event["event"] == "node":
                on_event(f"dbt {event['number']}: {event['name']} {event['status']}")
        raise BuildFailed(
            f"dbt ended without an answer (exit {self._process.wait()})",
            evidence=str(self.target / "dbt_stderr.log"),
            next_step="the end of that file says why",
        )

    def _send(self, arguments: list[str]) -> None:
        target = str(self.target)
        fixed = [
            "--project-dir", str(PROJECT), "--profiles-dir", str(self.profiles), "--target-path", target,
            "--log-path", target, "--log-level", "warn", "--log-level-file", "none", "--no-use-colors",
        ]  # fmt: skip
        if arguments[0] in ("parse", "build"):
            fixed.append("--no-write-json")  # seconds of JSON that only `docs` needs, and writes itself
        assert self._process.stdin is not None
        # A process that has died cannot be written to; run() then finds its output ended, and says so.
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"arguments": [*arguments, *fixed]}) + "\n")
            self._process.stdin.flush()

    # A fresh warehouse would parse the whole project again, for seconds: the last good parse of this project is
    # kept beside it. dbt compares every file with it, so a stale one costs time and nothing else.
    def _take_parse(self) -> None:
        kept, own = PROJECT / "target" / "partial_parse.msgpack", self.target / "partial_parse.msgpack"
        if kept.exists() and not own.exists():
            shutil.copyfile(kept, own)

    def _keep_parse(self) -> None:
        kept, own = PROJECT / "target" / "partial_parse.msgpack", self.target / "partial_parse.msgpack"
        if not own.exists() or (kept.exists() and kept.stat().st_mtime >= own.stat().st_mtime):
            return
        try:
            kept.parent.mkdir(exist_ok=True)
            part = kept.with_name(f"{kept.name}.{os.getpid()}")
            shutil.copyfile(own, part)
            os.replace(part, kept)
        except OSError:
            return  # an installation that cannot be written to parses every time


def _environment() -> dict[str, str]:
    environment = os.environ | {
        "DO_NOT_TRACK": "1",
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        "PYTHONPATH": os.pathsep.join([str(PROJECT.parent), os.environ.get("PYTHONPATH", "")]).rstrip(
            os.pathsep
        ),
    }
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):
        # Where Python keeps no compiled modules, dbt's thousand would be compiled again at every build.
        environment["PYTHONPYCACHEPREFIX"] = str(PROJECT / "target" / "pycache")
    return environment


def _failed(failures: list[dict[str, Any]], target: Path) -> BuildFailed:
    shown = [
        f"{one['node']} ({one['status']}): {' '.join(one['message'].split())[:400]}" for one in failures[:5]
    ]
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    first = failures[0].get("path") if failures else None
    return BuildFailed(
        "dbt did not succeed: " + ("; ".join(shown) + more if shown else "it gave no reason"),
        evidence=f"dbt/{first}" if first else str(target / "dbt_stderr.log"),
        next_step="the published warehouse is unchanged; fix the cause and run weighbridge build again",
    )
