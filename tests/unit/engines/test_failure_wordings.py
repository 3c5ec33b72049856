"""One line each, as the engines word their failures over the versions, with the class that it shows."""

from __future__ import annotations

import pytest

from contracts.records import FailureClass
from flows.engines.failures import PRECEDENCE, RULES
from flows.engines.logs import read_lines, uncovered_rules

WORDINGS: list[tuple[FailureClass, str]] = [
    # vLLM
    ("bad_argument", "vllm: error: unrecognized arguments: --max-modle-len 100"),
    ("bad_argument", "api_server.py: error: argument --tensor-parallel-size/-tp: invalid int value: 'two'"),
    ("bad_argument", "api_server.py: error: argument --dtype: invalid choice: 'fp7' (choose from 'auto', 'half')"),
    ("bad_argument", "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'max_modle_len'"),
    ("model_not_found", "OSError: nosuch/model is not a local folder and is not a valid model identifier listed on 'https://hub.example/models'"),
    ("model_not_found", "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1)"),
    ("model_not_found", "huggingface_hub.errors.GatedRepoError: 403 Client Error."),
    ("model_not_found", "OSError: You are trying to access a gated repo."),
    ("model_not_found", "OSError: /models/x does not appear to have a file named config.json. Checkout the hub."),
    ("model_not_found", "  Value error, Invalid repository ID or local directory specified: '/models/nope'."),
    ("model_not_found", "RuntimeError: Cannot find any model weights with `/models/empty`"),
    ("model_not_found", "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision on the local disk"),
    ("unsupported_arch", "ValueError: Model architectures ['FooForCausalLM'] are not supported for now. Supported architectures: ['Llama']"),
    ("unsupported_arch", "  Value error, Model architectures ['FooForCausalLM'] failed to be inspected. Please check the logs for more details."),
    ("unsupported_arch", "ValueError: The checkpoint you are trying to load has model type `qwen9` but Transformers does not recognize this architecture."),
    ("unsupported_arch", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("unsupported_arch", "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5."),
    ("quant_unsupported", "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current capability: 80."),
    ("quant_unsupported", "ValueError: Unknown quantization method: foo. Must be one of ['awq', 'fp8']."),
    ("quant_unsupported", "ValueError: Quantization method specified in the model config (awq) does not match the quantization method specified in the `quantization` argument (fp8)."),
    ("quant_unsupported", "ValueError: The input size is not aligned: 4304 is not divisible by weight quantization block_n = 128."),
    ("quant_unsupported", "ValueError: type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')"),
    ("tp_not_divisible", "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8)."),
    ("tp_not_divisible", "AssertionError: 151936 is not divisible by 7"),
    ("max_model_len_rejected", "ValueError: User-specified max_model_len (40960) is greater than the derived max_model_len (max_position_embeddings=32768 or model_max_length=None in model's config.json)."),
    ("max_model_len_rejected", "ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (8192). This effectively limits the maximum sequence length"),
    ("kv_too_small", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."),
    ("kv_too_small", "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (63824). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`"),
    ("kv_too_small", "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.28 GiB)."),
    ("device_oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB. GPU 0 has a total capacity of 23.69 GiB"),
    ("device_oom", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB."),
    ("device_oom", "ValueError: Free memory on device (3.25/23.69 GiB) on startup is less than desired GPU memory utilization (0.9, 21.32 GiB)."),
    ("device_oom", "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB)."),
    ("device_oom", "RuntimeError: CUDA error: out of memory"),
    ("host_oom", "RuntimeError: [enforce fail at alloc_cpu.cpp:114] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 90177536 bytes. Error code 12 (Cannot allocate memory)"),
    ("host_oom", "OSError: [Errno 12] Cannot allocate memory"),
    ("host_oom", "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("host_oom", "[ 1234.5] Out of memory: Killed process 4242 (python3) total-vm:99999999kB, anon-rss:64000000kB"),
    ("host_oom", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
    ("host_oom", "ERROR: Unexpected bus error encountered in worker. Bus error (core dumped)"),
    ("host_oom", "container exited with code 137"),
    ("graph_capture_failed", "RuntimeError: CUDA error: operation not permitted when stream is capturing"),
    ("graph_capture_failed", "RuntimeError: CUDA error: operation failed due to a previous error during capture"),
    ("cuda_illegal_memory_access", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    ("cuda_illegal_memory_access", "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered"),
    ("cuda_illegal_memory_access", "RuntimeError: CUDA error: device-side assert triggered"),
    ("cuda_illegal_memory_access", "Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f00. Reason: Unknown."),
    ("comm_hang", "[rank0]:[E321 02:07:08.40 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."),
    ("comm_hang", "TimeoutError: RPC call to sample_tokens timed out."),
    ("comm_hang", "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."),
    ("peer_lost", "RuntimeError: NCCL error: remote process exited or there was a network error"),
    ("peer_lost", "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:21345"),
    ("peer_lost", "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task."),
    ("port_in_use", "OSError: [Errno 98] Address already in use"),
    ("port_in_use", "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"),
    ("dependency_missing", "ModuleNotFoundError: No module named 'vllm'"),
    ("dependency_missing", "/usr/bin/python3: No module named vllm"),
    ("dependency_missing", "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"),
    ("dependency_missing", "bash: vllm: command not found"),
    ("dependency_missing", "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`"),
    ("died_silently", "(EngineCore pid=1) ERROR 12-01 00:37:44 [multiproc_executor.py:315] Worker proc VllmWorker-1 died unexpectedly, shutting down executor."),
    ("died_silently", "Segmentation fault (core dumped)"),
    # SGLang
    ("bad_argument", "launch_server.py: error: unrecognized arguments: --contxt-length 4096"),
    ("model_not_found", "ValueError: Unrecognized model: OSError: nosuch is not a local folder and is not a valid model identifier"),
    ("unsupported_arch", "ValueError: FooForCausalLM has no SGLang implementation and the Transformers implementation is not compatible with SGLang."),
    ("unsupported_arch", "ValueError: Unsupported architectures: FooForCausalLM. Supported list: Model architectures ['Foo'] are not supported"),
    ("max_model_len_rejected", "ValueError: User-specified context_length (65536) is greater than the derived context_length (32768). This may lead to incorrect model outputs."),
    ("kv_too_small", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    ("kv_too_small", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.2"),
    ("device_oom", "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 20.00 MiB."),
    ("graph_capture_failed", "Exception: Capture cuda graph failed: RuntimeError: BatchDecode failed with error"),
    ("graph_capture_failed", "Exception: Capture CUDA graph failed: at 47:12: unsupported"),
    ("watchdog_timeout", "[2025-03-09 00:57:15 TP4] Watchdog timeout (self.watchdog_timeout=300)"),
    ("watchdog_timeout", "[2026-03-09 00:57:15 TP4] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
    ("state_pool_exhausted", "AssertionError: Not enough space for mamba cache, try to increase --mamba-full-memory-ratio or --max-mamba-cache-size."),
    ("state_pool_exhausted", "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`."),
    ("state_pool_exhausted", "RuntimeError: Prefill out of memory. Try to lower your batch size."),
    ("port_in_use", "OSError: Port 30000 is already in use. Please choose another port."),
    ("died_silently", "[2025-12-16 14:27:08] Rank 0 scheduler is dead. Please check if there are relevant logs."),
    # llama.cpp
    ("bad_argument", "error: unknown argument: --ctx-sise"),
    ("bad_argument", "error: invalid argument: --foo"),
    ("bad_argument", 'error while handling argument "-c": stoi'),
    ("model_not_found", "gguf_init_from_file: failed to open GGUF file 'x.gguf' (No such file or directory)"),
    ("model_not_found", "llama_model_load: error loading model: llama_model_loader: failed to load model from x.gguf"),
    ("model_not_found", "gguf_init_from_file_impl: invalid magic characters: 'PK', expected 'GGUF'"),
    ("unsupported_arch", "llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'qwen9'"),
    ("unsupported_arch", "Illegal instruction (core dumped)"),
    ("device_oom", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 35533.34 MiB on device 0: cudaMalloc failed: out of memory"),
    ("device_oom", "llama_model_load: error loading model: unable to allocate CUDA0 buffer"),
    ("host_oom", "ggml_aligned_malloc: insufficient memory (attempted to allocate 65925.00 MB)"),
    ("port_in_use", "srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8092"),
    ("port_in_use", "main: couldn't bind to server socket: hostname=127.0.0.1 port=8080"),
    ("died_silently", "/src/ggml/src/ggml.c:1234: GGML_ASSERT(ne00 % 32 == 0) failed"),
    ("bad_argument", "ValueError: The repository for org/m contains custom code which must be executed to correctly load the model."),
    ("bad_argument", "ValueError: World size (4) is larger than the number of available GPUs (2) in this node."),
    ("unsupported_arch", "ValueError: Unrecognized model in /models/x. Should have a `model_type` key in its config.json"),
    ("unsupported_arch", "llama_model_load: error loading model: error loading model vocabulary: unknown pre-tokenizer type: 'q9'"),
    ("peer_lost", "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (h, 1)."),
    ("dependency_missing", "RuntimeError: CUDA error: no CUDA-capable device is detected"),
    ("dependency_missing", "ValueError: Using a `device_map` requires `accelerate`. You can install it with `pip install accelerate`"),
    ("unknown", "KeyError: 'model.layers.0.mlp.experts.w2_weight'"),
    # transformers serve
    ("bad_argument", "Error: No such option '--force-model'."),
    ("dependency_missing", "importlib.metadata.PackageNotFoundError: No package metadata was found for vllm"),
]  # fmt: skip

HARMLESS = [
    "INFO 12-01 00:00:00 [utils.py:1] Port 8000 is already in use, trying port 8001",
    "[2026-06-09 03:34:45] Ignore import error when loading sglang.srt.models.x: No module named 'tilelang'",
    "ERROR 07-31 15:52:18 [fa_utils.py:57] Cannot use FA version 2 is not supported due to FA2 is only supported on devices with compute capability >= 8",
    "WARNING 12-01 00:00:00 [_custom_ops.py:20] Failed to import from vllm._C with ModuleNotFoundError(\"No module named 'vllm._C'\")",
    "[2026-08-01 22:25:30] Failed to load generation config for x: x does not appear to have a file named generation_config.json.",
    "[rank0]:[W301 17:37:32.70 ProcessGroupNCCL.cpp:1524] Warning: WARNING: destroy_process_group() was not called before program exit",
    "WARNING 12-01 [quant.py:1] fp8 quantization is not fully optimized yet. The speed can be slower.",
    "[2025-10-16 09:06:22 TP0] Memory pool end. avail mem=11.87 GB",
    "0.01.315.007 W common_fit_params: failed to fit params to free device memory: was unable to fit model",
]  # fmt: skip


@pytest.mark.parametrize(("failure_class", "line"), WORDINGS, ids=[line[:60] for _, line in WORDINGS])
def test_a_wording_shows_its_class(failure_class: FailureClass, line: str) -> None:
    reading = read_lines(["INFO start", line])
    assert (reading.state, reading.failure_class) == ("failed", failure_class)
    assert reading.evidence[0]["line"] == 2


@pytest.mark.parametrize("line", HARMLESS, ids=[line[:60] for line in HARMLESS])
def test_what_engines_survive_is_no_failure(line: str) -> None:
    assert read_lines([line]).failure_class is None


def test_an_exception_that_the_engine_went_on_from_ends_nothing() -> None:
    lines = ["ValueError: something that was caught", *[f"INFO loading {i}" for i in range(40)]]
    assert read_lines(lines).state == "unknown"


def test_a_root_cause_beats_what_followed_from_it() -> None:
    lines = [
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
        "(EngineCore pid=2) RuntimeError: NCCL error: remote process exited or there was a network error",
        "(Worker_TP1 pid=3) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "Killed",
    ]
    reading = read_lines(lines)
    assert reading.failure_class == "device_oom"
    assert reading.evidence[0]["line"] == 3


def test_every_class_has_a_place_and_every_rule_can_be_reached() -> None:
    from typing import get_args

    assert set(PRECEDENCE) == set(get_args(FailureClass))
    assert {rule.failure_class for rule in RULES} == set(PRECEDENCE)
    assert uncovered_rules() == []
