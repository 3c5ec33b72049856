"""A campaign file is read whole or refused with its file, line and the nearest right key."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from contracts.errors import BadInput
from flows.campaign_file import Campaign, load_campaign, nearest_key
from flows.plan_table import plan_campaign
from flows.recipe import Recipe

CAMPAIGNS = Path(__file__).resolve().parents[2] / "campaigns"

GOOD = """\
name: small
policy: original
price: {usd_per_gpu_hour: 3.5, key: h200, source: a price list, as_of: 2026-10-09}
recipes:
  - name: one
    engine: llamacpp
    model: needle-2.8m
    context_tokens: 2048
  - name: two
    engine: llamacpp
    model: needle-2.8m
    rescues: one
    workloads: [short]
workloads:
  - workload: sweep
    name: short
    concurrency: [1, 2]
    prompt_tokens: {min_tokens: 64, max_tokens: 128}
  - workload: fresh_document
    context_tokens: [600]
"""


def load(tmp_path: Path, text: str, prices: str | None = None) -> Campaign:
    path = tmp_path / "campaign.yaml"
    path.write_text(dedent(text))
    seed = tmp_path / "prices.csv"
    if prices is not None:
        seed.write_text(prices)
    return load_campaign(path, prices=seed)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, text)
    return str(caught.value)


def test_a_good_file_is_read(tmp_path: Path) -> None:
    campaign = load(tmp_path, GOOD)
    assert (campaign.name, campaign.policy, campaign.seed) == ("small", "original", 1)
    assert [entry.name for entry in campaign.entries_of(campaign.recipes[0])] == ["short", "fresh_document"]
    assert [entry.name for entry in campaign.entries_of(campaign.recipes[1])] == ["short"]
    assert campaign.price.as_of.isoformat() == "2026-10-09"
    assert len(campaign.sha256) == 64


def test_strict_is_the_default_policy(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD.replace("policy: original\n", "")).policy == "strict"


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("policy: original", "polcy: original", 2, ["'polcy'", "policy"]),
        ("    context_tokens: 2048", "    contxt_tokens: 2048", 8, ["'contxt_tokens'", "did you mean context_tokens"]),
        ("    context_tokens: 2048", "    ready_timeout_ms: 5000", 8, ["write ready_timeout_s, in seconds"]),
        ("    context_tokens: 2048", "    timeout_ms: 5000", 8, ["ready_timeout_s"]),
        ("    context_tokens: 2048", "    context_k: 2", 8, ["write context_tokens, in tokens"]),
        ("    context_tokens: 2048", "    context_tokens: 4k", 8, ["whole number of tokens", "4000 or 4096"]),
        ("    context_tokens: 2048", "    context_tokens: 4K tokens", 8, ["'4K tokens'", "4000 or 4096"]),
        ("    context_tokens: 2048", "    context_tokens: 20.5", 8, ["whole number"]),
        ("    context_tokens: 2048", "    context_tokens: true", 8, ["context_tokens is True"]),
        ("    context_tokens: 2048", "    ready_timeout_s: 10s", 8, ["a number of seconds", "write 10"]),
        ("    context_tokens: 2048", "    ready_timeout_s: 9000000", 8, ["104.2 days", "milliseconds", "9000"]),
        ("    engine: llamacpp\n    model: needle-2.8m\n    context", "    engine: lamacpp\n    model: x\n    context", 6, ["engine", "llamacpp"]),
        ("    engine: llamacpp\n    model: needle-2.8m\n    context", "    engine: llamacpp\n    context", 5, ["recipe 1 lacks 'model'"]),
        ("  - workload: sweep", "  - workload: swep", 15, ["'swep'", "did you mean sweep"]),
        ("    concurrency: [1, 2]", "    concurency: [1, 2]", 17, ["'concurency'", "did you mean concurrency"]),
        ("    concurrency: [1, 2]", "    concurrency: [1, two]", 17, ["'two'", "whole number"]),
        ("    concurrency: [1, 2]", "    concurrency: [1, 1]", 15, ["twice"]),
        ("{min_tokens: 64, max_tokens: 128}", "{min_tokens: 64, max_tokens: 12}", 18, ["below min_tokens 64"]),
        ("{min_tokens: 64, max_tokens: 128}", "4k", 18, ["no length"]),
        ("    rescues: one", "    rescues: onne", 12, ["an earlier recipe", "did you mean one"]),
        ("    workloads: [short]", "    workloads: [shrt]", 13, ["did you mean short"]),
        ("  - name: two", "  - name: one", 9, ["two recipes are called 'one'"]),
        ("name: small", "name: small\nname: other", 2, ["'name' stands twice"]),
        ("name: small", "name: Small One", 1, ["name"]),
        ("name: small", "", 2, ["lacks 'name'"]),
        ("price: {usd_per_gpu_hour: 3.5", "price: {usd: 3.5", 3, ["'usd'"]),
        ("usd_per_gpu_hour: 3.5", "usd_per_gpu_hour: 3.50 USD", 3, ["a number"]),
        ("  - workload: fresh_document", "  - name: fresh_document", 19, ["lacks 'workload'"]),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, says: list[str]
) -> None:
    assert old in GOOD
    message = refused(tmp_path, GOOD.replace(old, new, 1))
    assert f"campaign.yaml:{line}" in message, message
    for words in says:
        assert words in message, message


def test_broken_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    assert "campaign.yaml:2" in refused(tmp_path, "name: x\nrecipes: [unclosed\n")
    assert "empty" in refused(tmp_path, "")
    assert "mapping" in refused(tmp_path, "- a\n- b\n")


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "nightly.yaml").write_text(GOOD)
    with pytest.raises(BadInput, match="did you mean"):
        load_campaign(tmp_path / "nigthly.yaml")


def test_a_price_may_be_a_key_of_the_prices_seed(tmp_path: Path) -> None:
    seed = "price_key,usd_per_gpu_hour,source,as_of,note\nh200,3.50,the list,2026-10-09,\n"
    text = GOOD.replace("{usd_per_gpu_hour: 3.5, key: h200, source: a price list, as_of: 2026-10-09}", "h200")
    assert load(tmp_path, text, seed).price.usd_per_gpu_hour == 3.5
    with pytest.raises(BadInput, match="did you mean h200"):
        load(tmp_path, text.replace("price: h200", "price: h20"), seed)


def test_a_comparison_names_recipes_and_a_setting(tmp_path: Path) -> None:
    good = GOOD + "compare:\n  - {a: one, b: two, under_test: context_tokens}\n"
    assert load(tmp_path, good).compare[0].under_test == "context_tokens"
    assert "did you mean" in refused(
        tmp_path, good.replace("under_test: context_tokens", "under_test: context_token")
    )
    assert "a recipe of this file" in refused(tmp_path, good.replace("b: two", "b: three"))


def test_the_nearest_key_minds_the_unit() -> None:
    fields = ["ready_timeout_s", "context_tokens", "model"]
    assert nearest_key("ready_timeout_ms", fields) == ("ready_timeout_s", "write ready_timeout_s, in seconds")
    assert nearest_key("modell", fields)[0] == "model"
    assert nearest_key("zzz", fields) == (None, None)


@pytest.mark.parametrize("path", sorted(CAMPAIGNS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_campaign_of_the_house_loads_and_plans(path: Path) -> None:
    campaign = load_campaign(path)
    table = plan_campaign(campaign)
    assert table.total("cells") > 0
    assert table.total("requests") > 0
    assert table.total("hours") > 0
    assert {row.recipe for row in table.rows} == {recipe.name for recipe in campaign.recipes}


def test_the_plan_counts_what_the_file_asks_for(tmp_path: Path) -> None:
    rows = {(row.recipe, row.entry): row for row in plan_campaign(load(tmp_path, GOOD)).rows}
    sweep = rows[("one", "short")]
    # concurrency 1 and 2, 8 requests a stream, twice the concurrency before the window, mean length (64 + 128) / 2
    assert (sweep.cells, sweep.requests, sweep.warmup_requests) == (2, 24, 6)
    assert sweep.prompt_tokens == (8 + 2) * 96 + (16 + 4) * 96
    documents = rows[("one", "fresh_document")]
    assert (documents.cells, documents.requests, documents.prompt_tokens) == (1, 3, 3 * 600 + 512)
    assert ("two", "fresh_document") not in rows
    assert sweep.cost_usd == pytest.approx(sweep.hours * 3.5)


REHEARSED = (
    GOOD
    + """\
rehearsal:
  topology: quads.txt
  gpu: NVIDIA H200
  server: {timing: {ttft_ms: 20}}
  recipes:
    two: {timing: {itl_ms: 3}}
  workloads:
    short: {concurrency: [1]}
"""
)


def test_a_rehearsal_puts_reference_servers_in_the_engines_place(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(REHEARSED)
    measured = load_campaign(path)
    assert (measured.name, measured.rehearsal, measured.recipes[0].engine) == ("small", None, "llamacpp")
    rehearsed = load_campaign(path, is_rehearsed=True)
    assert rehearsed.name == "small-rehearsal"
    one, two = rehearsed.recipes
    assert (one.engine, two.engine) == ("reference", "reference")
    assert one.stand_in is not None
    assert two.stand_in is not None
    assert one.stand_in["start"]["max_model_len"] == 2048
    assert two.stand_in["timing"] == {"ttft_ms": 20, "itl_ms": 3}
    # What a stand-in does is no setting of the recipe, so it confounds no comparison.
    assert not any("stand_in" in name for name in two.settings())
    (short,) = rehearsed.entries_of(two)
    assert short.params.concurrency == [1]
    assert measured.workloads[0].params.concurrency == [1, 2]


def test_a_rehearsal_names_what_the_campaign_has(tmp_path: Path) -> None:
    message = refused(tmp_path, REHEARSED.replace("    two: {timing", "    tow: {timing"))
    assert "'tow' is not a recipe of this file" in message
    assert "did you mean two?" in message
    path = tmp_path / "campaign.yaml"
    path.write_text(REHEARSED.replace("itl_ms: 3", "itl: 3"))
    with pytest.raises(BadInput, match="itl_ms"):
        load_campaign(path, is_rehearsed=True)


def test_the_reference_server_never_stands_beside_an_engine(tmp_path: Path) -> None:
    text = GOOD.replace(
        "engine: llamacpp\n    model: needle-2.8m\n    rescues",
        "engine: reference\n    model: default\n    rescues",
    )
    message = refused(tmp_path, text)
    assert "never mixed" in message
    assert "campaign.yaml:10" in message


def test_a_splits_devices_are_those_of_its_two_sides() -> None:
    split = Recipe.model_validate(
        {
            "name": "a",
            "engine": "vllm",
            "model": "m",
            "prefill_decode": {"prefill_gpus": [2, 3], "decode_gpus": [0, 1]},
        }
    )
    whole = Recipe.model_validate({"name": "b", "engine": "vllm", "model": "m", "gpu_ids": [0, 1, 2, 3]})
    assert split.settings()["gpu_ids"] == whole.settings()["gpu_ids"] == [0, 1, 2, 3]
