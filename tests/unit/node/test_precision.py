"""Labels against tensors. Expected values: the public cases' answers, or counted by hand from the shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.node.checkpoint import model_facts
from flows.node.headers import RefusedCheckpoint, parse_header
from flows.node.precision import judge, read_precision
from flows.node.quantization import read_claim
from flows.node.tensors import kind_of

from .checkpoints import header_bytes, write_folder, write_safetensors


def public(shared_cases: Path, number: str) -> dict[str, Any]:
    (path,) = (shared_cases / "quant").glob(f"{number}-*")
    return read_precision(path)


def formats(found: dict[str, Any], kind: str) -> list[str]:
    return list(found["by_kind"][kind]["formats"])


# The public cases


@pytest.mark.shared_cases
def test_deepseek_v4_is_labelled_fp8_and_its_experts_are_fp4(shared_cases: Path) -> None:
    found = public(shared_cases, "01")
    assert (found["label"], found["true"], found["is_label_true"]) == ("fp8", "fp8, experts fp4", False)
    assert {(s["kind"], s["scale_dtype"]) for s in found["scales"]} >= {
        ("experts", "E8M0"),
        ("attention", "E8M0"),
    }


@pytest.mark.shared_cases
def test_molmo_nf4_leaves_vision_and_the_output_head_alone(shared_cases: Path) -> None:
    config, index = public(shared_cases, "03"), public(shared_cases, "04")
    assert (config["label"], config["true"]) == ("nf4", "nf4")
    assert formats(config, "lm_head") == formats(config, "vision") == ["fp16"]
    assert formats(config, "attention") == formats(config, "mlp") == ["nf4"]
    assert index["quantised_modules"] == 112
    assert (index["params"], index["bytes"]) == (8_021_025_280, 6_661_964_712)
    assert index["bytes_per_param"] == pytest.approx(0.83, abs=0.005)
    assert index["true"] == "nf4"
    assert formats(index, "vision") == formats(index, "lm_head") == ["plain"]


@pytest.mark.shared_cases
def test_mlx_dtype_is_not_its_storage(shared_cases: Path) -> None:
    found, sibling = public(shared_cases, "05"), public(shared_cases, "06")
    assert (found["label"], found["true"]) == ("mlx 4-bit", "int4")
    assert found["label_layout"] == "group 64"
    assert any("not the storage" in note for note in found["notes"])
    assert (sibling["label_method"], sibling["true"]) == (None, "bf16")
    assert sibling["bytes"] == pytest.approx(3.44e9, rel=0.001)


@pytest.mark.shared_cases
def test_pruned_model_is_plain_16_bit(shared_cases: Path) -> None:
    found = public(shared_cases, "07")
    assert (found["label"], found["true"], found["bytes_per_param"]) == ("fp16", "fp16", 2.0)
    assert found["params"] == 25_091_371_648  # what the publisher's index counts


@pytest.mark.shared_cases
def test_gpt_oss_is_mxfp4_in_its_experts_alone(shared_cases: Path) -> None:
    found = public(shared_cases, "08")
    assert (found["label"], found["true"]) == ("mxfp4", "bf16, experts mxfp4")
    for kind in ("attention", "router", "embed", "lm_head"):
        assert formats(found, kind) == ["bf16"]


@pytest.mark.shared_cases
def test_ministral_is_fp8_per_tensor_with_static_activations(shared_cases: Path) -> None:
    found = public(shared_cases, "09")
    assert (found["true"], found["label_layout"], found["activations"]) == ("fp8", "per-tensor", "static")
    assert formats(found, "vision") == formats(found, "lm_head") == ["bf16"]


@pytest.mark.shared_cases
def test_header_facts_show_where_fp4_hides(shared_cases: Path) -> None:
    facts = json.loads(next((shared_cases / "quant").glob("11-*")).read_text())
    found = {name: judge(entry) for name, entry in facts.items()}

    def scale(name: str) -> dict[str, Any]:
        return found[name]["scales"][0]

    block = scale("qwen3-0.6b-fp8 q_proj")
    assert (block["format"], block["layout"], block["scale_dtype"]) == ("fp8", "block [128, 128]", "BF16")
    assert found["deepseek-v4 native"]["true"] == "fp8, experts fp4"
    assert all(s["scale_dtype"] == "E8M0" for s in found["deepseek-v4 native"]["scales"])
    oss = scale("gpt-oss mxfp4")
    assert (oss["kind"], oss["format"], oss["layout"], oss["scale_dtype"]) == (
        "experts",
        "mxfp4",
        "group 32",
        "E8M0",
    )
    nv = scale("modelopt nvfp4")
    assert (nv["format"], nv["layout"], nv["scale_dtype"], nv["has_second_scale"], nv["has_input_scale"]) == (
        "nvfp4", "group 16", "E4M3", True, True,
    )  # fmt: skip
    assert found["modelopt nvfp4"]["activations"] == "static"
    assert scale("fp8 5120x5120 block")["layout"] == "block [128, 128]"
    assert found["fp8 5120x5120 block"]["bytes"] == 26_214_400 + 3_200
    weight_only = found["compressed-tensors nvfp4 weight-only"]
    assert (weight_only["true"], weight_only["activations"]) == ("nvfp4", "weight-only")
    assert found["modelopt mixed"]["true"] == "fp8, experts nvfp4"
    assert found["modelopt mixed"]["label"] == "mixed precision (fp8, nvfp4)"
    mlx = found["qwen3-14b-mlx-4bit index"]
    assert mlx["true"].startswith("mlx: 282 weights")
    assert found["qwen3.5-25b-reap index"]["bytes_per_param"] == 2.0
    assert found["qwen3.5-25b-reap index"]["true"] == "16-bit"
    assert found["molmo-7b nf4 index"]["bytes_per_param"] == pytest.approx(0.8306)


@pytest.mark.shared_cases
def test_every_public_quant_file_is_answered(shared_cases: Path) -> None:
    for path in sorted((shared_cases / "quant").iterdir()):
        assert read_precision(path)["path"] == str(path)


# Our own checkpoints: one layout each


def audit(tmp_path: Path, tensors: dict[str, Any], config: dict[str, Any] | None = None) -> dict[str, Any]:
    return read_precision(write_folder(tmp_path / "model", tensors, config))


ATTN, MLP = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"
EXPERT = "model.layers.0.mlp.experts.0.down_proj"

LAYOUTS: dict[str, tuple[dict[str, Any], tuple[str, str | None, str | None, int]]] = {
    "fp8 block": (
        {f"{MLP}.weight": ("F8_E4M3", (256, 512)), f"{MLP}.weight_scale_inv": ("F32", (2, 4))},
        ("fp8", "block [128, 128]", "F32", 256 * 512),
    ),
    "fp8 block, ragged": (
        {f"{MLP}.weight": ("F8_E4M3", (576, 7168)), f"{MLP}.weight_scale_inv": ("F32", (5, 56))},
        ("fp8", "block [128, 128]", "F32", 576 * 7168),
    ),
    "fp8 per tensor": (
        {
            f"{MLP}.weight": ("F8_E4M3", (64, 32)),
            f"{MLP}.weight_scale": ("F32", ()),
            f"{MLP}.input_scale": ("F32", ()),
        },
        ("fp8", "per-tensor", "F32", 2048),
    ),
    "fp8 per channel": (
        {f"{MLP}.weight": ("F8_E4M3", (64, 32)), f"{MLP}.weight_scale": ("BF16", (64, 1))},
        ("fp8", "per-channel", "BF16", 2048),
    ),
    "mxfp8": (
        {f"{MLP}.weight": ("F8_E4M3", (64, 64)), f"{MLP}.weight_scale": ("U8", (64, 2))},
        ("mxfp8", "group 32", "E8M0", 4096),
    ),
    "int8 per channel": (
        {f"{MLP}.weight": ("I8", (64, 32)), f"{MLP}.weight_scale": ("F32", (64, 1))},
        ("int8", "per-channel", "F32", 2048),
    ),
    "bitsandbytes int8": (
        {f"{MLP}.weight": ("I8", (64, 32)), f"{MLP}.SCB": ("F32", (64,)), f"{MLP}.weight_format": ("U8", ())},
        ("int8", "per-channel", "F32", 2048),
    ),
    "fp4 in I8": (
        {f"{MLP}.weight": ("I8", (64, 64)), f"{MLP}.scale": ("F8_E8M0", (64, 4))},
        ("fp4", "group 32", "E8M0", 8192),
    ),
    "nvfp4 in U8": (
        {
            f"{MLP}.weight": ("U8", (64, 64)),
            f"{MLP}.weight_scale": ("F8_E4M3", (64, 8)),
            f"{MLP}.weight_scale_2": ("F32", ()),
        },
        ("nvfp4", "group 16", "E4M3", 8192),
    ),
    "compressed-tensors nvfp4": (
        {
            f"{MLP}.weight_packed": ("U8", (64, 64)),
            f"{MLP}.weight_scale": ("F8_E4M3", (64, 8)),
            f"{MLP}.weight_global_scale": ("F32", (1,)),
        },
        ("nvfp4", "group 16", "E4M3", 8192),
    ),
    "mxfp4 in U8": (
        {f"{MLP}.weight": ("U8", (64, 64)), f"{MLP}.weight_scale": ("U8", (64, 4))},
        ("mxfp4", "group 32", "E8M0", 8192),
    ),
    "nf4": (
        {
            f"{MLP}.weight": ("U8", (2048, 1)),
            f"{MLP}.weight.absmax": ("F32", (64,)),
            f"{MLP}.weight.quant_map": ("F32", (16,)),
            f"{MLP}.weight.quant_state.bitsandbytes__nf4": ("U8", (80,)),
        },
        ("nf4", "group 64", "F32", 4096),
    ),
    "gptq int4": (
        {
            f"{MLP}.qweight": ("I32", (32, 128)),
            f"{MLP}.qzeros": ("I32", (2, 16)),
            f"{MLP}.scales": ("F16", (2, 128)),
            f"{MLP}.g_idx": ("I32", (256,)),
        },
        ("int4", "group 128", "F16", 256 * 128),
    ),
    "awq int4": (
        {
            f"{MLP}.qweight": ("I32", (256, 16)),
            f"{MLP}.qzeros": ("I32", (2, 16)),
            f"{MLP}.scales": ("F16", (2, 128)),
        },
        ("int4", "group 128", "F16", 256 * 128),
    ),
    "mlx 4 bit": (
        {
            f"{MLP}.weight": ("U32", (64, 16)),
            f"{MLP}.scales": ("BF16", (64, 2)),
            f"{MLP}.biases": ("BF16", (64, 2)),
        },
        ("int4", "group 64", "BF16", 64 * 128),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_told_from_the_tensors_alone(tmp_path: Path, name: str) -> None:
    tensors, (form, layout, scale_dtype, params) = LAYOUTS[name]
    found = audit(tmp_path, tensors)
    (scale,) = found["scales"]
    assert (scale["format"], scale["layout"], scale["scale_dtype"]) == (form, layout, scale_dtype)
    assert found["params"] == params
    assert found["true"] == form


def test_gpt_oss_blocks_hold_two_weights_a_byte(tmp_path: Path) -> None:
    base = "model.layers.0.mlp.experts.gate_up_proj"
    tensors = {
        f"{base}_blocks": ("U8", (4, 64, 2, 16)),
        f"{base}_scales": ("U8", (4, 64, 2)),
        f"{base}_bias": ("BF16", (4, 64)),
        f"{ATTN}.weight": ("BF16", (64, 64)),
    }
    found = audit(tmp_path, tensors, {"quantization_config": {"quant_method": "mxfp4"}})
    assert found["true"] == "bf16, experts mxfp4"
    assert found["by_kind"]["experts"]["formats"] == {"mxfp4": 4 * 64 * 64, "bf16": 256}
    assert found["is_label_true"] is True
    assert found["by_dtype"]["U8"] == {"tensors": 2, "bytes": 8704, "params": 16384, "of_scales": 512}


def test_a_label_of_fp8_over_experts_in_fp4_does_not_hold(tmp_path: Path) -> None:
    tensors = {
        f"{ATTN}.weight": ("F8_E4M3", (128, 128)),
        f"{ATTN}.scale": ("F8_E8M0", (1, 1)),
        f"{EXPERT}.weight": ("I8", (128, 64)),
        f"{EXPERT}.scale": ("F8_E8M0", (128, 4)),
        "model.embed_tokens.weight": ("BF16", (16, 128)),
    }
    found = audit(
        tmp_path, tensors, {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    )
    assert (found["label"], found["true"], found["is_label_true"]) == ("fp8", "fp8, experts fp4", False)
    assert found["by_kind"]["experts"]["params"] == 128 * 128
    assert found["bytes"] == 128 * 128 + 1 + 128 * 64 + 128 * 4 + 2 * 16 * 128


def test_a_label_of_fp8_over_bf16_tensors_does_not_hold(tmp_path: Path) -> None:
    found = audit(
        tmp_path, {f"{MLP}.weight": ("BF16", (8, 8))}, {"quantization_config": {"quant_method": "fp8"}}
    )
    assert (found["true"], found["is_label_true"]) == ("bf16", False)


def test_a_plain_label_over_fp8_tensors_does_not_hold(tmp_path: Path) -> None:
    tensors = {f"{MLP}.weight": ("F8_E4M3", (8, 8)), f"{MLP}.weight_scale": ("F32", ())}
    found = audit(tmp_path, tensors, {"torch_dtype": "bfloat16"})
    assert (found["label"], found["true"], found["is_label_true"]) == ("bf16", "fp8", False)
    assert any("claims no quantisation" in note for note in found["notes"])


def test_mlx_bits_of_single_modules_come_from_the_config(tmp_path: Path) -> None:
    tensors = {
        "model.layers.0.self_attn.q_proj.weight": ("U32", (64, 16)),
        "model.layers.0.self_attn.q_proj.scales": ("BF16", (64, 2)),
        "model.layers.0.self_attn.q_proj.biases": ("BF16", (64, 2)),
        "model.layers.0.mlp.gate.weight": ("U32", (8, 32)),
        "model.layers.0.mlp.gate.scales": ("BF16", (8, 2)),
        "model.layers.0.mlp.gate.biases": ("BF16", (8, 2)),
    }
    config = {
        "quantization": {
            "bits": 4,
            "group_size": 64,
            "model.layers.0.mlp.gate": {"bits": 8, "group_size": 64},
        }
    }
    found = audit(tmp_path, tensors, config)
    assert found["by_kind"]["router"]["formats"] == {"int8": 8 * 128}
    assert found["by_kind"]["attention"]["formats"] == {"int4": 64 * 128}
    assert found["is_label_true"] is True


def test_compressed_tensors_packs_int4_in_words(tmp_path: Path) -> None:
    tensors = {
        f"{MLP}.weight_packed": ("I32", (64, 16)),
        f"{MLP}.weight_scale": ("BF16", (64, 1)),
        f"{MLP}.weight_shape": ("I64", (2,)),
    }
    config = {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
                }
            },
            "ignore": ["lm_head"],
        }
    }
    found = audit(tmp_path, tensors, config)
    assert (found["true"], found["params"], found["is_label_true"]) == ("int4", 64 * 128, True)
    assert found["activations"] == "weight-only"


def test_shards_of_an_index_are_summed_and_missing_ones_are_said(tmp_path: Path) -> None:
    names = {
        f"model.layers.{i}.mlp.down_proj.weight": f"model-0000{i + 1}-of-00003.safetensors" for i in range(3)
    }
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 384}, "weight_map": names})
    )
    for i in range(2):
        write_safetensors(
            tmp_path / f"model-0000{i + 1}-of-00003.safetensors", {list(names)[i]: ("BF16", (8, 8))}
        )
    found = read_precision(tmp_path)
    assert (found["params"], found["bytes"]) == (128, 256)
    assert any("1 of 3 shards are missing" in note for note in found["notes"])


def test_an_index_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    write_safetensors(tmp_path / "secret.safetensors", {"a.weight": ("BF16", (2, 2))})
    index = inner / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"a.weight": "../secret.safetensors"}}))
    assert read_precision(index)["by_dtype"] == {}


def test_revision_is_the_commit_of_a_hub_snapshot(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    root = tmp_path / "models--acme--tiny"
    write_folder(
        root / "snapshots" / commit, {f"{MLP}.weight": ("BF16", (2, 2))}, {"torch_dtype": "bfloat16"}
    )
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
    assert read_precision(root / "snapshots" / commit)["revision"] == commit
    assert read_precision(root)["revision"] == commit
    assert read_precision(root)["params"] == 4
    plain = write_folder(tmp_path / "plain", {f"{MLP}.weight": ("BF16", (2, 2))})
    assert read_precision(plain)["revision"] is None


def test_draft_layers_beyond_the_model_are_not_active(tmp_path: Path) -> None:
    tensors = {f"model.layers.{i}.mlp.down_proj.weight": ("BF16", (16, 16)) for i in range(3)}
    config = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 8}
    facts = model_facts(write_folder(tmp_path / "m", tensors, config))
    assert facts is not None
    assert (facts["params_total"], facts["params_active"]) == (768, 512)


def test_experts_count_by_the_chosen_share(tmp_path: Path) -> None:
    tensors = {f"model.layers.0.mlp.experts.{i}.down_proj.weight": ("BF16", (16, 16)) for i in range(8)}
    tensors |= {f"{ATTN}.weight": ("BF16", (16, 16)), "model.embed_tokens.weight": ("BF16", (10, 16))}
    tensors |= {"lm_head.weight": ("BF16", (10, 16))}
    config = {
        "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 10, "num_local_experts": 8,
        "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
    }  # fmt: skip
    facts = model_facts(write_folder(tmp_path / "m", tensors, config))
    assert facts is not None
    assert facts["params_total"] == 8 * 256 + 256 + 320
    assert facts["params_active"] == 2 * 256 + 256 + 320
    assert facts["active_weight_bytes"] == 2 * (
        2 * 256 + 256 + 160
    )  # the untied input embedding is one row a token


@pytest.mark.parametrize(
    ("label", "tensors", "config", "expected"),
    [
        ("bf16", {f"{MLP}.weight": ("BF16", (8, 8))}, {"torch_dtype": "bfloat16"}, "bf16"),
        ("fp8", LAYOUTS["fp8 block"][0], {"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        (
            "nf4",
            LAYOUTS["nf4"][0],
            {"quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}},
            "bf16",
        ),
        (
            "gptq",
            LAYOUTS["gptq int4"][0],
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            "bf16",
        ),
    ],
)
def test_compute_precision_picks_the_peak(
    tmp_path: Path, label: str, tensors: dict[str, Any], config: dict[str, Any], expected: str
) -> None:
    facts = model_facts(write_folder(tmp_path / "m", tensors, config))
    assert facts is not None
    assert facts["compute_precision"] == expected


# Claims of configs


MOE = {
    "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100,
    "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("quantisation", "true"),
    [
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
                    }
                },
                "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
            },
            "bf16, experts int4",
            id="ignored-attention",
        ),
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "format": "nvfp4-pack-quantized",
                        "targets": ["re:.*experts.*"],
                        "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                    },
                    "group_1": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
                },
            },
            "fp8, experts nvfp4",
            id="two-groups",
        ),
        pytest.param(
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}},
                "layer_quant_config": {"*.experts.*": {"weight": {"dtype": "fp4", "group_size": 32}}},
                "exclude": ["lm_head"],
            },
            "fp8, experts mxfp4",
            id="quark-layers",
        ),
        pytest.param({"quant_method": "w4afp8"}, "fp8, experts int4", id="w4afp8"),
        pytest.param(
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "ignore": ["model.layers.*.self_attn*", "lm_head"],
            },
            "bf16, experts nvfp4",
            id="modelopt-ignore",
        ),
        pytest.param(
            {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.gate", "lm_head"]},
            "fp8",
            id="gate-kept",
        ),
        pytest.param({"quant_method": "fp8", "expert_dtype": "fp4"}, "fp8, experts fp4", id="expert-dtype"),
    ],
)
def test_a_config_alone_shows_which_kinds_it_quantises(quantisation: dict[str, Any], true: str) -> None:
    found = judge({**MOE, "quantization_config": quantisation})
    assert (found["true"], found["true_source"]) == (true, "config")
    assert found["by_kind"]["router"]["formats"].keys() == {"bf16"}
    assert found["by_kind"]["lm_head"]["formats"].keys() == {"bf16"}
    assert found["size_source"] == "config"


@pytest.mark.parametrize(
    ("config", "label", "activations"),
    [
        ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, "awq int4", "weight-only"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": -1}}, "gptq int8", "weight-only"),
        ({"quantization_config": {"load_in_8bit": True}}, "int8", "dynamic"),
        ({"quantization_config": {"quant_method": "fbgemm_fp8"}}, "fp8", None),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}}, "nvfp4", None),
        ({"quantization_config": {"quant_method": "torchao", "quant_type": "int4_weight_only"}}, "torchao int4", None),
        ({"quantization_config": {"quant_method": "hqq", "nbits": 4}}, "hqq int4", None),
        ({"text_config": {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}}, "fp8", "dynamic"),
        ({"quantization_config": {"quant_method": "never-heard-of"}}, "never-heard-of", None),
        ({"torch_dtype": "float32"}, "fp32", None),
        ({}, "not stated", None),
    ],
)  # fmt: skip
def test_a_config_states_its_label(config: dict[str, Any], label: str, activations: str | None) -> None:
    claim = read_claim(config)
    assert (claim.label, claim.activations) == (label, activations)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.layers.3.self_attn.k_proj.weight", "attention"),
        ("layers.3.attn.wkv.weight", "attention"),
        ("model.layers.3.linear_attn.in_proj_qkvz.weight", "mixer"),
        ("backbone.layers.0.mixer.in_proj.weight", "mixer"),
        ("model.layers.3.mlp.gate_proj.weight", "mlp"),
        ("model.layers.3.mlp.gate.weight", "router"),
        ("model.layers.3.mlp.gate.e_score_correction_bias", "router"),
        ("model.layers.3.mlp.router.weight", "router"),
        ("model.layers.3.block_sparse_moe.gate.weight", "router"),
        ("model.layers.3.block_sparse_moe.experts.0.w1.weight", "experts"),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", "shared_experts"),
        ("model.layers.3.mlp.shared_expert_gate.weight", "router"),
        ("model.layers.3.input_layernorm.weight", "norm"),
        ("model.layers.3.self_attn.q_norm.weight", "norm"),
        ("model.embed_tokens.weight", "embed"),
        ("transformer.wte.weight", "embed"),
        ("embed.weight", "embed"),
        ("lm_head.weight", "lm_head"),
        ("head.weight", "lm_head"),
        ("output.weight", "lm_head"),
        ("model.transformer.ff_out.weight", "lm_head"),
        ("model.transformer.blocks.0.ff_out.weight", "mlp"),
        ("model.visual.blocks.0.attn.qkv.weight", "vision"),
        ("mtp.layers.0.mlp.down_proj.weight", "draft"),
        ("blk.0.ffn_gate_exps.weight", "experts"),
        ("blk.0.ffn_gate_inp.weight", "router"),
        ("blk.0.attn_q.weight", "attention"),
        ("token_embd.weight", "embed"),
        ("h.0.attn.c_attn.weight", "attention"),
        ("gpt_neox.layers.0.mlp.dense_h_to_4h.weight", "mlp"),
    ],
)
def test_a_name_tells_the_module_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind


# Refusals and fuzz


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        ("a.safetensors", b"", "ends inside"),
        ("a.safetensors", b"\x10\x00\x00\x00\x00\x00\x00\x00{", "cut off inside its header"),
        ("a.safetensors", b"\xff" * 40, "no safetensors file"),
        ("a.safetensors", b"\x02\x00\x00\x00\x00\x00\x00\x00[]", "not a JSON object"),
        ("a.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "LFS pointer"),
        ("config.json", b"{", "not JSON"),
        ("config.json", b"[1]", "neither a config nor an index"),
        ("x.index.json", b'{"weight_map": 3}', "no weight_map"),
        ("a.gguf", b"GGUF\x03\x00\x00\x00\x01", "cut off"),
        ("a.gguf", b"GGUF\x00\x00\x00\x03", "version"),
        ("a.bin", b"\x80\x02", "pickled"),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_the_reason(
    tmp_path: Path, name: str, raw: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(RefusedCheckpoint, match=reason) as caught:
        read_precision(path)
    assert caught.value.exit_code == 2
    assert model_facts(path) is None


def test_nothing_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedCheckpoint, match="no such file"):
        read_precision(tmp_path / "none")
    with pytest.raises(RefusedCheckpoint, match="holds no checkpoint"):
        read_precision(tmp_path)
    assert model_facts("Qwen/Qwen3-8B") is None


def test_a_header_that_contradicts_itself_is_refused() -> None:
    raw = json.dumps({"a": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 31]}}).encode()
    with pytest.raises(RefusedCheckpoint, match="contradicts itself"):
        parse_header(raw)


def test_a_header_without_its_weights_is_read_and_said(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "model.safetensors", {f"{MLP}.weight": ("BF16", (8, 8))})
    found = read_precision(path)
    assert found["params"] == 64
    assert any("0 of the 128 bytes" in note for note in found["notes"])


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_QUANT_KEYS = st.sampled_from(
    ["quant_method", "bits", "group_size", "config_groups", "ignore", "modules_to_not_convert", "weight_block_size",
     "quantized_layers", "quant_algo", "load_in_4bit", "bnb_4bit_quant_type", "dynamic", "extra_config",
     "global_quant_config", "kv_cache_scheme", "quantization", "activation_scheme", "expert_dtype", "qformat_weight"]
)  # fmt: skip
_METHODS = st.sampled_from(
    [
        "fp8",
        "mxfp4",
        "gptq",
        "awq",
        "modelopt",
        "compressed-tensors",
        "bitsandbytes",
        "quark",
        "torchao",
        "NVFP4",
    ]
)


@given(st.dictionaries(_QUANT_KEYS, st.one_of(_METHODS, _JSON), max_size=5), _JSON)
@settings(max_examples=250, deadline=None)
def test_no_quantisation_config_crashes_the_reader(quantisation: dict[str, Any], dtype: Any) -> None:
    found = judge(
        {"quantization_config": quantisation, "torch_dtype": dtype, "hidden_size": 8, "num_hidden_layers": 1}
    )
    assert json.dumps(found)


_NAMES = st.sampled_from(
    [name for tensors, _ in LAYOUTS.values() for name in tensors] + ["lm_head.weight", "x"]
)
_DTYPES = st.sampled_from(
    ["F8_E4M3", "F8_E8M0", "U8", "I8", "I32", "U32", "BF16", "F32", "F4", "F6_E2M3", "ODD"]
)


@given(
    st.dictionaries(
        _NAMES,
        st.fixed_dictionaries(
            {"dtype": _DTYPES}, optional={"shape": st.lists(st.integers(0, 99), max_size=4)}
        ),
        max_size=6,
    ),
    st.one_of(st.none(), _METHODS),
)
@settings(max_examples=300, deadline=None)
def test_no_header_crashes_the_judge(header: dict[str, Any], method: str | None) -> None:
    config = {"quantization_config": {"quant_method": method}} if method else {}
    found = judge({"header": header, **config})
    assert found["params"] is None or found["params"] >= 0


@given(st.binary(max_size=200), st.sampled_from(["m.safetensors", "m.gguf", "config.json", "m.index.json"]))
@settings(max_examples=200, deadline=None)
def test_no_bytes_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, raw: bytes, name: str) -> None:
    path = tmp_path_factory.getbasetemp() / name
    refusals: list[str] = []
    whole = header_bytes({f"{MLP}.weight": ("BF16", (8, 8))})
    for content in (
        raw,
        b"GGUF\x03\x00\x00\x00" + raw,
        whole[: len(raw)] + raw,
        len(raw).to_bytes(8, "little") + raw,
    ):
        path.write_bytes(content)
        try:
            read_precision(path)
        except RefusedCheckpoint as error:
            refusals.append(error.what)
    assert all(refusals)
