"""The failure classes of a bring-up, the words that show them, and which one wins.

Wordings are the engines' own, over their versions. A root cause beats its consequences ("Engine core initialization
failed", a lost peer), and among root causes the order of PRECEDENCE decides, because several ranks write one log
and the first line is not always the first event. A weak sign (a bare "Killed") counts only when nothing else does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from contracts.records import FailureClass

# Root causes first. What another rank's death brings about (peer_lost, a hang, a watchdog) stands behind what kills a
# rank; a missing import stands last of the causes, because engines survive most of those and say so in passing.
PRECEDENCE: tuple[FailureClass, ...] = (
    "bad_argument", "model_not_found", "quant_unsupported", "unsupported_arch", "tp_not_divisible",
    "max_model_len_rejected", "port_in_use", "kv_too_small", "device_oom", "host_oom", "state_pool_exhausted",
    "cuda_illegal_memory_access", "graph_capture_failed", "dependency_missing", "comm_hang", "peer_lost",
    "watchdog_timeout", "timeout", "died_silently", "unknown",
)  # fmt: skip

Strength = Literal["root", "consequence", "weak"]
STRENGTHS: tuple[Strength, ...] = ("root", "consequence", "weak")


@dataclass(frozen=True)
class Rule:
    """One wording. needle: lower case, must be in the lower-cased line; pattern: must match the line itself.

    is_fatal_when_ready: this line ends a server that was already serving. Other root causes count after readiness
    only when the server is seen to end (a request may fail without ending it).
    """

    failure_class: FailureClass
    needle: str
    pattern: re.Pattern[str]
    strength: Strength = "root"
    is_fatal_when_ready: bool = False


def _rule(
    failure_class: FailureClass,
    needle: str,
    pattern: str,
    strength: Strength = "root",
    fatal: bool = False,
) -> Rule:
    # Bounded gaps: an unbounded one inside another makes a hostile line cost minutes.
    bounded = pattern.replace(".*", ".{0,400}")
    return Rule(failure_class, needle, re.compile(bounded, re.IGNORECASE), strength, fatal)


RULES: tuple[Rule, ...] = (
    # -- arguments
    _rule("bad_argument", "error", r"error: (?:unrecognized arguments|argument |the following arguments are required|ambiguous option|invalid (?:value|argument|choice)|unknown argument)"),
    _rule("bad_argument", "no such option", r"no such option"),
    _rule("bad_argument", "error", r"error: invalid value for ['\"]?-|error: missing (?:option|argument)|error: got unexpected extra argument"),
    _rule("bad_argument", "unexpected keyword", r"TypeError: (?:\w+\.)?__init__\(\) got an unexpected keyword argument"),
    _rule("bad_argument", "block size", r"No common block size for \d+|invalid block size|Unsupported block size|block_size .*(?:must|should) be"),
    _rule("bad_argument", "error", r"error while handling argument|error: --?[\w-]+ (?:requires|needs|expects)|invalid int value|invalid float value"),
    _rule("bad_argument", "not allowed with", r"not allowed with argument"),
    _rule("bad_argument", "extra inputs", r"Extra inputs are not permitted"),
    _rule("bad_argument", "custom code", r"contains custom code which must be executed"),
    _rule("bad_argument", "available gpus", r"(?:larger|greater) than the number of available GPUs|exceeds the (?:total )?number of available GPUs"),
    _rule("bad_argument", "invalid device ordinal", r"invalid device ordinal"),
    _rule("bad_argument", "duplicate gpu", r"Duplicate GPU detected"),
    _rule("bad_argument", "is required", r"error: --?[\w-]+ is required"),
    # -- model
    _rule("model_not_found", "repo", r"HFValidationError: Repo id must be|RepositoryNotFoundError|Repository Not Found for url|Invalid repository ID or local directory"),
    _rule("model_not_found", "not a local folder", r"is not a local folder and is not a valid model identifier"),
    _rule("model_not_found", "gated", r"GatedRepoError|You are trying to access a gated repo|Access to model .* is restricted"),
    _rule("model_not_found", "config.json", r"does not appear to have a file named config\.json|(?:FileNotFoundError|No such file or directory)[^\n]*config\.json|can't find config\.json|neither .*config\.json nor"),
    _rule("model_not_found", "model weights", r"Cannot find any model weights"),
    _rule("model_not_found", "localentrynotfounderror", r"LocalEntryNotFoundError: (?:Cannot find|An error happened|.*outgoing traffic)"),
    _rule("model_not_found", "couldn't connect", r"couldn't connect to '?https?://\S+ to load (?:this|the) (?:file|files|model)|We couldn't connect to .* and couldn't find (?:it|them) in the cached files"),
    _rule("model_not_found", "gguf", r"failed to open GGUF file|gguf_init_from_(?:file|reader)\w*: (?:failed|invalid)|invalid magic (?:number|characters)"),
    _rule("model_not_found", "llama_model_load", r"error loading model: (?:llama_model_loader: )?failed to (?:open|load model from)|error loading model: tensor '[^']+' data is not within"),
    _rule("model_not_found", "model path", r"Model path does not exist|model path .* does not exist"),
    _rule("model_not_found", "model not found", r"\bmodel not found: "),
    _rule("model_not_found", "safetensor", r"SafetensorError: Error while deserializing header|HeaderTooLarge|MetadataIncompleteBuffer"),
    # -- what the model is
    _rule("unsupported_arch", "architecture", r"Model architectures? .*(?:are|is) not supported|unknown model architecture|architectures? .*(?:failed to be inspected|not supported)"),
    _rule("unsupported_arch", "implementation", r"has no (?:SGLang|vLLM) implementation"),
    _rule("unsupported_arch", "unrecognized", r"Unrecognized (?:model in|configuration class)"),
    _rule("unsupported_arch", "tokenizer", r"unknown (?:pre-)?tokenizer(?: type)?: '"),
    _rule("unsupported_arch", "model type", r"The checkpoint you are trying to load has model type `?[^`]+`? but Transformers does not recognize"),
    _rule("unsupported_arch", "kernel image", r"(?:device )?kernel image is (?:invalid|available for execution)|no kernel image is available"),
    _rule("unsupported_arch", "compute capability", r"(?:RuntimeError|ValueError|AssertionError|error)\b.*(?:compute capability|sm_?\d+).*(?:not supported|at least|unsupported|or higher|required)|only supported on (?:GPUs|devices) with compute capability"),
    _rule("unsupported_arch", "bfloat16", r"Bfloat16 is only supported on GPUs with compute capability"),
    _rule("unsupported_arch", "unsupported", r"(?:ptxas|nvcc|triton).*(?:unsupported gpu architecture|is not defined for option 'gpu-name')"),
    _rule("unsupported_arch", "illegal instruction", r"illegal instruction", fatal=True),
    _rule("unsupported_arch", "rc=132", r"\brc=132\b"),
    _rule("unsupported_arch", "keyerror", r"KeyError: '(?:mamba|qwen|llama|deepseek|gemma|phi|glm|mistral)[\w.-]*'$"),
    # -- quantization
    _rule("quant_unsupported", "quantization", r"quantization method \S+ is not supported for the current GPU|Unknown quantization method|Invalid quantization method|quantization .*(?:is|are) (?:currently )?not supported|not supported .*quantization"),
    _rule("quant_unsupported", "quantization", r"Quantization method specified in the model config .* does not match the quantization method"),
    _rule("quant_unsupported", "error", r"Error:? .*(?:fp8|fp4|nvfp4|mxfp4|awq|gptq|marlin|bitsandbytes|int8|int4|w8a8|w4a16)\b.*(?:not supported|unsupported|only supported|requires? (?:compute|sm|GPU))"),
    _rule("quant_unsupported", "e4m3", r"type fp8e4nv not supported in this architecture|fp8e4(?:nv|m3).*not supported"),
    _rule("quant_unsupported", "fp8e4nv", r"type fp8e4nv not supported in this architecture"),
    _rule("quant_unsupported", "ggml type", r"invalid ggml type|unsupported (?:quantization|ggml) type"),
    _rule("quant_unsupported", "divisible", r"(?:not divisible by|divisible by) (?:weight quantization|the quantization|min_thread|group_size|block_[nk])|weight .*(?:output|input)_size.* is not divisible by (?:weight )?(?:quantization|min_thread)"),
    # -- layout
    _rule("tp_not_divisible", "divisible", r"(?:attention heads|num_(?:attention_|kv_|key_value_)?heads|vocab(?:ulary)? size|hidden size|intermediate[ _]size|experts?)\b.*(?:must be|is not|not|should be) (?:evenly )?divisible by.*(?:tensor|tp|parallel|world|expert)"),
    _rule("tp_not_divisible", "divisible", r"(?:must be|is not|not|should be) divisible by (?:the )?(?:tensor[_ -]?(?:model[_ -])?parallel|tp[_ -]size|tp\b|world[_ -]size|number of GPUs|ep[_ -]size)"),
    _rule("tp_not_divisible", "divisible", r"AssertionError: \d+ is not divisible by \d+"),
    _rule("tp_not_divisible", "divisible", r"size_k = \d+ is not divisible by|input_size_per_partition = \d+ is not divisible"),
    # -- context
    _rule("max_model_len_rejected", "max_model_len", r"max_model_len(?: \(\d+\))? is greater than the derived|User-specified max_model_len|max_model_len .*(?:exceeds|larger than|greater than).*(?:max_position|derived|model)"),
    _rule("max_model_len_rejected", "context_length", r"(?:ValueError|AssertionError)\b.*User-specified context_length|User-specified context_length .*To allow overriding"),
    _rule("max_model_len_rejected", "max_num_batched_tokens", r"max_num_batched_tokens \(\d+\) is smaller than max_model_len"),
    # -- KV memory
    _rule("kv_too_small", "cache blocks", r"No available memory for the cache blocks"),
    _rule("kv_too_small", "kv cache", r"KV cache is needed, which is larger than the available KV cache memory|larger than the maximum number of tokens that can be stored in (?:the )?KV cache|needed for (?:the )?KV cache.*larger than"),
    _rule("kv_too_small", "max seq len", r"model'?s max seq len \(\d+\) is larger than the maximum number of tokens"),
    _rule("kv_too_small", "mem-fraction-static", r"Not enough memory\. Please try to increase --mem-fraction-static"),
    _rule("kv_too_small", "kv cache", r"(?:ValueError|RuntimeError|AssertionError)\b.*(?:not enough|insufficient|too small|no available)\b.*KV cache"),
    _rule("kv_too_small", "kv cache", r"failed to (?:find a memory slot|allocate (?:the )?KV cache)|KV cache .*(?:is too small|cannot hold)"),
    # -- device memory
    _rule("device_oom", "out of memory", r"(?:CUDA|HIP|XPU|NPU|GPU)(?: error)?:? ?out of memory|cudaMalloc failed: out of memory"),
    _rule("device_oom", "outofmemory", r"(?<!ray\.exceptions\.)OutOfMemoryError|cudaErrorOutOfMemory"),
    _rule("device_oom", "cuda_error_out_of_memory", r"CUDA_ERROR_OUT_OF_MEMORY"),
    _rule("device_oom", "cudaerrormemoryallocation", r"cudaErrorMemoryAllocation"),
    _rule("device_oom", "hipmalloc failed", r"hipMalloc failed"),
    _rule("device_oom", "cublas_status_alloc_failed", r"CUBLAS_STATUS_ALLOC_FAILED"),
    _rule("device_oom", "free memory on device", r"Free memory on device .* on startup is less than desired"),
    _rule("device_oom", "tried to allocate", r"out of memory\. Tried to allocate"),
    _rule("device_oom", "unable to allocate", r"unable to allocate (?:CUDA|ROCm|Vulkan|Metal|SYCL)\d* (?:buffer|memory)"),
    _rule("device_oom", "buffer", r"failed to allocate (?:CUDA|ROCm|Vulkan|Metal|SYCL)\d* buffer"),
    _rule("device_oom", "memory capacity is unbalanced", r"The memory capacity is unbalanced"),
    # -- host memory
    _rule("host_oom", "insufficient memory", r"insufficient memory \(attempted to allocate"),
    _rule("host_oom", "failed to allocate", r"failed to allocate (?:CPU |host |CPU_\w+ )?buffer(?: of size|\b)|failed to allocate buffer for kv cache"),
    _rule("host_oom", "unable to allocate cpu", r"unable to allocate CPU\w* buffer"),
    _rule("host_oom", "defaultcpuallocator", r"DefaultCPUAllocator: (?:can't|can not|not enough) (?:allocate )?memory"),
    _rule("host_oom", "cannot allocate memory", r"Cannot allocate memory"),
    _rule("host_oom", "bad_alloc", r"std::bad_alloc", fatal=True),
    _rule("host_oom", "memoryerror", r"\bMemoryError\b"),
    _rule("host_oom", "oom", r"oom-kill|OOMKilled|oom_kill|invoked oom-killer|OOM killer", fatal=True),
    _rule("host_oom", "out of memory", r"Memory cgroup out of memory|Out of memory: Killed process", fatal=True),
    _rule("host_oom", "killed due to", r"was killed due to (?:the )?(?:node|worker).*memory", fatal=True),
    _rule("host_oom", "ray.exceptions.outofmemoryerror", r"ray\.exceptions\.OutOfMemoryError", fatal=True),
    _rule("host_oom", "available memory on node", r"Available memory on node \d+ .*is less than requested memory for kv"),
    _rule("host_oom", "running low on memory", r"(?:worker|task)s? .*killed.*running low on memory|node (?:is )?running low on memory"),
    _rule("host_oom", "no space left", r"No space left on device.*(?:shm|/dev/shm)|(?:shm|/dev/shm).*No space left on device"),
    _rule("host_oom", "bus error", r"\bBus error\b", fatal=True),
    _rule("host_oom", "too large", r"Too large swap space|swap space .*is (?:too large|larger than)"),
    # -- state pools
    _rule("state_pool_exhausted", "mamba", r"(?:not enough space|no (?:free|available) (?:slots?|space)|exhausted|ran out|out of).*mamba|mamba.*(?:pool|state|slots?|cache)\b.*(?:exhausted|not enough|is full|ran out|no free|insufficient)"),
    _rule("state_pool_exhausted", "pool", r"(?:state|req_to_token|request|slot) pool\b.*(?:exhausted|is full|no free|ran out)|alloc_req_slots runs? out of memory", fatal=True),
    _rule("state_pool_exhausted", "alloc_req_slots", r"alloc_req_slots runs? out of memory", fatal=True),
    _rule("state_pool_exhausted", "out of memory. try to lower", r"(?:Prefill|Decode|Extend) out of memory\. Try to lower", fatal=True),
    _rule("state_pool_exhausted", "ssm", r"(?:ssm|conv|recurrent)[_ ]state.*(?:exhausted|not enough|no free|ran out)"),
    # -- graphs
    _rule("graph_capture_failed", "captur", r"Capture (?:\w+ )*(?:cuda|npu|hip|device)[_ ]graph failed|(?:cuda|hip) ?graph capture (?:failed|error)|Failed to capture (?:the )?(?:cuda|hip|full)? ?graph|Error (?:during|in|while) (?:cuda |hip )?(?:graph )?captur"),
    _rule("graph_capture_failed", "captur", r"operation not permitted when stream is capturing|operation failed due to a previous error during capture|cudaErrorStreamCapture\w+|while stream is capturing|during CUDA graph capture\. If you need|stream capture (?:invalidated|implicit|unsupported)"),
    _rule("graph_capture_failed", "graph_runner", r"(?:cuda|npu|hip|piecewise_cuda)_graph_runner\.py\", line \d+, in (?:__init__|capture\w*|_capture\w*)", "consequence"),
    _rule("graph_capture_failed", "captur", r"line \d+, in (?:_?capture_model|_?capture_cudagraphs|capture_graph|capture_one_batch_size)\b", "consequence"),
    # -- kernels
    _rule("cuda_illegal_memory_access", "illegal", r"illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS|illegal address", fatal=True),
    _rule("cuda_illegal_memory_access", "misaligned", r"CUDA error: misaligned address|CUDA_ERROR_MISALIGNED_ADDRESS", fatal=True),
    _rule("cuda_illegal_memory_access", "device-side assert", r"CUDA error: device-side assert triggered", fatal=True),
    _rule("cuda_illegal_memory_access", "unspecified launch failure", r"unspecified launch failure", fatal=True),
    _rule("cuda_illegal_memory_access", "memory access fault", r"Memory access fault by GPU", fatal=True),
    # -- the others of a group
    _rule("comm_hang", "collective operation timeout", r"Watchdog caught collective operation timeout", fatal=True),
    _rule("comm_hang", "nccl", r"Some NCCL operations have failed or timed out|NCCL (?:operation|communicator|collective).*tim(?:ed )?out", fatal=True),
    _rule("comm_hang", "timed out", r"(?:TCPStore|store|rendezvous|DistStoreError|init_process_group|barrier|broadcast|all_?reduce|all_?gather)\b.*(?:timed out|timeout)|Timed out (?:initializing process group|waiting (?:\d+ms )?for (?:recv|send|clients|all ranks))", fatal=True),
    _rule("comm_hang", "no available shared memory broadcast block", r"No available shared memory broadcast block found in \d+ ?seconds?.*(?:error|raise)", "weak"),
    _rule("comm_hang", "rpc call", r"(?:TimeoutError: )?RPC call to \w+ timed out", fatal=True),
    _rule("peer_lost", "remote process exited", r"remote process exited or there was a network error", "root", True),
    _rule("peer_lost", "connection", r"Connection (?:reset|closed) by (?:remote )?peer.*(?:rank|gloo|nccl|pair\.cc|TCPStore|socket)|(?:gloo|pair\.cc|TCPStore|NCCL|ProcessGroup|recvValue|sendBytes).*Connection (?:reset|closed) by (?:remote )?peer", "root", True),
    _rule("peer_lost", "nccl", r"ncclRemoteError|NCCL error.*remote (?:process|peer)", "root", True),
    _rule("peer_lost", "actor", r"ray\.exceptions\.(?:ActorDiedError|RayActorError|ActorUnavailableError)|The actor (?:is dead|died)", "root", True),
    _rule("peer_lost", "node", r"(?:raylet|worker) node .*(?:died|lost)|The node .* has been (?:removed|marked dead)", "root", True),
    _rule("peer_lost", "client socket", r"client socket has failed to connect", "root", True),
    _rule("comm_hang", "client socket", r"client socket has timed out", fatal=True),
    _rule("peer_lost", "lost connection", r"lost connection to (?:the )?(?:worker|peer|rank|node)", "root", True),
    _rule("peer_lost", "heartbeat", r"heartbeat.*(?:lost|missed)|missed too many heartbeats", "root", True),
    _rule("watchdog_timeout", "watchdog timeout", r"Watchdog timeout \((?:self\.)?watchdog_timeout|(?:scheduler|detokenizer|tokenizer)?\s*watchdog timeout", fatal=True),
    _rule("watchdog_timeout", "watchdog", r"watchdog (?:got stuck|thread (?:got stuck|terminated))|ProcessGroupNCCL's watchdog got stuck|terminating .* due to watchdog|soft watchdog timeout", fatal=True),
    # -- the machine
    _rule("port_in_use", "address already in use", r"Address already in use|EADDRINUSE"),
    _rule("port_in_use", "bind", r"couldn't bind (?:to )?(?:HTTP )?(?:server )?socket|error while attempting to bind on address|failed to bind (?:to )?(?:port|address)|cannot bind"),
    _rule("port_in_use", "in use", r"port \d+ is (?:already )?(?:in use|occupied|not available)(?!.*(?:trying|instead|using))"),
    _rule("port_in_use", "eaddrinuse", r"EADDRINUSE"),
    _rule("dependency_missing", "no module", r"(?:ModuleNotFoundError|ImportError): No module named|: No module named \S+$"),
    _rule("dependency_missing", "packagenotfounderror", r"PackageNotFoundError"),
    _rule("dependency_missing", "importerror", r"^(?:\(?[\w ]+pid=\d+[^)]*\)? ?)*(?:ERROR [\d: -]+\[?[\w.:]+\]? )?ImportError: "),
    _rule("dependency_missing", "cannot open shared object", r"error while loading shared libraries|cannot open shared object file"),
    _rule("dependency_missing", "command not found", r": command not found"),
    _rule("dependency_missing", "leash: cannot run", r"leash: cannot run"),
    _rule("dependency_missing", "undefined symbol", r"undefined symbol: "),
    _rule("dependency_missing", "pip install", r"Error: .*(?:requires?|install|missing|need).*pip install"),
    _rule("dependency_missing", "nvcc", r"Could not find nvcc|nvcc: (?:command )?not found"),
    _rule("dependency_missing", "cuda_home", r"CUDA_HOME environment variable is not set"),
    _rule("dependency_missing", "ninja", r"ninja.*(?:not found|is required to load)"),
    _rule("dependency_missing", "glibc", r"version `(?:GLIBC|GLIBCXX|CXXABI)[\w.]*' not found"),
    _rule("dependency_missing", "driver", r"NVIDIA driver on your system is too old|Found no NVIDIA driver|CUDA driver version is insufficient|CUDA driver initialization failed"),
    _rule("dependency_missing", "device type", r"Failed to infer device type"),
    _rule("dependency_missing", "no cuda-capable", r"no CUDA-capable device is detected"),
    _rule("dependency_missing", "no cuda gpus", r"No CUDA GPUs are available"),
    # -- ends without a reason
    _rule("died_silently", "died", r"(?:Worker|EngineCore|Engine core|Scheduler|process|proc)\b[^\n]{0,60} died(?: unexpectedly)?\b", "consequence", True),
    _rule("died_silently", "scheduler is dead", r"Rank \d+ scheduler is dead|Rank \d+ scheduler died", "consequence", True),
    _rule("died_silently", "exit", r"(?:exited with|exit) code:? ?-?(?:6|9|11|134|139)\b|Exit code: -?\d+", "consequence", True),
    _rule("died_silently", "crashed with", r"crashed with exit code -?(?!-?15\b|143\b)\d+", "consequence", True),
    _rule("died_silently", "leaked", r"resource_tracker: There appear to be \d+ leaked", "weak"),
    _rule("died_silently", "segmentation fault", r"segmentation fault|SIGSEGV", "consequence", True),
    _rule("died_silently", "core dumped", r"\(core dumped\)", "consequence", True),
    _rule("died_silently", "aborted", r"^\s*Aborted\s*$", "consequence", True),
    _rule("died_silently", "fatal python error", r"Fatal Python error", "consequence", True),
    _rule("died_silently", "ggml_assert", r"GGML_ASSERT", "consequence", True),
    _rule("died_silently", "terminate called", r"terminate called after throwing|terminate called without", "consequence", True),
    _rule("died_silently", "sigquit", r"Received sigquit from a child|SIGQUIT received", "consequence", True),
    _rule("host_oom", "killed", r"^\s*(?:\S+: line \d+: +\d+ )?Killed\b(?: +\S.*)?$", "weak", True),
    _rule("host_oom", "exit", r"exit(?:ed)?(?: with)? (?:code|status):? ?137\b", "weak", True),
    _rule("timeout", "timed out", r"(?:Timed out|Timeout) waiting for (?:the )?(?:engine|server|model)", "consequence"),
    _rule("timeout", "did not become ready", r"did not become ready", "consequence"),
    _rule("timeout", "failed to start", r"(?:server|engine) (?:failed to|did not) start (?:in|within)", "consequence"),
    # -- what only says that it failed
    _rule("unknown", "engine core", r"Engine core initialization failed|Engine core proc\w* .*died", "consequence", True),
    _rule("unknown", "engine process", r"Engine process failed to start", "consequence"),
    _rule("unknown", "enginecore", r"EngineCore failed to start|EngineCore hit an exception|EngineCore encountered (?:a fatal error|an issue)", "consequence", True),
    _rule("unknown", "enginedeaderror", r"EngineDeadError", "consequence", True),
    _rule("unknown", "background loop", r"Background loop (?:has errored|is not running|is stopped)", "consequence", True),
    _rule("unknown", "worker failed", r"Worker failed with error", "consequence"),
    _rule("unknown", "workerproc", r"WorkerProc (?:initialization failed|failed to start|hit an exception)", "consequence"),
    _rule("unknown", "nccl error", r"NCCL error", "consequence", True),
    _rule("unknown", "hit an exception", r"(?:Scheduler|Detokenizer\w*|TpModelWorkerClient|TokenizerManager) hit an exception", "consequence", True),
    _rule("unknown", "initialization failed", r"Initialization failed\b", "consequence"),
    _rule("unknown", "exiting due to", r"exiting due to (?:model loading|HTTP server) error", "consequence"),
    _rule("unknown", "failed to load model", r"failed to load model", "consequence"),
    _rule("unknown", "error loading model", r"error loading model", "consequence"),
    _rule("unknown", "failed to create", r"failed to create[_ ]context", "consequence"),
    _rule("unknown", "failed to start", r"(?:server|engine) failed to start", "consequence"),
    _rule("unknown", "application startup failed", r"Application startup failed", "consequence"),
)  # fmt: skip

# A line that matches a rule but is known to be harmless: engines survive these and go on.
HARMLESS = re.compile(
    r"Ignore import error|Failed to import from vllm\._C|is already in use, trying|Triton is installed, but|"
    r"Cannot use FA version|torchvision is not available|deep_gemm not found|"
    r"failed to fit params|fit_params: |Failed to load generation config|"
    r"parse error|send_error: |got exception: \{|Error with model (?:object|error)=|"
    r"WARNING .*User-specified max_model_len|WARNING .*(?:fall(?:ing)? ?back|disabl|will be (?:removed|ignored)|not (?:fully )?optimized)|"
    r"Retrying in|will retry|retrying",
    re.IGNORECASE,
)
# What the last lines of a hang look like: the next step would have needed the other ranks.
HANG = re.compile(
    r"vLLM is using nccl==|NCCL INFO (?:Bootstrap|Connected|Channel|comm 0x|Using network|NET/)|Init torch distributed begin|"
    r"init_process_group|Waiting for (?:all )?(?:ranks|peers|workers)|distributed_init_method|"
    r"No available shared memory broadcast block|custom_all_reduce",
    re.IGNORECASE,
)


def rank(failure_class: FailureClass, strength: Strength) -> tuple[int, int]:
    """The order in which causes win; lower wins."""
    return STRENGTHS.index(strength), PRECEDENCE.index(failure_class)
