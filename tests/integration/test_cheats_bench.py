"""A few cheats and honest cells through the real server, client, raw and warehouse. `make cheat-bench` runs all."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cheats.bench import run_bench
from flows.cheats.matrix import Outcome, summarise
from flows.cheats.scenario import load_scenarios

CHEATS = Path(__file__).resolve().parents[1] / "cheats"
# Of several families, and on few servers: the first seven share one.
FAULTS = (
    "clock-negative-gap",
    "clock-ttft-below-the-engines",
    "cache-one-prompt-for-all",
    "load-asked-16-had-4",
    "tokens-label-is-not-the-load",
    "windows-eight-requests",
    "cost-requests-counted-twice",
    "failures-error-object-in-a-200",
    "cost-file-edited-afterwards",
)
# What a busy machine may rightly hold against a client that shares it; nothing else may hold an honest cell.
OF_THE_CLIENT = {"client_lag", "steady_state", "stream_granularity", "sample_size", "little_law"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    wanted = [scenario for scenario in load_scenarios(CHEATS) if scenario.id in FAULTS]
    wanted += [
        scenario.model_copy(update={"times": 1})
        for scenario in load_scenarios(CHEATS)
        if scenario.id in ("clean-plain", "clean-comments-and-crlf")
    ]
    return {outcome.id: outcome for outcome in run_bench(wanted, tmp_path_factory.mktemp("bench"))}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_kept_out_by_the_right_screen(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert not outcome.is_gated
    assert outcome.is_right, f"{outcome.standing}, failed {outcome.failed_screens}, {outcome.screens}"


@pytest.mark.parametrize("name", ["clean-plain", "clean-comments-and-crlf"])
def test_an_honest_cell_is_held_by_nothing_but_a_busy_client(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert set(outcome.failed_screens) <= OF_THE_CLIENT
    assert "unknown" not in {
        verdict for screen, verdict in outcome.screens.items() if screen not in OF_THE_CLIENT
    }


def test_the_matrix_counts_them_by_family(outcomes: dict[str, Outcome]) -> None:
    summary = summarise(list(outcomes.values()))
    assert summary["faults"] == len(FAULTS)
    assert summary["families"]["clock"]["right_screen"] == 2
    assert summary["families"]["cost"]["published"] == 0
