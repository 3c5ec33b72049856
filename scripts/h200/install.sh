#!/usr/bin/env bash
# On the GPU machine, with every piece of stage.sh in one folder: unpacks vLLM beside its torch, and this project's
# own wheels into an environment of their own, so that neither sees the other's versions.
# usage: install.sh PIECES WHEELS ENVIRONMENT
set -euo pipefail
pieces=${1:?usage: install.sh PIECES WHEELS ENVIRONMENT} wheels=${2:?wheels} environment=${3:?environment}
site() { "$1" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }
system=$(site python3)
cat "$pieces"/vllm.xz.* | xz -dc -T0 | tar -C "$system" -xf -
for wheel in "$pieces"/deps.*/*.whl; do python3 -m zipfile -e "$wheel" "$system"; done
rm -f "$system/nvidia_cutlass_dsl_packages.pth"
# That machine's pip belongs to another Python, so wheels are unpacked, not installed.
python3 -m venv --without-pip --system-site-packages "$environment"
own=$(site "$environment/bin/python")
for wheel in "$wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$own"; done
python3 -c 'import vllm; print("vllm", vllm.__version__)'
"$environment/bin/python" -c 'import prefect, msgspec; print("prefect", prefect.__version__)'
