"""Parameters and cache shapes from configs, against published counts and hand-worked sums."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.node.architecture import attention_kind, read_architecture
from flows.node.checkpoint import attention_flops, facts_of, kv_bytes, kv_read_bytes, prefill_flops
from flows.node.precision import audit_source
from flows.node.source import Source

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "max_position_embeddings": 131072,
}  # fmt: skip
QWEN3_8B = {
    "model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_sliding_window": False, "max_window_layers": 36,
    "sliding_window": None,
}  # fmt: skip
QWEN25_05B = {
    "model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
    "num_experts_per_tok": 2, "torch_dtype": "bfloat16", "sliding_window": None,
}  # fmt: skip
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "vocab_size": 129280, "num_nextn_predict_layers": 1,
}  # fmt: skip
GPT_OSS_20B = {
    "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 32,
    "num_experts_per_tok": 4, "vocab_size": 201088, "sliding_window": 128, "attention_bias": True,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip
QWEN3_NEXT = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "moe_intermediate_size": 512,
    "num_experts": 512, "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512, "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_value_head_dim": 128, "vocab_size": 151936, "decoder_sparse_step": 1,
}  # fmt: skip
JAMBA = {
    "model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "num_experts": 16, "num_experts_per_tok": 2,
    "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1,
    "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256, "vocab_size": 65536,
}  # fmt: skip
NEMOTRON_H_8B = {
    "model_type": "nemotron_h", "hidden_size": 4096, "num_hidden_layers": 52, "num_attention_heads": 32,
    "num_key_value_heads": 8, "attention_head_dim": 128, "intermediate_size": 21504,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "mamba_num_heads": 128,
    "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "vocab_size": 131072,
}  # fmt: skip
GEMMA3_4B = {
    "model_type": "gemma3",
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 10240, "sliding_window": 1024,
        "vocab_size": 262208,
    },
}  # fmt: skip

# Parameters that the publishers' own checkpoints hold (main model, no draft layers), to the last one.
PUBLISHED = {
    "llama 8b": (LLAMA_8B, 8_030_261_248, 8_030_261_248, "gqa"),
    "qwen3 8b": (QWEN3_8B, 8_190_735_360, 8_190_735_360, "gqa"),
    "qwen2.5 0.5b": (QWEN25_05B, 494_032_768, 494_032_768, "gqa"),
    "mixtral 8x7b": (MIXTRAL, 46_702_792_704, 12_879_925_248, "gqa"),
    "qwen3 30b a3b": (QWEN3_30B_A3B, 30_532_122_624, None, "gqa"),
    "deepseek v3": (DEEPSEEK_V3, 671_026_419_200, None, "mla"),
    "gpt-oss 20b": (GPT_OSS_20B, 20_914_757_184, None, "sliding"),
    "qwen3-next 80b": (QWEN3_NEXT, 79_674_391_296, None, "hybrid"),
    "jamba 52b": (JAMBA, 51_570_323_328, None, "hybrid"),
}
# Rounded figures of model cards: (config, total, active) in billions, within 1.5 %.
ROUNDED = {
    "deepseek v3 active": (DEEPSEEK_V3, 671.0, 37.6),
    "qwen3 30b active": (QWEN3_30B_A3B, 30.5, 3.35),
    "nemotron-h 8b": (NEMOTRON_H_8B, 8.1, 8.1),
    "gemma3 4b text": (GEMMA3_4B, 3.88, 3.88),
    "jamba active": (JAMBA, 51.6, 12.1),
}


def facts(config: dict[str, Any]) -> dict[str, Any]:
    from pathlib import Path

    return facts_of(audit_source(Source(Path("config.json"), config=config)))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_from_a_config_are_the_published_count(name: str) -> None:
    config, total, active, kind = PUBLISHED[name]
    architecture = read_architecture(config)
    assert architecture is not None
    assert architecture.params_total == total
    assert active is None or architecture.params_active == active
    assert attention_kind(architecture) == kind
    assert sum(architecture.params_by_kind().values()) == total


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_from_a_config_match_the_model_card(name: str) -> None:
    config, total, active = ROUNDED[name]
    found = facts(config)
    assert found["params_total"] == pytest.approx(total * 1e9, rel=0.015)
    assert found["params_active"] == pytest.approx(active * 1e9, rel=0.015)


def test_kv_of_grouped_heads_by_hand() -> None:
    # 2 (key and value) x layers x 8 key heads x 128 x 2 bytes
    assert facts(LLAMA_8B)["kv_bytes_per_token"] == 2 * 32 * 8 * 128 * 2 == 131_072
    found = facts(QWEN3_8B)
    assert found["kv_bytes_per_token"] == 147_456
    assert kv_bytes(found, 1000) == 147_456_000
    assert kv_read_bytes(found, 1000) == 147_456_000
    assert found["n_layers_full_attention"] == 36
    assert found["sliding_window"] is None


def test_attention_work_of_an_8b_model_by_hand() -> None:
    found = facts(QWEN3_8B)
    assert found["attn_flops_per_token_per_key_full"] == 4 * 32 * 128 * 36 == 589_824
    assert attention_flops(found, 1024) == 589_824 * 512
    llama = facts(LLAMA_8B)
    peak = 989e12  # H200, dense bfloat16
    assert peak / prefill_flops(llama, 1024) == pytest.approx(60_600, rel=0.001)
    assert peak / prefill_flops(llama, 1_000_000) == pytest.approx(3_600, rel=0.02)


def test_decode_reads_all_but_an_untied_input_embedding() -> None:
    found = facts(LLAMA_8B)
    assert found["weight_bytes"] == 2 * 8_030_261_248
    assert found["active_weight_bytes"] == 2 * (8_030_261_248 - 128256 * 4096)
    tied = facts(QWEN25_05B | {"torch_dtype": "bfloat16"})
    assert tied["active_weight_bytes"] == tied["weight_bytes"] == 2 * 494_032_768


def test_latent_attention_caches_one_latent_and_one_rotary_key() -> None:
    found = facts(DEEPSEEK_V3)
    assert found["kv_bytes_per_token"] == 61 * (512 + 64) * 2 == 70_272
    assert found["attn_flops_per_token_per_key_full"] == 61 * 2 * 128 * (128 + 64 + 128)
    assert found["experts"] == 256
    assert found["is_moe"] is True


def test_windowed_layers_stop_growing_at_the_window() -> None:
    found = facts(GPT_OSS_20B)
    assert (found["n_layers_full_attention"], found["n_layers_sliding"], found["sliding_window"]) == (
        12,
        12,
        128,
    )
    per_layer = 2 * 8 * 64 * 2
    assert kv_bytes(found, 64) == 24 * per_layer * 64
    assert kv_bytes(found, 10_000) == 12 * per_layer * 10_000 + 12 * per_layer * 128
    # half the layers at L / 2 keys, the others at 128 (1 - 128 / 2 L)
    expected = 12 * 4 * 64 * 64 * (10_000 / 2 + 128 * (1 - 128 / 20_000))
    assert attention_flops(found, 10_000) == pytest.approx(expected)


def test_gemma_takes_five_windowed_layers_to_one_full() -> None:
    found = facts(GEMMA3_4B)
    assert (found["n_layers_full_attention"], found["n_layers_sliding"], found["sliding_window"]) == (
        5,
        29,
        1024,
    )


def test_switched_off_windows_are_no_windows() -> None:
    assert facts(QWEN3_8B | {"sliding_window": 4096})["n_layers_sliding"] == 0
    upper = facts(QWEN3_8B | {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 30})
    assert (upper["n_layers_full_attention"], upper["n_layers_sliding"]) == (30, 6)


def test_hybrid_models_keep_a_state_of_fixed_size() -> None:
    found = facts(QWEN3_NEXT)
    assert (found["n_layers_full_attention"], found["n_layers_state"]) == (12, 36)
    assert found["kv_bytes_per_token"] == 12 * 2 * 2 * 256 * 2
    # 32 heads of 128 x 128 in float32, and 3 columns of 2 x 2048 + 4096 channels in 2 bytes
    assert found["state_bytes_per_sequence"] == 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert kv_bytes(found, 0) == found["state_bytes_per_sequence"]
    nemotron = facts(NEMOTRON_H_8B)
    assert (nemotron["n_layers_full_attention"], nemotron["n_layers_state"]) == (4, 24)


def test_sparse_attention_reads_its_top_keys_and_every_indexer_key() -> None:
    v32 = DEEPSEEK_V3 | {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    found = facts(v32)
    assert (found["attention_kind"], found["n_layers_sparse"], found["sparse_topk"]) == ("sparse", 61, 2048)
    assert kv_bytes(found, 100_000) == 61 * (576 + 128) * 2 * 100_000
    assert kv_read_bytes(found, 100_000) == 61 * 128 * 2 * 100_000 + 61 * 576 * 2 * 2048


def test_a_kv_cache_asked_for_in_8_bit_halves_its_bytes() -> None:
    eight = QWEN3_8B | {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}},
            "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        }
    }
    assert facts(eight)["kv_bytes_per_token"] == 147_456 / 2


def test_a_config_without_a_decoder_gives_no_shape() -> None:
    assert read_architecture({}) is None
    assert read_architecture({"hidden_size": 8}) is None
    assert facts({"a": 1})["kv_bytes_per_token"] is None


_KEYS = st.sampled_from(
    sorted(
        {key for config, *_ in PUBLISHED.values() for key in config}
        | {"layer_types", "compress_ratios", "text_config"}
    )
)
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 10**6), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(
    st.sampled_from([config for config, *_ in PUBLISHED.values()]),
    st.dictionaries(_KEYS, _VALUES, max_size=4),
)
@settings(max_examples=250, deadline=None)
def test_no_config_crashes_the_reader(config: dict[str, Any], edits: dict[str, Any]) -> None:
    found = facts({**config, **edits})
    assert found["kv_bytes_per_token"] is None or found["kv_bytes_per_token"] >= 0
