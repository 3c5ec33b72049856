#!/usr/bin/env bash
# On the GPU machine, with every piece of stage.sh in one folder: unpacks vLLM beside its torch, and this project's
# own wheels into an environment of their own, whose versions come before those that torch and vLLM see.
# usage: install.sh PIECES WHEELS ENVIRONMENT
set -euo pipefail
pieces=${1:?usage: install.sh PIECES WHEELS ENVIRONMENT} wheels=${2:?wheels} environment=${3:?environment}
site() { "$1" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }
system=$(site python3)
cat "$pieces"/vllm.xz.* | xz -dc -T0 | tar -C "$system" -xf -
for wheel in "$pieces"/deps.*/*.whl; do python3 -m zipfile -e "$wheel" "$system"; done
rm -f "$system/nvidia_cutlass_dsl_packages.pth"
# That machine's pip belongs to another Python, so wheels are unpacked, not installed.
python3 -m venv --without-pip "$environment"
own=$(site "$environment/bin/python")
# Where python3 is itself a virtual environment, --system-site-packages shows the packages of the Python below it and
# not torch's. A .pth line does: it comes after the environment's own packages, so those win.
echo "$system" > "$own/torch.pth"
for wheel in "$wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$own"; done
python3 -c 'import vllm; print("vllm", vllm.__version__)'
"$environment/bin/python" -c 'import prefect, msgspec; print("prefect", prefect.__version__)'
"$environment/bin/python" -c 'import torch; print("torch", torch.__version__)'
