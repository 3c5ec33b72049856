"""Turns the GGUF of SmolLM2-135M into safetensors for vLLM: one folder in BF16, one in FP8.

    python make_smollm2.py SmolLM2.gguf TOKENIZER_FOLDER OUT     writes OUT/smollm2-135m and OUT/smollm2-135m-fp8

Weights are dequantised from Q4_1, so the BF16 folder holds what the GGUF holds, in wider storage. The FP8 folder
stores every linear layer as F8_E4M3 with one scale a tensor (`weight_scale`), dynamic activations, as compressed by
vLLM's own `fp8` method; embeddings and norms stay BF16. Needs gguf, numpy, torch and safetensors.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file

NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
E4M3_MAX = 448.0


def field(reader: GGUFReader, key: str) -> Any:
    """One metadata value."""
    return reader.fields[key].contents()


def unpermute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the rotary reordering that llama.cpp's converter applies to query and key rows."""
    rows = weight.shape[0] // heads
    return weight.reshape(heads, rows // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Weights by their Hugging Face names, in float32, and the model's config."""
    reader = GGUFReader(path)
    heads, kv_heads = (int(field(reader, f"llama.attention.head_count{end}")) for end in ("", "_kv"))
    weights: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        value = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()
        value = value.reshape(tuple(reversed(tensor.shape.tolist())))
        parts = tensor.name.split(".")
        if parts[0] == "blk":
            if parts[2] in ("attn_q", "attn_k"):
                value = unpermute(value, heads if parts[2] == "attn_q" else kv_heads)
            weights[f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight"] = value
        elif parts[0] == "token_embd":
            weights["model.embed_tokens.weight"] = value
        elif parts[0] == "output_norm":
            weights["model.norm.weight"] = value
        elif parts[0] == "output":
            weights["lm_head.weight"] = value
    hidden = int(field(reader, "llama.embedding_length"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "head_dim": hidden // heads,
        "intermediate_size": int(field(reader, "llama.feed_forward_length")),
        "num_hidden_layers": int(field(reader, "llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": int(field(reader, "llama.context_length")),
        "rms_norm_eps": float(field(reader, "llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": float(field(reader, "llama.rope.freq_base")),
        "vocab_size": weights["model.embed_tokens.weight"].shape[0],
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return weights, config


def to_fp8(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Linear layers as F8_E4M3 with a scale a tensor; the rest BF16."""
    stored = {}
    for name, value in weights.items():
        if ".layers." in name and "norm" not in name:
            scale = value.abs().max() / E4M3_MAX
            stored[name] = (value / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
            stored[name + "_scale"] = scale.reshape(1).float()
        else:
            stored[name] = value.bfloat16()
    return stored


def write(
    folder: Path, weights: dict[str, torch.Tensor], config: dict[str, Any], tokenizer_folder: Path
) -> None:
    """A model folder: config, weights, and the tokenizer's files beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in tokenizer_folder.iterdir():
        shutil.copy(path, folder / path.name)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(
        {name: value.contiguous() for name, value in weights.items()},
        str(folder / "model.safetensors"),
        metadata={"format": "pt"},
    )


def main() -> None:
    """Write both folders."""
    source, tokenizer_folder, out = (Path(argument) for argument in sys.argv[1:4])
    weights, config = read(source)
    bf16 = {name: value.bfloat16() for name, value in weights.items()}
    write(out / "smollm2-135m", bf16, config, tokenizer_folder)
    quantized = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    write(
        out / "smollm2-135m-fp8",
        to_fp8(weights),
        {**config, "quantization_config": quantized},
        tokenizer_folder,
    )


if __name__ == "__main__":
    main()
