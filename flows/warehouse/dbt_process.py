"""dbt in a process of its own, told what to do over its standard input: one JSON object a line.

dbt takes seconds to import, so flows.warehouse starts this first and loads raw meanwhile. It runs in the folder of the
database under construction, whose path in profiles.yml is relative. What dbt reports goes out as JSON lines; anything
that dbt prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Read commands until standard input closes; answer each with a `done` line."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # dbt's own printing must not mix with the answers

    def say(**content: Any) -> None:
        out.write(json.dumps(content, default=str) + "\n")

    from dbt.cli.main import dbtRunner

    nodes = {"done": 0}

    def on_event(event: Any) -> None:
        name = event.info.name
        if name in (
            "LogModelResult",
            "LogSeedResult",
            "LogTestResult",
            "LogSnapshotResult",
            "LogHookEndLine",
        ):
            nodes["done"] += 1
            data = event.data
            say(
                event="node",
                name=data.node_info.node_name,
                status=data.node_info.node_status or getattr(data, "status", ""),
                number=nodes["done"],
                total=getattr(data, "total", None),
            )

    manifest = None
    for line in sys.stdin:
        command = json.loads(line)
        nodes["done"] = 0
        known = manifest if command["arguments"][0] == "build" else None
        result = dbtRunner(manifest=known, callbacks=[on_event]).invoke(command["arguments"])
        # A parse is asked for before there is anything to run, and is kept for what follows; one that fails is
        # reported when the build, which must then parse again, fails too.
        if command["arguments"][0] == "parse":
            manifest = result.result if result.success else None
            continue
        say(event="done", success=bool(result.success), failures=_failures(result))


def _failures(result: Any) -> list[dict[str, Any]]:
    """What went wrong, node by node; an exception that stopped dbt itself counts as one."""
    if result.exception is not None:
        return [{"node": "dbt", "status": "error", "message": str(result.exception)}]
    failures = []
    for one in getattr(result.result, "results", None) or []:
        status = str(getattr(one, "status", ""))
        if status in ("error", "fail", "runtime error", "partial success"):
            node = one.node
            failures.append(
                {
                    "node": node.name,
                    "status": status,
                    "message": (one.message or "").strip(),
                    "path": getattr(node, "original_file_path", None),
                    "failures": getattr(one, "failures", None),
                }
            )
    return failures


if __name__ == "__main__":
    main()
