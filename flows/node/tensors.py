"""One tensor as a header names it, and which part of the model it belongs to."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

# Bits of one element by safetensors dtype; F4 and F6 are counted in elements, stored without padding.
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I4": 4, "U4": 4,
}  # fmt: skip

KINDS = (
    "attention", "mixer", "mlp", "experts", "shared_experts", "router", "embed", "lm_head", "norm", "vision", "draft",
    "other",
)  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """name, storage dtype, shape in stored elements and bytes; null where the source does not say.

    bits: of one weight where the container says so itself (GGUF block types), else null.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None = None
    nbytes: int | None = None
    bits: float | None = None

    @property
    def elements(self) -> int | None:
        return None if self.shape is None else math.prod(self.shape)


_LAYER = re.compile(r"(?:^|\.)(?:layers|blocks|h|layer|blk)\.(\d+)\.")
_NUMBERS = re.compile(r"\.\d+(?=\.|$)")
_VISION = re.compile(
    r"vision|visual|(^|\.)vit\.|image|img_|patch_embed|multi_modal|multimodal|mm_projector|audio|speech|(^|\.)v\.blk"
)
_DRAFT = re.compile(r"(^|\.)mtp|nextn|eagle|medusa|draft")
_ROUTER = re.compile(
    r"router|(mlp|ffn|moe|feed_forward|block_sparse_moe|mixer)\.gate(\.|$)|shared_expert_gate|ffn_gate_inp"
    r"|e_score_correction|exp_probs_b|gate\.bias|\.gate\.tid2eid"
)
_SHARED = re.compile(r"shared_?expert|shared_mlp|_shexp|\.shared\.")
_EXPERT = re.compile(r"expert|_exps")
_NORM = re.compile(r"norm|(^|\.)ln_|\.ln\d?\.|layer_?scale|_ln\.")
_HEAD = re.compile(
    r"^(.*\.)?(lm_head|embed_out|output_projection)(\.|$)|^(model\.)?(output|head)\.(weight|bias|scale)"
)
_EMBED = re.compile(
    r"embed_tokens|(^|\.)(wte|wpe)(\.|$)|tok_embeddings|word_embeddings|embed_in|token_embd|position_embeddings"
    r"|(^|\.)embed(ding)?s?\."
)
_MIXER = re.compile(
    r"linear_attn|mamba|(^|\.)mixer\.|(^|\.)ssm|ssm_|\.conv\.|conv1d|short_?conv|delta_net|a_log|dt_bias|dt_proj|x_proj"
)
_ATTENTION = re.compile(
    r"attn|attention|att_proj|(^|[._])(q|k|v|o|qkv|kv_a|kv_b|q_a|q_b)_proj|query_key_value|wq|wk|wv|wo|indexer|sinks"
    r"|\.(q|k|v|o)\.weight"
)
_MLP = re.compile(
    r"mlp|ffn|feed_forward|ff_proj|ff_out|(^|\.)(fc\d?|w\d|dense_h_to_4h|dense_4h_to_h)\b|ffn_|intermediate"
)


def kind_of(name: str, layers: int | None = None) -> str:
    """Which part of the model a tensor belongs to, by its name; one of `KINDS`.

    layers: how many the model runs; a tensor of a later layer belongs to a draft head (multi-token prediction).
    """
    lower = name.lower()
    if layers is not None and (layer := _LAYER.search(lower)) and int(layer.group(1)[:9]) >= layers:
        return "vision" if _VISION.search(lower) else "draft"
    return _kind_of_pattern(_NUMBERS.sub(".0", lower))


@lru_cache(maxsize=4096)
def _kind_of_pattern(lower: str) -> str:
    """The kind by a name whose numbers are all 0: a checkpoint has a hundred thousand names, and few patterns."""
    has_layer = _LAYER.search(lower) is not None
    if _VISION.search(lower):
        return "vision"
    if _DRAFT.search(lower):
        return "draft"
    if _ROUTER.search(lower):
        return "router"
    if _SHARED.search(lower):
        return "shared_experts"
    if _EXPERT.search(lower):
        return "experts"
    if _NORM.search(lower):
        return "norm"
    if not has_layer and (_HEAD.search(lower) or lower.endswith("transformer.ff_out.weight")):
        return "lm_head"
    if not has_layer and _EMBED.search(lower):
        return "embed"
    if _MIXER.search(lower) and "self_attn" not in lower:
        return "mixer"
    if _ATTENTION.search(lower):
        return "attention"
    if _MLP.search(lower):
        return "mlp"
    return "other"
