"""Ceilings of known models on known devices, worked by hand from the formulas of docs/screens.md."""

from __future__ import annotations

from typing import Any

import pytest

H200_FLOPS, H200_BYTES = 989.4e12, 4800e9


def _share(judged: Any, run: str) -> dict[str, Any]:
    (found,) = judged.rows("select * from marts.roofline_shares where run_id = ?", run)
    return found


def test_an_8b_model_in_bf16_on_one_h200_cannot_pass_60_6k_at_1k_nor_3_6k_at_1m(judged: Any) -> None:
    # 2 x 8.03e9 + 524,288 x 512 = 16.06e9 + 0.27e9 FLOP a token; at a million 16.06e9 + 262e9
    assert _share(judged, "roof-8b-1k")["prefill_ceiling_tokens_per_s"] == pytest.approx(60_600, rel=0.001)
    assert _share(judged, "roof-8b-1m")["prefill_ceiling_tokens_per_s"] == pytest.approx(3_557, rel=0.001)


def test_a_half_b_model_may_honestly_reach_about_960k_at_1k(judged: Any) -> None:
    # 0.988e9 + 86,016 x 512 = 1.032e9 FLOP a token, far above a fixed 60,000
    ceiling = _share(judged, "roof-half-b-1k")["prefill_ceiling_tokens_per_s"]
    assert ceiling == pytest.approx(958_600, rel=0.001)


def test_devices_multiply_and_their_names_decide(judged: Any) -> None:
    one = _share(judged, "roof-8b-1k")["prefill_ceiling_tokens_per_s"]
    assert _share(judged, "roof-8b-two")["prefill_ceiling_tokens_per_s"] == pytest.approx(2 * one)
    nvl = _share(judged, "roof-8b-nvl")
    assert nvl["device"] == "H200 NVL"
    assert nvl["prefill_ceiling_tokens_per_s"] == pytest.approx(one * 835.5 / 989.4)


def test_a_device_without_the_precision_uses_the_next_wider_one(judged: Any) -> None:
    # FP8 weights on an A100 compute in BF16: 312e12 over 16.33e9
    found = _share(judged, "roof-8b-a100")
    assert found["prefill_ceiling_tokens_per_s"] == pytest.approx(
        312e12 / (2 * 8_030_261_248 + 524_288 * 512)
    )


def test_decode_is_bound_by_what_must_be_read(judged: Any) -> None:
    # weights, and 131,072 bytes for each of 1,024 + 8 tokens
    read = 15_009_849_344 + 131_072 * (1024 + 8)
    found = _share(judged, "roof-8b-1k")
    assert found["decode_ceiling_tokens_per_s"] == pytest.approx(H200_BYTES / read)
    assert found["single_ceiling_tokens_per_s"] == pytest.approx(H200_BYTES / read)
    million = 15_009_849_344 + 131_072 * (1_000_000 + 8)
    assert _share(judged, "roof-8b-1m")["decode_ceiling_tokens_per_s"] == pytest.approx(H200_BYTES / million)


def test_of_a_mixture_only_the_active_parameters_count(judged: Any) -> None:
    found = _share(judged, "roof-moe")
    flops = 2 * 22e9 + 3_080_192 * 512
    assert found["prefill_ceiling_tokens_per_s"] == pytest.approx(4 * 1978.9e12 / flops)
    assert found["decode_ceiling_tokens_per_s"] == pytest.approx(4 * H200_BYTES / (22e9 + 192_512 * 1032))


def test_compressed_keys_and_values_are_read_compressed(judged: Any) -> None:
    found = _share(judged, "roof-mla-100k")
    assert found["decode_ceiling_tokens_per_s"] == pytest.approx(8 * H200_BYTES / (37e9 + 70_272 * 100_008))
    assert found["prefill_ceiling_tokens_per_s"] == pytest.approx(
        8 * 1978.9e12 / (2 * 37e9 + 4_997_120 * 50_000)
    )


def test_a_sliding_window_bounds_attention_and_cache(judged: Any) -> None:
    found = _share(judged, "roof-sliding-1m")
    window = 1024 * (1 - 1024 / 2_000_000)
    flops = 2 * 8_030_261_248 + 262_144 * 500_000 + 262_144 * window
    assert found["prefill_ceiling_tokens_per_s"] == pytest.approx(H200_FLOPS / flops)
    read = 15_009_849_344 + 65_536 * 1_000_008 + 65_536 * 1024
    assert found["decode_ceiling_tokens_per_s"] == pytest.approx(H200_BYTES / read)


def test_state_layers_cost_the_same_at_any_length(judged: Any) -> None:
    found = _share(judged, "roof-hybrid-1m")
    flops = 2 * 8_030_261_248 + 131_072 * 500_000 + 500_000_000
    assert found["prefill_ceiling_tokens_per_s"] == pytest.approx(H200_FLOPS / flops)
    read = 15_009_849_344 + 32_768 * 1_000_008 + 50_000_000
    assert found["decode_ceiling_tokens_per_s"] == pytest.approx(H200_BYTES / read)


def test_a_cpu_node_is_held_to_its_own_measurement(judged: Any) -> None:
    found = _share(judged, "roof-cpu")
    assert found["is_cpu"] is True
    assert found["prefill_ceiling_tokens_per_s"] == pytest.approx(200e9 / (2 * 8_030_261_248 + 524_288 * 512))
    assert found["decode_ceiling_tokens_per_s"] == pytest.approx(20e9 / (15_009_849_344 + 131_072 * 1032))
    # 16 tokens in a tenth of a second are not to be had from 20 GB/s and 15 GB of weights
    assert found["roofline"] == "fail"


def test_an_unknown_device_is_unknown_and_not_passed(judged: Any) -> None:
    assert _share(judged, "roof-unknown-gpu")["roofline"] == "unknown"


def test_shares_are_rates_over_ceilings(judged: Any) -> None:
    found = _share(judged, "roof-8b-1k")
    # 1,024 tokens in 40 ms, give or take the jitter of one percent
    assert found["prefill_share"] == pytest.approx(25_600 / 60_600, rel=0.02)
    assert found["mbu"] == pytest.approx(found["decode_share"], rel=1e-9)
    assert 0 < found["mfu"] < 1
