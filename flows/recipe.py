"""A recipe: what is started, on which devices, and what it claims. Validated by pydantic, read from campaign YAML."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

EngineName = Literal["llamacpp", "vllm", "sglang", "transformers", "external", "reference"]


# What is not a setting of the server: two recipes are not told apart by it.
_NO_SETTINGS = ("name", "rescues", "env", "workloads", "reproduce", "api_key_env", "url", "stand_in")


class Strict(BaseModel):
    """Refuses unknown keys: a misspelt setting must not silently become a default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Speculation(Strict):
    """Speculative decoding. draft_tokens: tokens proposed per step."""

    method: str
    draft_tokens: int = Field(gt=0)
    draft_model: str | None = None


class PrefillDecodeSplit(Strict):
    """Prefill and decode as separate processes behind a router. GPU ids are of the node."""

    prefill_gpus: list[int]
    decode_gpus: list[int]
    transfer: str = "nixl"


class Recipe(Strict):
    """One or more server processes and the endpoints that clients use.

    model: a path, a hub id, or a name that the engine resolves (`smollm2-135m`, `needle-2.8m` for llamacpp).
    context_tokens: the ceiling that is asked of the engine, per sequence. slots: sequences at once.
    args: extra arguments, as written. env: extra environment; values never reach raw, only names.
    rescues: the recipe that this one is tried for after it failed; the one setting that differs is the change.
    stand_in: for engine reference, the scenario of a server that plays this recipe's engine (a rehearsal sets it).
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    engine: EngineName
    model: str
    served_name: str | None = None
    context_tokens: int | None = Field(default=None, gt=0)
    slots: int | None = Field(default=None, gt=0)
    gpu_ids: list[int] | None = None
    gpus: int = Field(default=0, ge=0, description="devices in use; 0 means the CPU")
    tensor_parallel: int = Field(default=1, ge=1)
    pipeline_parallel: int = Field(default=1, ge=1)
    data_parallel: int = Field(default=1, ge=1)
    expert_parallel: int = Field(default=1, ge=1)
    replicas: int = Field(default=1, ge=1)
    prefill_decode: PrefillDecodeSplit | None = None
    speculation: Speculation | None = None
    kv_offload_gb: float | None = Field(default=None, gt=0)
    kv_cache_dtype: str | None = None
    quantization: str | None = None
    claimed_precision: str | None = None
    prefix_caching: bool | None = None
    cuda_graphs: bool | None = None
    max_running_requests: int | None = Field(default=None, gt=0)
    memory_fraction: float | None = Field(default=None, gt=0, lt=1)
    launcher: list[str] | None = Field(
        default=None,
        description="the command that starts the engine, e.g. another Python's -m vllm...; null: own",
    )
    args: list[str] = []
    env: dict[str, str] = {}
    url: str | None = None
    api_key_env: str | None = None
    ready_timeout_s: float = Field(default=900.0, gt=0)
    compile_cache: str | None = None
    rescues: str | None = None
    reproduce: bool = True
    stand_in: dict[str, Any] | None = None
    workloads: list[str] | None = Field(
        default=None, description="names of the campaign's workloads; null means all"
    )

    @model_validator(mode="after")
    def _external_needs_a_url(self) -> Recipe:
        if (self.engine == "external") != (self.url is not None):
            raise ValueError("url is given for engine external, and only there")
        if self.stand_in is not None and self.engine != "reference":
            raise ValueError("stand_in is given for engine reference, and only there")
        return self

    @property
    def gpu_count(self) -> int:
        """Devices that the recipe occupies: the listed ids, else the declared number, else what its layout needs."""
        if self.prefill_decode is not None:
            return len(set(self.prefill_decode.prefill_gpus) | set(self.prefill_decode.decode_gpus))
        if self.gpu_ids is not None:
            return len(self.gpu_ids)
        return self.gpus

    @property
    def layout(self) -> str:
        """The parallel layout in the field's words: `TP4 x 2 replicas`, `EP4`, `prefill/decode split`, `single`."""
        if self.prefill_decode is not None:
            split = self.prefill_decode
            return f"prefill/decode split {len(split.prefill_gpus)}+{len(split.decode_gpus)}"
        parts = [
            f"{label}{size}"
            for label, size in (
                ("TP", self.tensor_parallel),
                ("PP", self.pipeline_parallel),
                ("DP", self.data_parallel),
                ("EP", self.expert_parallel),
            )
            if size > 1
        ]
        name = " ".join(parts) or "single"
        return f"{name} x {self.replicas} replicas" if self.replicas > 1 else name

    def settings(self) -> dict[str, Any]:
        """Every setting, flat, by name: what two recipes are compared by. Environment by name only."""
        flat: dict[str, Any] = {}
        for key, value in self.model_dump(mode="json").items():
            if key in _NO_SETTINGS:
                continue
            if isinstance(value, dict):
                flat.update({f"{key}.{inner}": v for inner, v in value.items()})
            else:
                flat[key] = value
        if self.prefill_decode is not None:
            # The two sides name the devices: the same ones must not look like another choice of them.
            flat["gpu_ids"] = sorted({*self.prefill_decode.prefill_gpus, *self.prefill_decode.decode_gpus})
        for name in sorted(self.env):
            flat[f"env.{name}"] = "set"
        return flat
