"""nonce_audit: no two conversations of one server begin alike, warm-up included."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, at_most

REPEATED = Threshold(
    "max_repeated",
    0.0,
    "requests",
    "one repeated first block is one prompt whose prefill may have been free",
    "public reports vllm-project/vllm#52884 and PR #10753: distinct prompts unless the workload declares sharing",
)


def judge(row: Row) -> list[Part]:
    """One part: timed requests whose first block another conversation of this server had sent."""
    if row["declares_sharing"]:
        return [Part("first_blocks", "not_applicable")]
    repeated, missing = row["blocks_repeated"], row["blocks_missing"]
    if repeated is None:
        return [Part("first_blocks", "unknown")]
    if repeated <= REPEATED.value and missing:
        return [Part("first_blocks", "unknown", repeated)]
    return [Part("first_blocks", at_most(repeated, REPEATED.value), repeated)]


SCREEN = Screen(
    name="nonce_audit",
    question="Is every prompt's first block unique within the server's lifetime?",
    passes_when="no timed request shares its first block with another conversation of the run, warm-up included",
    unknown_when="the first block of a request was not recorded (imported files)",
    not_applicable_when="the workload declares that its prompts share their beginning",
    next_step="plan prompts with a nonce in the first block; use another seed for every cell of a server",
    thresholds=(REPEATED,),
    judge=judge,
)
