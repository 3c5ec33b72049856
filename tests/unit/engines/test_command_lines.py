"""A recipe's fields as each engine's command line; what an engine cannot do is refused, not dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import BadInput
from flows.engines import layout
from flows.engines.external import External
from flows.engines.llamacpp import LlamaCpp
from flows.engines.registry import ENGINES, get_engine
from flows.engines.sglang import Sglang
from flows.engines.transformers import Transformers
from flows.engines.vllm import Vllm
from flows.recipe import PrefillDecodeSplit, Recipe, Speculation

FOLDER = Path("unused")


def recipe(engine: str, **fields: Any) -> Recipe:
    return Recipe(**{"name": "r", "engine": engine, "model": "org/model", **fields})


def option(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


FULL = dict(
    context_tokens=8192, max_running_requests=64, tensor_parallel=4, data_parallel=2, expert_parallel=8,
    memory_fraction=0.85, quantization="fp8", kv_cache_dtype="fp8", prefix_caching=False, cuda_graphs=False,
    kv_offload_gb=40.0, gpu_ids=[0, 1, 2, 3, 4, 5, 6, 7], gpus=8, args=["--seed", "7"],
    speculation=Speculation(method="eagle3", draft_tokens=4, draft_model="org/draft"),
)  # fmt: skip


def test_vllm_gets_every_field() -> None:
    spec = Vllm().processes(recipe("vllm", launcher=["vllm", "serve"], **FULL), FOLDER)[0]
    argv = spec.argv
    assert argv[:3] == ["vllm", "serve", "org/model"]
    expected = {
        "--served-model-name": "model", "--max-model-len": "8192", "--max-num-seqs": "64", "--tensor-parallel-size": "4",
        "--data-parallel-size": "2", "--gpu-memory-utilization": "0.85", "--quantization": "fp8",
        "--kv-cache-dtype": "fp8", "--kv-offloading-size": "40", "--seed": "7", "--host": "127.0.0.1",
    }  # fmt: skip
    assert {flag: option(argv, flag) for flag in expected} == expected
    assert {"--enable-expert-parallel", "--no-enable-prefix-caching", "--enforce-eager"} <= set(argv)
    assert json.loads(option(argv, "--speculative-config")) == {
        "method": "eagle3", "num_speculative_tokens": 4, "model": "org/draft",
    }  # fmt: skip
    assert spec.gpu_ids == [0, 1, 2, 3, 4, 5, 6, 7]
    assert option(argv, "--port") == str(spec.port)


def test_a_setting_that_is_left_out_leaves_the_engine_its_default() -> None:
    argv = Vllm().processes(recipe("vllm", launcher=["vllm", "serve"]), FOLDER)[0].argv
    flags = [word for word in argv if word.startswith("--")]
    assert flags == ["--host", "--port", "--served-model-name"]


def test_the_older_module_gets_its_model_by_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHBRIDGE_VLLM_PYTHON", "/opt/vllm/bin/python")
    argv = Vllm().processes(recipe("vllm"), FOLDER)[0].argv
    assert argv[:5] == [
        "/opt/vllm/bin/python",
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        "org/model",
    ]


def test_replicas_share_the_gpus_and_have_ports_of_their_own() -> None:
    specs = Vllm().processes(recipe("vllm", replicas=4, tensor_parallel=2, gpu_ids=list(range(8))), FOLDER)
    assert [spec.gpu_ids for spec in specs] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert len({spec.port for spec in specs}) == 4
    assert {spec.role for spec in specs} == {"replica"}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_split_is_two_servers_and_a_router(engine: str) -> None:
    split = PrefillDecodeSplit(prefill_gpus=[0], decode_gpus=[1])
    specs = get_engine(engine).processes(recipe(engine, prefill_decode=split), FOLDER)
    assert [(spec.role, spec.gpu_ids) for spec in specs] == [
        ("prefill", [0]),
        ("decode", [1]),
        ("router", None),
    ]
    router = specs[2].argv
    assert option(router, "--dialect") == engine
    assert option(router, "--prefill") == f"http://127.0.0.1:{specs[0].port}"
    if engine == "vllm":
        assert json.loads(option(specs[0].argv, "--kv-transfer-config"))["kv_connector"] == "NixlConnector"
        ports = {spec.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] for spec in specs[:2]}
        assert len(ports) == 2
    else:
        assert option(specs[0].argv, "--disaggregation-mode") == "prefill"
        assert option(specs[0].argv, "--disaggregation-bootstrap-port") == option(router, "--bootstrap-port")


def test_sglang_gets_every_field() -> None:
    argv = Sglang().processes(recipe("sglang", **FULL), FOLDER)[0].argv
    expected = {
        "--model-path": "org/model", "--context-length": "8192", "--max-running-requests": "64", "--tp-size": "4",
        "--dp-size": "2", "--ep-size": "8", "--mem-fraction-static": "0.85", "--quantization": "fp8",
        "--kv-cache-dtype": "fp8", "--hicache-size": "40", "--speculative-algorithm": "EAGLE3",
        "--speculative-num-steps": "4", "--speculative-num-draft-tokens": "5", "--speculative-eagle-topk": "1",
        "--speculative-draft-model-path": "org/draft", "--seed": "7",
    }  # fmt: skip
    assert {flag: option(argv, flag) for flag in expected} == expected
    assert {
        "--disable-radix-cache",
        "--disable-cuda-graph",
        "--enable-metrics",
        "--enable-cache-report",
    } <= set(argv)


def test_llama_cpp_splits_its_context_over_the_slots() -> None:
    fields = dict(context_tokens=2048, slots=4, prefix_caching=False, kv_cache_dtype="q8_0", gpus=1)
    argv = LlamaCpp().processes(recipe("llamacpp", model="some.gguf", **fields), FOLDER)[0].argv
    expected = {
        "--model": "some.gguf", "--alias": "some", "--ctx-size": "8192", "--parallel": "4", "--cache-type-k": "q8_0",
        "--cache-type-v": "q8_0", "--n-gpu-layers": "999",
    }  # fmt: skip
    assert {flag: option(argv, flag) for flag in expected} == expected
    assert {"--no-cache-prompt", "--metrics"} <= set(argv)


def test_llama_cpp_replicas_share_the_gpus_too() -> None:
    specs = LlamaCpp().processes(recipe("llamacpp", model="x.gguf", replicas=2, gpu_ids=[4, 5, 6, 7]), FOLDER)
    assert [spec.gpu_ids for spec in specs] == [[4, 5], [6, 7]]


def test_transformers_names_its_model_by_place_and_under_its_own_name() -> None:
    engine = Transformers()
    chosen = recipe("transformers", slots=4, launcher=["transformers", "serve"])
    argv = engine.processes(chosen, FOLDER)[0].argv
    assert argv[:3] == ["transformers", "serve", "org/model"]
    assert "--continuous-batching" in argv
    assert engine.served_model(chosen) == "org/model"


def test_the_compile_cache_is_a_folder_or_off() -> None:
    kept = Vllm().processes(recipe("vllm", compile_cache="/var/cache/w"), FOLDER)[0].env
    assert kept["VLLM_CACHE_ROOT"] == "/var/cache/w/vllm"
    cold = Vllm().processes(recipe("vllm", compile_cache="off"), FOLDER)[0].env
    assert cold["VLLM_DISABLE_COMPILE_CACHE"] == "1"


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("llamacpp", {"data_parallel": 2}, "data_parallel"),
    ("llamacpp", {"prefill_decode": PrefillDecodeSplit(prefill_gpus=[0], decode_gpus=[1])}, "prefill"),
    ("llamacpp", {"quantization": "fp8"}, "GGUF"),
    ("llamacpp", {"kv_offload_gb": 4.0}, "offload"),
    ("vllm", {"expert_parallel": 3, "tensor_parallel": 2}, "experts"),
    ("vllm", {"gpu_ids": [0, 1, 2], "tensor_parallel": 2}, "do not fit"),
    ("vllm", {"gpu_ids": [0, 0], "tensor_parallel": 2}, "twice"),
    ("vllm", {"prefill_decode": PrefillDecodeSplit(prefill_gpus=[0], decode_gpus=[1], transfer="mooncake")}, "nixl"),
    ("vllm", {"prefill_decode": PrefillDecodeSplit(prefill_gpus=[0, 1], decode_gpus=[2])}, "prefill side"),
    ("sglang", {"prefill_decode": PrefillDecodeSplit(prefill_gpus=[0], decode_gpus=[1]), "replicas": 2}, "replicas"),
    ("transformers", {"tensor_parallel": 2}, "tensor_parallel"),
    ("transformers", {"prefix_caching": True}, "prefix_caching"),
    ("transformers", {"context_tokens": 100}, "context_tokens"),
    ("transformers", {"served_name": "other"}, "its own path"),
    ("external", {"url": "ftp://x"}, "HTTP address"),
    ("external", {"url": "http://user:pass@host"}, "written to raw"),
    ("external", {"url": "http://host", "args": ["--x"]}, "args"),
    ("external", {"url": "http://host", "api_key_env": "NO_SUCH_VARIABLE_HERE"}, "is not set"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "fields", "words"), REFUSED)
def test_what_an_engine_cannot_express_is_refused(engine: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        get_engine(engine).processes(recipe(engine, **fields), FOLDER)


def test_an_external_url_loses_its_version_and_its_key_stays_in_the_header(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_KEY", "k-123")
    chosen = recipe("external", url="http://host:8000/v1/", api_key_env="SOME_KEY")
    engine = External()
    assert engine.processes(chosen, FOLDER) == []
    assert engine.endpoint(chosen) == "http://host:8000"
    assert layout.key_headers(chosen) == {"Authorization": "Bearer k-123"}
    assert engine.served_model(chosen) == "org/model"
    assert "k-123" not in repr(chosen.settings())


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    assert set(ENGINES) == {"llamacpp", "vllm", "sglang", "transformers", "external", "reference"}
    with pytest.raises(BadInput, match="no engine 'tgi'"):
        get_engine("tgi")
