"""GGUF headers: shapes and bytes of a file that a test writes, and of the small public models where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.node.checkpoint import model_facts
from flows.node.gguf import read_gguf
from flows.node.headers import RefusedCheckpoint
from flows.node.precision import read_precision

from .checkpoints import gguf_bytes

TINY: dict[str, Any] = {
    "general.architecture": "llama", "general.file_type": 15, "llama.block_count": 2, "llama.context_length": 8192,
    "llama.embedding_length": 256, "llama.feed_forward_length": 512, "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2, "llama.attention.key_length": 64, "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": [f"t{i}" for i in range(5000)], "tokenizer.ggml.add_bos_token": True,
}  # fmt: skip
Q4_K, Q6_K, F32, MXFP4 = 12, 14, 0, 39


def tensors(layers: int = 2) -> dict[str, tuple[int, tuple[int, ...]]]:
    listed: dict[str, tuple[int, tuple[int, ...]]] = {
        "token_embd.weight": (Q6_K, (256, 5000)),
        "output_norm.weight": (F32, (256,)),
    }
    for i in range(layers):
        listed |= {
            f"blk.{i}.attn_q.weight": (Q4_K, (256, 256)), f"blk.{i}.attn_k.weight": (Q4_K, (256, 128)),
            f"blk.{i}.attn_v.weight": (Q6_K, (256, 128)), f"blk.{i}.attn_output.weight": (Q4_K, (256, 256)),
            f"blk.{i}.ffn_up.weight": (Q4_K, (256, 512)), f"blk.{i}.ffn_gate.weight": (Q4_K, (256, 512)),
            f"blk.{i}.ffn_down.weight": (Q6_K, (512, 256)), f"blk.{i}.attn_norm.weight": (F32, (256,)),
        }  # fmt: skip
    return listed


def write(path: Path, metadata: dict[str, Any], listed: dict[str, tuple[int, tuple[int, ...]]]) -> Path:
    path.write_bytes(gguf_bytes(metadata, listed))
    return path


def test_shape_bytes_and_label_of_a_gguf(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny-Q4_K_M.gguf", TINY, tensors())
    facts = model_facts(path, "llamacpp")
    assert facts is not None
    q4 = 2 * (2 * 256 * 256 + 256 * 128 + 2 * 256 * 512)  # weights in Q4_K: 144 bytes for 256
    q6 = 256 * 5000 + 2 * (256 * 128 + 512 * 256)  # in Q6_K: 210 bytes for 256
    assert facts["weight_bytes"] == q4 * 144 // 256 + q6 * 210 // 256 + 3 * 256 * 4
    assert facts["params_total"] == q4 + q6 + 3 * 256
    assert facts["kv_bytes_per_token"] == 2 * 2 * 2 * 64 * 2
    assert (facts["attention_kind"], facts["vocab"], facts["is_embedding_tied"]) == ("gqa", 5000, True)
    assert facts["active_weight_bytes"] == facts["weight_bytes"]
    assert (facts["precision_label"], facts["is_precision_label_true"]) == ("q4_k_m", True)
    assert facts["compute_precision"] == "bf16"
    assert facts["max_position_embeddings"] == 8192


def test_experts_of_a_gguf_count_by_the_chosen_share(tmp_path: Path) -> None:
    metadata = TINY | {
        "general.architecture": "qwen3moe", "general.file_type": 38,
        **{key.replace("llama.", "qwen3moe."): value for key, value in TINY.items() if key.startswith("llama.")},
        "qwen3moe.expert_count": 8, "qwen3moe.expert_used_count": 2, "qwen3moe.expert_feed_forward_length": 64,
    }  # fmt: skip
    listed = tensors(1) | {
        "blk.0.ffn_up_exps.weight": (MXFP4, (256, 64, 8)),
        "blk.0.ffn_gate_inp.weight": (F32, (256, 8)),
    }
    facts = model_facts(write(tmp_path / "moe.gguf", metadata, listed))
    assert facts is not None
    assert facts["params_total"] - facts["params_active"] == 256 * 64 * 6
    assert facts["experts"] == 8
    assert "experts mxfp4" in facts["precision_true"]


def test_every_cut_of_a_gguf_header_is_refused(tmp_path: Path) -> None:
    raw = gguf_bytes(TINY | {"tokenizer.ggml.tokens": ["a", "b"]}, tensors(1))
    path = tmp_path / "cut.gguf"
    for length in range(4, len(raw), 11):
        path.write_bytes(raw[:length])
        with pytest.raises(RefusedCheckpoint):
            read_gguf(path)


def test_parts_of_a_split_gguf_are_one_model(tmp_path: Path) -> None:
    listed = tensors()
    names = list(listed)
    write(tmp_path / "m-00001-of-00002.gguf", TINY, {n: listed[n] for n in names[:5]})
    write(
        tmp_path / "m-00002-of-00002.gguf",
        {"general.architecture": "llama"},
        {n: listed[n] for n in names[5:]},
    )
    whole = write(tmp_path / "whole.gguf", TINY, listed)
    assert read_precision(tmp_path / "m-00001-of-00002.gguf")["bytes"] == read_precision(whole)["bytes"]
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    assert any("1 of 2 parts" in note for note in read_precision(tmp_path / "m-00001-of-00002.gguf")["notes"])


def test_the_small_needle_model_is_the_same_in_both_containers(shared_cases: Path) -> None:
    folder = shared_cases.parent / "models" / "needle-2.8m"
    if not folder.is_dir():
        pytest.skip("the small model does not lie beside the checkout")
    by_folder, by_gguf = model_facts(folder), model_facts(folder / "needle-2.8m-f16.gguf")
    assert by_folder is not None
    assert by_gguf is not None
    for key in (
        "params_total",
        "kv_bytes_per_token",
        "n_layers",
        "heads",
        "vocab",
        "attn_flops_per_token_per_key_full",
    ):
        assert by_folder[key] == by_gguf[key]
    assert by_folder["params_total"] == 2_807_808
    assert by_folder["weight_bytes"] == 2 * 2_807_808
