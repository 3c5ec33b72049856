"""docs/screens.md: every screen as its file says it."""

from __future__ import annotations

from contracts.policies import POLICIES
from contracts.screens import SCREENS

_HEAD = """<!-- written by python -m contracts.generate from contracts/screens; do not edit -->
# Screens

Each is one file in `contracts/screens/` (numbers, reasons, a judgement in Python), one model
`int_screen_<name>` (the verdict, in SQL), and a test that holds the two together on the same rows. A screen looks at
parts; it is as good as its worst: fail, else unknown, else pass, else not_applicable. What is missing is unknown, and
unknown never publishes. NaN and infinity fail.

| policy | requires |
|---|---|
"""

_ROOFLINE = """
### The ceilings
With L tokens, window W, top-k K; model facts as in [precision.md](precision.md), peaks from `dbt/seeds/gpu_peaks.csv`:
```
prefill = devices x peak(precision) / (2 x active parameters + attention(L))
decode  = (1 + draft tokens) x min(devices x bandwidth x batch / (active weight bytes + batch x kv(L)),
                                   devices x peak(precision) / (2 x active parameters))
attention(L) = full x L/2 + sliding x mean(L, W) + sparse x mean(L, K) + state       FLOP a token
kv(L)        = full x L + sliding x min(L, W) + sparse x min(L, K) + state           bytes read a step
mean(L, X)   = L/2 up to X, beyond it X x (1 - X / (2 L))
```
Where a fact is not sure it is taken so that the ceiling is higher: the batch is the largest that was in flight, of a
mixture only the active weights are read, cached tokens are not counted as attended to. So a rate above the ceiling
cannot have been. Precision: a device without the arithmetic of the weights computes in the next wider one. A CPU node's
peaks are its own measurement at bring-up; weights of up to 64 MiB are held to the caches' bandwidth.
"""

_STEADY = """
### The steady part
From the end of the ramp-up to the last send: until then a closed loop is full. A request's tokens are spread evenly over
its time on the server, so that streams in lockstep do not look unsteady. The trend is the slope of latency a token
against the send, by Student's t; with many requests a drift of nothing is significant, so it must also move latency by
one percent over the window. The length is counted in latencies and requests, not in seconds: a small model settles in
less time than a large one.
"""


def outputs() -> dict[str, str]:
    """Path -> content."""
    lines = [_HEAD.rstrip("\n")]
    for policy, screens in POLICIES.items():
        lines.append(
            f"| `{policy}` | {', '.join(screens) if len(screens) < len(SCREENS) else 'all of them'} |"
        )
    for screen in SCREENS.values():
        lines += [
            "",
            f"## {screen.name}",
            screen.question,
            "",
            f"- passes when {screen.passes_when}",
            f"- unknown when {screen.unknown_when}",
            f"- not applicable: {screen.not_applicable_when}",
            f"- next: {screen.next_step}",
            "",
            "| number | value | unit | reason | source |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| `{one.name}` | {one.value:,.10g} | {one.unit} | {one.reason} | {one.source} |"
            for one in screen.thresholds
        ]
        if screen.name == "roofline":
            lines.append(_ROOFLINE.rstrip("\n"))
        if screen.name == "steady_state":
            lines.append(_STEADY.rstrip("\n"))
    return {"docs/screens.md": "\n".join(lines) + "\n"}
