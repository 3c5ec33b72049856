"""Everything about this node in one flat dict, for `node.jsonl` and the command."""

from __future__ import annotations

from typing import Any

from flows.node.machine import fingerprint, read_machine
from flows.node.speed import measure_speed


def read_node() -> dict[str, Any]:
    """This machine's facts; keys are listed in docs/node.md. JSON-ready, null where the machine does not say."""
    facts: dict[str, Any] = {
        "gpus": 0,
        "gpu_names": [],
        "islands": [],
        "island_link": None,
        "between": None,
        "numa": None,
        "warnings": [],
    }
    facts |= read_machine()
    facts |= measure_speed()
    return {"node_id": fingerprint(facts), **facts}
