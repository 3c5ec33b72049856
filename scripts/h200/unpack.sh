#!/usr/bin/env bash
# On the GPU machine: puts the pieces that pack.sh made together, makes the model folders, and lays out a copy of the
# project to run from.     usage: unpack.sh PIECES PROJECT_TAR TARGET
set -euo pipefail
pieces=${1:?usage: unpack.sh PIECES PROJECT_TAR TARGET} project=${2:?project} target=${3:?target}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$target/pack" "$target/project"
cat "$pieces"/p.* | tar -C "$target/pack" -xf -
tar -C "$target/project" -xzf "$project"
bash "$here/install.sh" "$target/pack/vllm" "$target/pack/wheels" "$target/venv"
tar -C "$target/pack" -xJf "$target/pack/models.tar.xz"
mv "$target/pack/models" "$target/project/models"
"$target/venv/bin/python" "$here/make_smollm2.py" "$target/pack/smollm2.gguf" \
    "$target/pack/smollm2-tokenizer" "$target/project/models"
