"""The errors that a user sees.

    WeighbridgeError            says what failed, measured against required, where, and what next
    ├── BadInput                a file, flag or field that the user gave (exit 2)
    │   └── RefusedTopology, RefusedResult, ... rooms derive their own beside their parser
    ├── BringUpFailed           an engine did not come up: evidence, not a crash (flows.engines)
    ├── EndpointUnusable        an endpoint is not what was asked for; raised before a window opens (flows.load)
    ├── RawRefused              raw evidence contradicts its seal
    ├── BuildFailed             dbt or a contract stopped the build; the published warehouse stays
    └── PublicationRefused      a row is in gated_rows that must not be there

The command prints `str(error)` and no traceback for every one of these.
"""

from __future__ import annotations


class WeighbridgeError(Exception):
    """A failure that its reader can act on.

    what: one sentence. measured and required: what was found against what was needed, with units.
    evidence: a path, with a line where there is one. next_step: a command or an action.
    """

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        measured: str | None = None,
        required: str | None = None,
        evidence: str | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.measured = measured
        self.required = required
        self.evidence = evidence
        self.next_step = next_step

    def __str__(self) -> str:
        lines = [f"{type(self).__name__}: {self.what}"]
        if self.measured is not None:
            found = f"  measured {self.measured}"
            lines.append(found if self.required is None else f"{found}, required {self.required}")
        elif self.required is not None:
            lines.append(f"  required {self.required}")
        if self.evidence is not None:
            lines.append(f"  evidence {self.evidence}")
        if self.next_step is not None:
            lines.append(f"  next: {self.next_step}")
        return "\n".join(lines)


class BadInput(WeighbridgeError):
    """What the user gave cannot be read as what it should be."""

    exit_code = 2


class RawRefused(WeighbridgeError):
    """Raw evidence and its seal contradict each other."""


class BuildFailed(WeighbridgeError):
    """The warehouse was not rebuilt; the published one stays in place."""


class PublicationRefused(WeighbridgeError):
    """A row in gated_rows breaks the publication contract; nothing was published."""
