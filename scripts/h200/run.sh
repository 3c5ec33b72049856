#!/usr/bin/env bash
# On the GPU machine, in a copy of this project, after install.sh: runs the campaign, then the client comparison, in the
# background of a session of its own, so that it outlives the command that starts it.
# usage: run.sh PYTHON      progress: tail -f h200.log; the evidence: raw/h200, raw/h200-clients, h200-bench/
set -uo pipefail
python=${1:?usage: run.sh PYTHON}
{
    "$python" -m flows.cli run campaigns/h200.yaml --recipe qwen3-8b --recipe qwen3-8b-ceiling \
        --recipe qwen3-8b-rescued --recipe qwen3-8b-ngram --no-build
    PYTHONPATH=. "$python" scripts/h200/compare_clients.py campaigns/h200-clients.yaml raw h200-bench
    "$python" -m flows.cli run campaigns/h200.yaml --recipe smollm2-135m --recipe smollm2-135m-fp8 --no-build
    echo "h200: done"
} > h200.log 2>&1
