"""From a model's config to its layers: parameters, KV elements, recurrent state and attention work, layer by layer.

One dialect of keys (`_Keys`) over the many that configs use, then one `Layer` per layer, whose sums the roofline needs.
Shapes follow the public modelling code of each family; a family that is not known is read as a plain decoder, and
`Architecture.notes` says what was assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# Feed-forward blocks of two matrices (up, down); every other family has three (gate, up, down).
UNGATED_MLP = {
    "gpt2", "gpt_neox", "gpt_neo", "gptj", "gpt_bigcode", "opt", "bloom", "falcon", "phi", "mpt", "starcoder2",
    "nemotron", "nemotron_h", "codegen", "persimmon", "arcee", "apertus", "bert",
}  # fmt: skip
# Families whose config class ties input and output embeddings when the file does not say.
TIED_BY_DEFAULT = {
    "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gpt2", "cohere",
    "cohere2", "bloom", "falcon", "mpt", "opt", "gpt_bigcode", "starcoder2", "lfm2", "lfm2_moe",
}  # fmt: skip
TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "language_model_config", "llm")
LINEAR_NAMES = {"linear_attention", "linear", "gdn", "kda", "lightning", "lightning_attention"}
MAMBA_NAMES = {"mamba", "mamba2", "ssm"}
CONV_NAMES = {"conv", "short_conv"}
SLIDING_NAMES = {"sliding_attention", "local_attention", "chunked_attention", "local", "sliding", "swa"}


@dataclass
class Layer:
    """One layer. Elements and FLOPs are per token; `per_key` FLOPs are per token and per cached token attended to.

    mixer: full, sliding, sparse, linear, mamba, conv or none. kv_elements grow with the sequence; window_kv_elements
    only up to `window` tokens; state_bytes are fixed. topk: a sparse layer attends to at most so many cached tokens
    (counted after compression), after an indexer has looked at all of them.
    """

    mixer: str = "full"
    kv_elements: float = 0.0
    indexer_elements: float = 0.0
    window_kv_elements: float = 0.0
    window: int | None = None
    topk: int | None = None
    state_bytes: float = 0.0
    flops_per_key: float = 0.0
    indexer_flops_per_key: float = 0.0
    window_flops_per_key: float = 0.0
    state_flops_per_token: float = 0.0
    mixer_params: int = 0
    ffn_params: int = 0
    router_params: int = 0
    shared_params: int = 0
    expert_params: int = 0
    expert_params_active: float = 0.0
    norm_params: int = 0

    @property
    def _always(self) -> int:
        return (
            self.mixer_params + self.ffn_params + self.router_params + self.shared_params + self.norm_params
        )

    @property
    def params(self) -> int:
        return self._always + self.expert_params

    @property
    def params_active(self) -> float:
        return self._always + self.expert_params_active


@dataclass
class Architecture:
    """A decoder as its config describes it (vision towers and draft layers left out)."""

    family: str
    layers: list[Layer]
    hidden: int
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    vocab: int | None
    is_tied: bool
    is_mla: bool
    experts: int | None
    experts_per_token: int | None
    max_position_embeddings: int | None
    has_vision: bool
    draft_layers: int
    notes: list[str] = field(default_factory=list)

    @property
    def embedding_params(self) -> int:
        return (self.vocab or 0) * self.hidden

    @property
    def lm_head_params(self) -> int:
        return 0 if self.is_tied else self.embedding_params

    @property
    def params_total(self) -> int | None:
        """All parameters of the text model, the tied embedding once. Null when the vocabulary is not given."""
        if self.vocab is None:
            return None
        return sum(x.params for x in self.layers) + self.hidden + self.embedding_params + self.lm_head_params

    def params_by_kind(self) -> dict[str, int]:
        """Parameters by the module kinds of flows.node.tensors; kinds without any are left out."""
        found = dict.fromkeys(("attention", "mixer", "mlp", "experts", "shared_experts", "router", "norm"), 0)
        for x in self.layers:
            found["mixer" if x.mixer in ("linear", "mamba", "conv") else "attention"] += x.mixer_params
            found["mlp"] += x.ffn_params
            found["experts"] += x.expert_params
            found["shared_experts"] += x.shared_params
            found["router"] += x.router_params
            found["norm"] += x.norm_params
        found["norm"] += self.hidden
        found["embed"], found["lm_head"] = self.embedding_params, self.lm_head_params
        return {kind: count for kind, count in found.items() if count}

    @property
    def params_active(self) -> int | None:
        """Parameters that one token uses: all but the experts that are not chosen. Embeddings are counted in."""
        if self.params_total is None:
            return None
        idle = sum(x.expert_params - x.expert_params_active for x in self.layers)
        return round(self.params_total - idle)


class _Keys:
    """A config's values under one name each; nested text configs come first, the outer file second."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.outer = config
        self.inner = _text_config(config)

    def get(self, *names: str) -> Any:
        for source in (self.inner, self.outer):
            for name in names:
                value: Any = source
                for part in name.split("."):
                    value = value.get(part) if isinstance(value, dict) else None
                if value is not None:
                    return value
        return None

    def integer(self, *names: str) -> int | None:
        value = self.get(*names)
        if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
            value = max(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return int(value) if 0 < value < 1e15 else None

    def count(self, *names: str) -> int:
        return self.integer(*names) or 0

    def sequence(self, *names: str) -> list[Any]:
        value = self.get(*names)
        return value if isinstance(value, list) else []


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    thinker = config.get("thinker_config")
    if isinstance(thinker, dict):
        return _text_config(thinker)
    for name in TEXT_CONFIGS:
        if isinstance(inner := config.get(name), dict):
            return inner
    return config


def read_architecture(config: dict[str, Any]) -> Architecture | None:
    """The architecture of a `config.json`, or null when it does not describe a decoder (no layers, no width)."""
    keys = _Keys(config)
    hidden = keys.integer("hidden_size", "n_embd", "d_model", "dim", "embed_dim")
    count = keys.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")
    if hidden is None or count is None or count > 10_000:
        return None
    family = str(keys.get("model_type") or "unknown")
    outer = str(config.get("model_type") or family)
    heads = keys.integer("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
    kv_heads = keys.integer(
        "num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "multi_query_group_num",
        "attn_config.kv_n_heads", "num_query_groups",
    ) or (1 if keys.get("multi_query") is True else heads)  # fmt: skip
    head_dim = keys.integer("head_dim", "attention_head_dim", "kv_channels", "hidden_size_per_head") or (
        hidden // heads if heads else None
    )
    tied = keys.get("tie_word_embeddings", "weight_tying", "tie_embeddings")
    builder = _Builder(keys, family, hidden, heads or 0, kv_heads or 0, head_dim or 0, count)
    architecture = Architecture(
        family=family,
        layers=builder.layers(),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=keys.integer("vocab_size", "padded_vocab_size", "embedding_size", "n_vocab"),
        is_tied=bool(tied) if tied is not None else family in TIED_BY_DEFAULT or outer in TIED_BY_DEFAULT,
        is_mla=builder.is_mla,
        experts=builder.experts or None,
        experts_per_token=builder.chosen or None,
        max_position_embeddings=keys.integer(
            "max_position_embeddings",
            "n_positions",
            "seq_length",
            "max_sequence_length",
            "max_seq_len",
            "n_ctx",
        ),
        has_vision=any(
            name in config for name in ("vision_config", "vision_backbone", "vit_config", "visual")
        ),
        draft_layers=keys.count("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"),
        notes=builder.notes,
    )
    return architecture


class _Builder:
    """Builds the layers of one config."""

    def __init__(
        self, keys: _Keys, family: str, hidden: int, heads: int, kv_heads: int, head_dim: int, count: int
    ) -> None:
        self.keys, self.family, self.hidden, self.count = keys, family, hidden, count
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.notes: list[str] = []
        self.is_compressed = bool(
            keys.sequence("compress_ratios")
        )  # DeepSeek-V4: compressed, windowed, indexed KV
        self.is_mla = keys.integer("kv_lora_rank") is not None
        self.experts = keys.count(
            "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "ffn_config.moe_num_experts",
            "num_moe_experts", "num_routed_experts",
        )  # fmt: skip
        self.chosen = keys.count(
            "num_experts_per_tok", "n_activated_experts", "experts_per_token", "num_experts_per_token", "moe_topk",
            "moe_k", "moe_top_k", "ffn_config.moe_top_k", "top_k_experts", "num_selected_experts", "moe_router_topk",
        )  # fmt: skip
        if self.experts and not self.chosen:
            self.notes.append("the config does not say how many experts a token uses: all are counted active")
            self.chosen = self.experts
        if self.experts == 1:
            self.experts = self.chosen = 0
        self.inner = keys.count(
            "intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "inter_dim", "ffn_config.ffn_hidden_size",
            "intermediate_size_mlp", "block_ff_dim",
        )  # fmt: skip
        if not self.inner and family in UNGATED_MLP:
            self.inner = 4 * hidden
        if family == "molmo":
            self.inner //= 2  # the config gives gate and up as one
        self.expert_inner = (
            keys.count(
                "moe_intermediate_size", "moe_inter_dim", "moe_ffn_hidden_size", "expert_ffn_hidden_size"
            )
            or self.inner
        )
        self.mlp_matrices = 2 if family in UNGATED_MLP else 3
        if family == "gpt_oss":
            self.notes.append("biases of attention, router and experts are counted")

    def layers(self) -> list[Layer]:
        pattern = self.keys.get("hybrid_override_pattern")
        if isinstance(pattern, str) and pattern:
            return [self._nemotron(letter) for letter in pattern if letter in "M*-E"]
        kinds = self._mixer_kinds()
        ffns = self._ffn_kinds()
        return [
            self._layer(kind, ffn, index) for index, (kind, ffn) in enumerate(zip(kinds, ffns, strict=True))
        ]

    # Which layer is what

    def _mixer_kinds(self) -> list[str]:
        keys, count = self.keys, self.count
        types = keys.sequence("layer_types", "layers_block_type", "block_types", "layer_block_types")
        if types:
            return [_mixer_name(str(types[i % len(types)])) for i in range(count)]
        if attention := keys.sequence("attn_type_list"):  # MiniMax: 1 softmax, 0 lightning
            return ["full" if attention[i % len(attention)] else "linear" for i in range(count)]
        linear = keys.get("linear_attn_config")
        if isinstance(linear, dict) and isinstance(full := linear.get("full_attn_layers"), list):
            return ["full" if i + 1 in full else "linear" for i in range(count)]  # Kimi-Linear counts from 1
        if (interval := keys.integer("full_attention_interval")) and keys.integer("linear_num_value_heads"):
            return ["full" if (i + 1) % interval == 0 else "linear" for i in range(count)]
        if period := keys.integer("attn_layer_period"):  # Jamba
            offset = keys.count("attn_layer_offset")
            return ["full" if i % period == offset else "mamba" for i in range(count)]
        if keys.get("attn_layer_indices") is not None:  # Bamba
            full_at = set(keys.sequence("attn_layer_indices"))
            return ["full" if i in full_at else "mamba" for i in range(count)]
        if self.family in ("mamba", "mamba2", "falcon_mamba") or (
            not self.heads and keys.integer("state_size", "ssm_state_size", "d_state")
        ):
            return ["mamba"] * count
        if self.family == "falcon_h1":
            return ["parallel"] * count
        if self.is_compressed:
            return ["compressed"] * count
        return self._windowed_kinds()

    def _windowed_kinds(self) -> list[str]:
        keys, count = self.keys, self.count
        window = self._window()
        if window is None:
            return ["full"] * count
        if pattern := keys.integer("sliding_window_pattern", "_sliding_window_pattern"):
            return ["full" if (i + 1) % pattern == 0 else "sliding" for i in range(count)]
        if self.family in ("gemma3", "gemma3_text"):
            return ["full" if (i + 1) % 6 == 0 else "sliding" for i in range(count)]
        if self.family in ("gemma2", "gpt_oss"):
            return ["sliding" if i % 2 == 0 else "full" for i in range(count)]
        if self.family == "cohere2":
            return ["full" if (i + 1) % 4 == 0 else "sliding" for i in range(count)]
        if self.family.startswith("llama4"):
            without_rope = keys.sequence("no_rope_layers")
            if without_rope:
                return ["sliding" if without_rope[i % len(without_rope)] else "full" for i in range(count)]
            return ["full" if (i + 1) % 4 == 0 else "sliding" for i in range(count)]
        if (top := keys.get("max_window_layers")) is not None and isinstance(top, int):
            return [
                "sliding" if i >= top else "full" for i in range(count)
            ]  # Qwen2: the first layers are full
        return ["sliding"] * count

    def _window(self) -> int | None:
        if self.keys.get("use_sliding_window") is False:
            return None
        return self.keys.integer(
            "sliding_window", "sliding_window_size", "attention_chunk_size", "window_size"
        )

    def _ffn_kinds(self) -> list[str]:
        keys, count = self.keys, self.count
        if not self.experts:
            return ["dense"] * count
        kinds = ["moe"] * count
        for i in range(count):
            if i < keys.count("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"):
                kinds[i] = "dense"
            if (step := keys.integer("decoder_sparse_step")) and (i + 1) % step:
                kinds[i] = "dense"
            if (step := keys.integer("interleave_moe_layer_step")) and (i + 1) % step:
                kinds[i] = "dense"
            if (period := keys.integer("expert_layer_period")) and i % period != keys.count(
                "expert_layer_offset"
            ):
                kinds[i] = "dense"
            if (interval := keys.integer("moe_layer_interval")) and (i + 1) % interval:
                kinds[i] = "dense"
        for i in keys.sequence("mlp_only_layers"):
            if isinstance(i, int) and 0 <= i < count:
                kinds[i] = "dense"
        if frequency := keys.sequence("moe_layer_freq"):
            kinds = ["moe" if frequency[i % len(frequency)] else "dense" for i in range(count)]
        return kinds

    # What a layer holds

    def _layer(self, kind: str, ffn: str, index: int) -> Layer:
        layer = Layer(mixer=kind, norm_params=self._norms())
        if kind in ("full", "sliding"):
            self._attention(layer, kind)
        elif kind == "compressed":
            self._compressed(layer, index)
        elif kind == "linear":
            self._linear(layer)
        elif kind == "mamba":
            self._mamba(layer)
        elif kind == "conv":
            width = self.keys.integer("conv_L_cache", "conv_kernel") or 3
            layer.mixer_params = 4 * self.hidden**2 + width * self.hidden
            layer.state_bytes = 2.0 * self.hidden * width
        elif kind == "parallel":
            self._mamba(layer)
            self._attention(layer, "full")
        if self.inner or ffn == "moe":
            self._ffn(layer, ffn)
        return layer

    def _nemotron(self, letter: str) -> Layer:
        """Nemotron-H: every layer is one of mamba, attention, mlp or experts, with one norm."""
        layer = Layer(mixer={"M": "mamba", "*": "full"}.get(letter, "none"), norm_params=self.hidden)
        if letter == "M":
            self._mamba(layer)
        elif letter == "*":
            self._attention(layer, "full")
        else:
            self._ffn(layer, "moe" if letter == "E" else "dense")
        return layer

    def _norms(self) -> int:
        extra = (
            2
            if self.family.startswith(("gemma2", "gemma3", "gemma4", "olmo2")) and self.family != "olmo2"
            else 0
        )
        norms = (2 + extra) * self.hidden
        if self.family in ("phi", "gptj", "falcon", "cohere", "cohere2"):  # one norm before a parallel block
            norms = self.hidden
        return norms * (2 if self.family in UNGATED_MLP - {"nemotron_h", "apertus", "arcee"} else 1)

    def _attention(self, layer: Layer, kind: str) -> None:
        if self.is_mla:
            self._mla(layer)
            return
        h, heads, kv, dim = self.hidden, self.heads, self.kv_heads, self.head_dim
        gate = 2 if self.keys.get("attn_output_gate") is True or self.family == "qwen3_next" else 1
        params = h * heads * dim * gate + 2 * h * kv * dim + heads * dim * h
        bias_out = False
        if self.keys.get("attention_bias") is True or self.family in (
            "gpt_oss",
            "gpt2",
            "gpt_neox",
            "starcoder2",
        ):
            params += (heads + 2 * kv) * dim
            bias_out = self.family not in ("qwen2_moe", "glm4_moe", "glm", "glm4")
        elif (
            self.family in ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl")
            or self.keys.get("qkv_bias") is True
        ):
            params += (heads + 2 * kv) * dim
        params += h if bias_out else 0
        params += heads if self.family == "gpt_oss" else 0  # attention sinks
        has_qk_norm = (
            self.family.startswith(("qwen3", "gemma3", "gemma4")) or self.keys.get("use_qk_norm") is True
        )
        params += 2 * dim if has_qk_norm else 0
        layer.mixer_params += params
        elements, flops = 2.0 * kv * dim, 4.0 * heads * dim
        window = self._window()
        if kind == "sliding" and window is not None:
            layer.window, layer.window_kv_elements, layer.window_flops_per_key = window, elements, flops
        else:
            layer.kv_elements, layer.flops_per_key = elements, flops
        self._index(layer)

    def _mla(self, layer: Layer) -> None:
        """Multi-head latent attention: one latent and one rotary key per token are cached, for all heads."""
        h, heads = self.hidden, self.heads
        rank = self.keys.count("kv_lora_rank")
        rope = self.keys.count("qk_rope_head_dim")
        nope = self.keys.integer("qk_nope_head_dim") or self.head_dim
        value = self.keys.integer("v_head_dim") or nope
        query_rank = self.keys.integer("q_lora_rank")
        if query_rank:
            params = h * query_rank + query_rank + query_rank * heads * (nope + rope)
        else:
            params = h * heads * (nope + rope)
        params += h * (rank + rope) + rank + rank * heads * (nope + value) + heads * value * h
        layer.mixer_params += params
        layer.kv_elements = rank + rope
        layer.flops_per_key = 2.0 * heads * (nope + rope) + 2.0 * heads * value
        self._index(layer)

    def _index(self, layer: Layer) -> None:
        """DeepSeek sparse attention: an indexer looks at every key, the layer itself at `topk` of them."""
        topk = self.keys.integer("index_topk")
        if topk is None:
            return
        heads, dim = self.keys.count("index_n_heads"), self.keys.count("index_head_dim")
        rank = self.keys.integer("q_lora_rank") or self.hidden
        layer.mixer, layer.topk = "sparse", topk
        layer.indexer_elements = dim
        layer.indexer_flops_per_key = 2.0 * heads * dim
        layer.mixer_params += rank * heads * dim + self.hidden * (dim + heads) + 2 * dim

    def _compressed(self, layer: Layer, index: int) -> None:
        """DeepSeek-V4: a window of raw keys and, by layer, keys compressed 4 (indexed) or 128 times."""
        h, heads, dim = self.hidden, self.heads, self.head_dim
        ratios = self.keys.sequence("compress_ratios")
        ratio = ratios[index] if index < len(ratios) and isinstance(ratios[index], int) else 0
        query_rank = self.keys.integer("q_lora_rank") or h
        groups, out_rank = self.keys.integer("o_groups") or 1, self.keys.integer("o_lora_rank")
        params = h * query_rank + query_rank * heads * dim + h * dim
        params += heads * dim * out_rank + groups * out_rank * h if out_rank else heads * dim * h
        layer.window = self._window() or 128
        layer.window_kv_elements, layer.window_flops_per_key = float(dim), 4.0 * heads * dim
        if ratio > 0:
            overlap = 2 if ratio == 4 else 1
            params += 2 * h * dim * overlap + ratio * dim * overlap
            layer.kv_elements = dim / ratio
            layer.flops_per_key = 4.0 * heads * dim / ratio
        if ratio == 4 and (topk := self.keys.integer("index_topk")):
            index_heads, index_dim = self.keys.count("index_n_heads"), self.keys.count("index_head_dim")
            params += query_rank * index_heads * index_dim + h * index_heads + 4 * h * index_dim
            layer.mixer, layer.topk = "sparse", topk * ratio
            layer.indexer_elements = index_dim / ratio
            layer.indexer_flops_per_key = 2.0 * index_heads * index_dim / ratio
        else:
            layer.mixer = "full" if ratio else "sliding"
        layer.mixer_params += params
        note = "compressed attention: parameters of attention are close, not exact"
        if note not in self.notes:
            self.notes.append(note)

    def _linear(self, layer: Layer) -> None:
        h, keys = self.hidden, self.keys
        values = keys.integer("linear_num_value_heads")
        if values:  # gated delta net (Qwen3-Next, Qwen3.5)
            key_heads = keys.integer("linear_num_key_heads") or values
            key_dim = keys.integer("linear_key_head_dim") or self.head_dim
            value_dim = keys.integer("linear_value_head_dim") or key_dim
            width = keys.integer("linear_conv_kernel_dim") or 4
            qk, v = key_heads * key_dim, values * value_dim
            mixed = 2 * qk + v
            layer.mixer_params = h * (mixed + v + 2 * values) + mixed * width + 2 * values + value_dim + v * h
            state = values * key_dim * value_dim
            layer.state_bytes = 2.0 * mixed * (width - 1) + self._state_element_bytes(4.0) * state
            layer.state_flops_per_token = 8.0 * state  # decay, two products with the key, one with the query
            return
        config = keys.get("linear_attn_config")
        if isinstance(config, dict):  # Kimi delta attention
            heads, dim = (
                int(config.get("num_heads") or self.heads),
                int(config.get("head_dim") or self.head_dim),
            )
            width = int(config.get("short_conv_kernel_size") or 4)
            wide = heads * dim
            layer.mixer_params = (
                4 * h * wide + 3 * width * wide + 2 * (h * dim + dim * wide) + h * heads + 2 * wide
            )
            layer.state_bytes = (
                2.0 * 3 * wide * (width - 1) + self._state_element_bytes(4.0) * heads * dim * dim
            )
            layer.state_flops_per_token = 8.0 * heads * dim * dim
            return
        heads, dim = self.heads, self.head_dim  # lightning attention: query, key, value, output, gate
        layer.mixer_params = 5 * h * heads * dim
        layer.state_bytes = self._state_element_bytes(4.0) * heads * dim * dim
        layer.state_flops_per_token = 4.0 * heads * dim * dim

    def _mamba(self, layer: Layer) -> None:
        h, keys = self.hidden, self.keys
        state = keys.integer("mamba_d_state", "ssm_state_size", "state_size", "d_state") or 16
        width = keys.integer("mamba_d_conv", "conv_kernel", "d_conv") or 4
        heads = keys.integer("mamba_n_heads", "mamba_num_heads", "n_mamba_heads") or (
            keys.integer("num_heads") if self.family == "mamba2" else None
        )
        if heads:  # Mamba-2
            dim = keys.integer("mamba_d_head", "mamba_head_dim", "mamba_headdim") or (
                keys.integer("head_dim") if self.family == "mamba2" else None
            )
            inner = keys.integer("mamba_d_ssm") or (heads * dim if dim else 2 * h)
            groups = keys.integer("mamba_n_groups", "n_groups", "mamba_ngroups") or 1
            mixed = inner + 2 * groups * state
            layer.mixer_params += (
                h * (inner + mixed + heads) + mixed * (width + 1) + 3 * heads + inner + inner * h
            )
        else:  # Mamba-1
            inner = keys.integer("mamba_expand", "expand") or 2
            inner = keys.integer("intermediate_size") or inner * h if self.family == "mamba" else inner * h
            rank = keys.integer("mamba_dt_rank", "time_step_rank") or -(-h // 16)
            mixed = inner
            layer.mixer_params += (
                h * 2 * inner + inner * (width + 1) + inner * (rank + 2 * state) + rank * inner + inner
            )
            layer.mixer_params += inner * state + inner + inner * h
            if self.family == "jamba":
                layer.mixer_params += rank + 2 * state  # norms of dt, B and C
        layer.state_bytes = 2.0 * mixed * (width - 1) + self._state_element_bytes(2.0) * inner * state
        layer.state_flops_per_token = 6.0 * inner * state  # decay, outer product, readout

    def _state_element_bytes(self, default: float) -> float:
        said = str(self.keys.get("mamba_ssm_dtype", "ssm_cache_dtype", "mamba_ssm_cache_dtype") or "")
        return {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}.get(said, default)

    def _ffn(self, layer: Layer, kind: str) -> None:
        h, matrices = self.hidden, self.mlp_matrices
        if kind == "dense":
            inner = self.inner
            if self.family.startswith("llama4"):
                inner = self.keys.integer("intermediate_size_mlp") or inner
            if self.family == "lfm2" and self.keys.get("block_auto_adjust_ff_dim") is True:
                inner = _rounded_lfm2(inner, self.keys)
            layer.ffn_params = matrices * h * inner
            if self.family in UNGATED_MLP - {
                "falcon",
                "nemotron",
                "nemotron_h",
                "apertus",
                "arcee",
                "mpt",
                "persimmon",
            }:
                layer.ffn_params += inner + h  # biases
            return
        one = matrices * h * self.expert_inner
        if self.family == "gpt_oss":
            one += 2 * self.expert_inner + h
        layer.expert_params = self.experts * one
        layer.expert_params_active = self.chosen * one
        router = h * self.experts + (
            self.experts if self.family in ("gpt_oss", "deepseek_v3", "glm4_moe") else 0
        )
        shared = self.keys.integer(
            "shared_expert_intermediate_size",
            "shared_intermediate_size",
            "moe_shared_expert_intermediate_size",
        )
        if shared is None:
            counted = self.keys.count(
                "n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"
            )
            if self.family.startswith("llama4"):
                counted = 1
            shared = counted * self.expert_inner
        gate = h if self.family.startswith(("qwen2_moe", "qwen3_next", "qwen3_5")) and shared else 0
        layer.router_params = router + gate
        layer.shared_params = matrices * h * shared


def _rounded_lfm2(inner: int, keys: _Keys) -> int:
    inner = int(2 * inner / 3)
    multiplier = keys.get("block_ffn_dim_multiplier")
    if isinstance(multiplier, (int, float)):
        inner = int(multiplier * inner)
    step = keys.integer("block_multiple_of") or 256
    return step * -(-inner // step)


def _mixer_name(name: str) -> str:
    name = name.lower()
    if name in SLIDING_NAMES:
        return "sliding"
    if name in LINEAR_NAMES:
        return "linear"
    if name in MAMBA_NAMES:
        return "mamba"
    if name in CONV_NAMES:
        return "conv"
    if name in ("hybrid",):  # Zamba2, Falcon-H1 style: both in one layer
        return "parallel"
    return "full"


def attention_kind(architecture: Architecture) -> str:
    """mla, hybrid, sliding, sparse, mqa, gqa, dense (one key head per query head) or none."""
    mixers = {layer.mixer for layer in architecture.layers}
    if mixers & {"linear", "mamba", "conv", "parallel"}:
        return (
            "hybrid"
            if any(x.flops_per_key or x.window_flops_per_key for x in architecture.layers)
            else "none"
        )
    if "sparse" in mixers:
        return "sparse"
    if architecture.is_mla:
        return "mla"
    if "sliding" in mixers:
        return "sliding"
    if not architecture.heads:
        return "none"
    if architecture.kv_heads == architecture.heads:
        return "dense"
    return "mqa" if architecture.kv_heads == 1 else "gqa"


def widest_window(layers: Sequence[Layer]) -> int | None:
    """The window of the windowed layers, in tokens; the widest where they differ."""
    return max((layer.window for layer in layers if layer.window), default=None)
