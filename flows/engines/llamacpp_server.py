"""The llama.cpp server as a process: `python -m flows.engines.llamacpp_server --model FILE --port N ...`.

The wheel `xllamacpp` holds llama.cpp's own C++ server but no command. This takes the flags of `llama-server` that
Weighbridge uses, by the same names, refuses all others, and waits for SIGTERM. After loading it prints one line,
`weighbridge: effective {...}`, with the settings that the server was really given.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

SPARE_ADDRESS_SPACE = (
    8 << 30
)  # shared libraries, thread stacks and malloc arenas: reserved, hardly ever touched


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line. Exits 2 with a message on what it does not know, as llama-server does."""
    parser = argparse.ArgumentParser(prog="llamacpp_server", allow_abbrev=False)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-a", "--alias")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument(
        "-c", "--ctx-size", "--ctx", type=int, default=0, help="in all; it is split over the slots"
    )
    parser.add_argument("-np", "--parallel", type=int, default=1)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--threads-http", type=int)
    parser.add_argument("-b", "--batch-size", type=int)
    parser.add_argument("-ub", "--ubatch-size", type=int)
    parser.add_argument("-n", "--n-predict", type=int)
    parser.add_argument("-ngl", "--n-gpu-layers", "--gpu-layers", type=int)
    parser.add_argument("-ts", "--tensor-split")
    parser.add_argument("-fa", "--flash-attn", choices=["on", "off", "auto"])
    parser.add_argument("-ctk", "--cache-type-k")
    parser.add_argument("-ctv", "--cache-type-v")
    parser.add_argument("--cache-prompt", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("-cram", "--cache-ram", type=int, help="MiB of host memory for idle prompts")
    parser.add_argument("-kvu", "--kv-unified", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--swa-full", action="store_true")
    parser.add_argument("--warmup", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--spec-type", help="a name of llama.cpp's, such as ngram-simple or draft-simple")
    parser.add_argument("--draft-max", "--draft", type=int)
    parser.add_argument("-md", "--model-draft")
    parser.add_argument("--chat-template")
    parser.add_argument("--jinja", action="store_true", help="always on here; taken for llama-server's sake")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("-lv", "--verbosity", type=int, default=4, help="4 prints the KV capacity")
    parser.add_argument(
        "--address-space-gib",
        type=float,
        help="what the process may map; by default the machine's memory, so that a context that cannot be held "
        "is refused by the allocator and not by the kernel's out-of-memory killer",
    )
    options = parser.parse_args(arguments)
    for name in ("ctx_size", "parallel"):
        if getattr(options, name) < (1 if name == "parallel" else 0):
            parser.error(f"argument --{name.replace('_', '-')}: must not be negative or nothing")
    return options


def memory_bytes() -> int | None:
    """Memory that this process may use: the machine's, or its cgroup's where that is less."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    return min(found) if found else None


def limit_address_space(gib: float | None) -> None:
    """Cap what may be mapped. An overcommitting kernel would grant any size and kill the process at first touch."""
    memory = memory_bytes()
    limit = int(gib * (1 << 30)) if gib else (memory + SPARE_ADDRESS_SPACE if memory else None)
    if limit is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def enum_member(enum: Any, prefix: str, name: str) -> Any:
    """llama.cpp's enum member for a flag's value. Exits 2 when it has none of this name."""
    wanted = prefix + name.upper().replace("-", "_")
    for member in enum:
        if member.name == wanted:
            return member
    known = ", ".join(member.name.removeprefix(prefix).lower() for member in enum)
    print(f"llamacpp_server: error: invalid value: {name!r} (known: {known})", file=sys.stderr)  # noqa: T201
    raise SystemExit(2)


def fill(params: Any, options: argparse.Namespace, x: Any) -> None:
    """Write the command line into llama.cpp's own parameters."""
    params.model.path = options.model
    if options.alias:
        params.model_alias = {options.alias}
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.ctx_size
    params.n_parallel = options.parallel
    params.endpoint_metrics = options.metrics
    params.verbosity = options.verbosity
    params.warmup = options.warmup
    params.cache_prompt = options.cache_prompt
    params.kv_unified = options.kv_unified
    params.swa_full = options.swa_full
    plain = {
        "threads_http": "n_threads_http", "batch_size": "n_batch", "ubatch_size": "n_ubatch", "n_predict": "n_predict",
        "n_gpu_layers": "n_gpu_layers", "cache_ram": "cache_ram_mib", "chat_template": "chat_template",
    }  # fmt: skip
    for option, name in plain.items():
        if getattr(options, option) is not None:
            setattr(params, name, getattr(options, option))
    if not options.cache_prompt:
        # Idle slots kept in host memory would serve the next prompt's prefix all the same.
        params.cache_ram_mib = 0
        params.cache_idle_slots = False
    if options.threads is not None:
        params.cpuparams.n_threads = options.threads
        params.cpuparams_batch.n_threads = options.threads
    if options.tensor_split:
        shares = [float(share) for share in options.tensor_split.split(",")]
        params.tensor_split = shares + [0.0] * (len(params.tensor_split) - len(shares))
    if options.flash_attn:
        names = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
        params.flash_attn_type = enum_member(
            x.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_", names[options.flash_attn]
        )
    for option in ("cache_type_k", "cache_type_v"):
        if getattr(options, option):
            setattr(params, option, enum_member(x.ggml_type, "GGML_TYPE_", getattr(options, option)))
    if options.spec_type:
        kind = enum_member(x.common_speculative_type, "COMMON_SPECULATIVE_TYPE_", options.spec_type)
        params.speculative.types = [kind]
    if options.draft_max is not None:
        params.speculative.draft.n_max = options.draft_max
        params.speculative.ngram_mod.n_max = options.draft_max
        for table in ("ngram_simple", "ngram_map_k", "ngram_map_k4v"):
            getattr(params.speculative, table).size_m = options.draft_max
    if options.model_draft:
        params.speculative.draft.mparams.path = options.model_draft


def effective(params: Any) -> dict[str, Any]:
    """The settings as llama.cpp holds them after loading."""
    return {
        "xllamacpp": version("xllamacpp"),
        "n_ctx": params.n_ctx,
        "n_parallel": params.n_parallel,
        "n_batch": params.n_batch,
        "n_ubatch": params.n_ubatch,
        "n_threads": params.cpuparams.n_threads,
        "cache_prompt": params.cache_prompt,
        "cache_ram_mib": params.cache_ram_mib,
        "kv_unified": params.kv_unified,
        "cache_type_k": params.cache_type_k.name.removeprefix("GGML_TYPE_").lower(),
        "cache_type_v": params.cache_type_v.name.removeprefix("GGML_TYPE_").lower(),
        "speculative": [
            kind.name.removeprefix("COMMON_SPECULATIVE_TYPE_").lower() for kind in params.speculative.types
        ],
    }


def main(arguments: list[str] | None = None) -> int:
    """Load, serve until SIGTERM or SIGINT, unload. Returns the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    # Blocked before any thread of the server exists, so that only sigwait below takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    import xllamacpp as x

    limit_address_space(options.address_space_gib)
    params = x.CommonParams()
    fill(params, options, x)
    print(f"weighbridge: llama.cpp server by xllamacpp {version('xllamacpp')}", flush=True)  # noqa: T201
    try:
        server = x.Server(params)
    except RuntimeError as error:
        print(f"llamacpp_server: error: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    print(f"weighbridge: effective {json.dumps(effective(params))}", flush=True)  # noqa: T201
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server
    return 0


if __name__ == "__main__":
    sys.exit(main())
