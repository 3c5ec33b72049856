#!/usr/bin/env bash
# Puts everything that the GPU machine needs and cannot fetch into pieces of 51 MB, as unpack.sh expects them, and the
# project itself beside them: p.00, p.01, ... and project.tar.gz. Offline.
# STAGED: what stage.sh built. WHEELS: this project's own dependencies for that machine's Python, one folder of wheels.
# GGUF, SMOLLM2_TOKENIZER: the small model and the folder with its tokenizer. QWEN_TOKENIZER: what make_tokenizer.py wrote.
set -euo pipefail
usage='usage: pack.sh STAGED WHEELS GGUF SMOLLM2_TOKENIZER QWEN_TOKENIZER OUT'
staged=${1:?$usage} wheels=${2:?$usage} gguf=${3:?$usage} smollm2=${4:?$usage} qwen=${5:?$usage} out=${6:?$usage}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/pack/vllm" "$work/pack/wheels" "$work/pack/smollm2-tokenizer" "$work/models/qwen3-8b-shape"
cp -r "$staged"/vllm.xz.* "$staged"/deps.* "$work/pack/vllm/"
cp "$wheels"/*.whl "$work/pack/wheels/"
cp "$gguf" "$work/pack/smollm2.gguf"
cp "$smollm2"/* "$work/pack/smollm2-tokenizer/"
cp "$qwen"/* "$work/models/qwen3-8b-shape/"
cp "$here/qwen3-8b-shape.config.json" "$work/models/qwen3-8b-shape/config.json"
tar -C "$work" -cJf "$work/pack/models.tar.xz" models
rm -f "$out"/p.[0-9][0-9]
tar -C "$work/pack" -cf - . | split -b 51000000 -d - "$out/p."
root=$(git -C "$here" rev-parse --show-toplevel)
git -C "$root" archive --format=tar.gz -o "$(cd "$out" && pwd)/project.tar.gz" HEAD -- . ':(exclude)tests/fixtures/h200'
du -sh "$out"/*
