"""Runs `vllm bench serve` again and again in one process, so that its imports are paid once.

Reads one JSON list of arguments a line from standard input; answers each with one line of JSON, {"rc": 0} or
{"error": ...}. Started with the Python that vLLM is installed in.
"""

from __future__ import annotations

import argparse
import json
import os
import sys


def main() -> None:
    """Serve lines until the input ends."""
    # Whatever the import and the benchmark print goes to standard error; answers keep the pipe to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as bench

    for line in sys.stdin:
        parser = argparse.ArgumentParser()
        add_cli_args(parser)
        try:
            bench(parser.parse_args(json.loads(line)))
            answer = {"rc": 0}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the other windows go on
            answer = {"error": repr(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
