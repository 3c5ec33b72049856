"""Scenario files: what is read, what is refused and how, and that every committed one is sound."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from contracts.errors import BadInput
from flows.cheats.bench import CELLS_PER_RUN, CLEAN_LANES, clean_lanes, group
from flows.cheats.matrix import FAMILIES
from flows.cheats.scenario import load_scenarios
from flows.engines.reference_scenario import build_scenario

ROOT = Path(__file__).resolve().parents[3]
CHEATS = ROOT / "tests" / "cheats"
SOUND = """\
id: a-fault
family: cache
kind: fault
source: somewhere/repo#1
expect: [cache_accounting]
"""


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "a.yaml").write_text(text)
    return tmp_path


def test_the_committed_scenarios_are_many_sound_and_of_every_family() -> None:
    scenarios = load_scenarios(CHEATS)
    faults = Counter(scenario.family for scenario in scenarios if scenario.kind == "fault")
    assert set(faults) == set(FAMILIES)
    assert sum(faults.values()) >= 72
    assert sum(scenario.times for scenario in scenarios if scenario.kind == "clean") == 1000
    for scenario in scenarios:
        build_scenario(scenario.server, scenario.id)  # the reference server knows every primitive


def test_a_scenario_of_its_own_and_a_list_with_defaults(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SOUND)
    (tmp_path / "b.json").write_text(
        '{"defaults": {"family": "clock", "kind": "fault", "source": "x/y#2", "expect": ["clock_sanity"],'
        ' "server": {"timing": {"ttft_ms": 9, "itl_ms": 1}}},'
        ' "scenarios": [{"id": "b", "server": {"timing": {"itl_ms": 2}}}]}'
    )
    first, second = load_scenarios(tmp_path)
    assert (first.id, first.load.requests) == ("a-fault", 64)
    assert second.server == {"timing": {"ttft_ms": 9, "itl_ms": 2}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SOUND + "laod: {}\n", ["a.yaml:6", "did you mean load"]),
        (SOUND + "load: {concurency: 4}\n", ["a.yaml:6", "did you mean concurrency"]),
        (SOUND + "load:\n  prompts:\n    mode: sane\n", ["a.yaml:8", "same"]),
        (SOUND.replace("cache\n", "cahce\n"), ["a.yaml:2", "did you mean cache"]),
        (SOUND.replace("[cache_accounting]", "[cache_acounting]"), ["did you mean cache_accounting"]),
        (SOUND.replace("expect: [cache_accounting]\n", ""), ["names the screens"]),
        (SOUND + "edit: [{record: requests, drop: true}]\n", ["did you mean request"]),
        (
            SOUND + "edit: [{record: window, set: {drift_ms_per_minute: 1}}]\n",
            ["did you mean drift_ms_per_min"],
        ),
        (SOUND + "edit: [{record: window}]\n", ["changes nothing"]),
        (SOUND + "load: {shape: constant}\n", ["rate_rps"]),
        (SOUND + "recipe: {prefix_cacheing: true}\n", ["a.yaml:6", "did you mean prefix_caching"]),
        (SOUND + "recipe: {max_running_requests: many}\n", ["a.yaml:6", "max_running_requests"]),
        (SOUND + "price: {usd_per_gpu_hour: 0}\n", ["a.yaml:6", "greater than 0"]),
        (SOUND + "server: [1]\n", ["a.yaml:6"]),
        (SOUND + SOUND, ["stands twice"]),
        ("[1, 2]", ["mapping"]),
        ("", ["empty"]),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        load_scenarios(write(tmp_path, text))
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_primitive_of_the_server_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load_scenarios(write(tmp_path, SOUND + "server:\n  timing:\n    itl_ms: 5\n    ttf_ms: 3\n"))
    assert "a.yaml:9" in str(caught.value)
    assert "ttft_ms" in str(caught.value)


def test_one_id_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SOUND)
    (tmp_path / "b.yaml").write_text(SOUND)
    with pytest.raises(BadInput, match="two scenarios are called a-fault"):
        load_scenarios(tmp_path)


def test_scenarios_that_change_the_run_do_not_share_one() -> None:
    groups = group(load_scenarios(CHEATS))
    by_id = {item.scenario.id: place for place, items in enumerate(groups) for item in items}
    assert by_id["clock-negative-gap"] == by_id["clock-last-before-first"]
    assert by_id["cost-gpus-left-out"] != by_id["configuration-more-gpus-than-the-node"]
    assert all(len(items) <= CELLS_PER_RUN for items in groups)


def test_a_few_clean_cells_are_shared_out_among_the_lanes_with_long_windows_first() -> None:
    wanted = {"clean-plain": 30, "clean-one-stream": 2}
    scenarios = [
        scenario.model_copy(update={"times": wanted[scenario.id]})
        for scenario in load_scenarios(CHEATS)
        if scenario.id in wanted
    ]
    lanes = clean_lanes(group(scenarios))
    assert len(lanes) == CLEAN_LANES
    assert lanes[0][0][0].scenario.id == "clean-one-stream"
    assert sum(len(items) for lane in lanes for items in lane) == 32
    assert max(len(items) for lane in lanes for items in lane) == 4
