"""The command `weighbridge`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import typer

from contracts.errors import WeighbridgeError
from flows import __version__, commands

app = typer.Typer(
    name="weighbridge",
    help="Measure LLM serving, keep the evidence, publish only what passes its screens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


for _module in sorted(module.name for module in pkgutil.iter_modules(commands.__path__)):
    importlib.import_module(f"flows.commands.{_module}").register(app)


def main() -> None:
    """Run the command; a user's mistake prints its error, without a traceback, and exits with its code."""
    try:
        app()
    except WeighbridgeError as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
