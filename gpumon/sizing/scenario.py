"""What the user asks for: workloads with targets, goals, server shapes. All of it is typed, measured or left open."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpumon.sizing.observed import Observed

TargetKind = Literal["concurrency", "users", "requests_per_s"]
Packing = Literal["busy", "memory"]


class Server(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A shape of server. Prices in the user's currency."""

    gpu: str
    """Catalogue name of its GPUs, e.g. `H100 SXM 80GB`."""
    gpus: int = 8
    nvlink_gpus: int = 0
    """GPUs of one NVLink domain; 0: all of the server. 2 on bridged PCIe pairs."""
    count: int = 0
    """How many there are at most; 0: as many as it takes."""
    price_per_gpu_hour: float | None = None
    price_per_hour: float = 0.0
    """Of the host, beside its GPUs."""
    gpu_power_w: float | None = None
    """Of one GPU under this load; default: measured, else the board's limit from the catalogue."""


class Workload(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One model and its target. What is None is looked up: measured, imported, then worked out."""

    model: str
    target: float
    """Requests in flight, users, or requests per second, by `target_kind`."""
    target_kind: TargetKind = "concurrency"
    name: str = ""
    """Shown name; default is the model."""
    think_s: float = 0.0
    """Of users: seconds between an answer and the next question."""
    capacity_per_instance: float | None = None
    """Requests in flight that one instance carries: an operating point, so the planning factor does not apply."""
    memory_gb: float | None = None
    """Memory of one instance, in 1e9 bytes."""
    busy_ratio: float | None = None
    """Share of its GPU that one instance keeps busy at that capacity."""
    tp: int | None = None
    pp: int | None = None
    weight_precision: str = ""
    """A value of `specs.Precision`; empty: as published or seen."""
    kv_precision: str = ""
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    prefix_hit_ratio: float | None = None
    itl_p95_ms: float | None = None
    """Goals of this workload; default: those of the scenario."""
    ttft_p95_ms: float | None = None
    e2e_p95_ms: float | None = None
    itl_tail_ratio: float | None = None
    """p95 / mean of the ITL; default: as seen, else 1."""
    kv_pool_tokens: float | None = None
    max_num_seqs: int | None = None
    prefill_tokens_per_s: float | None = None
    """Of one instance."""
    tokens_per_step: float | None = None
    """Speculative decoding: tokens per step and sequence; 1 is none."""
    draft_ratio: float | None = None
    """What the draft adds to a step, as a share of it."""
    spare_instances: int | None = None
    """Default: that of the scenario."""
    profile: str = ""
    """Name of an imported profile to take capacity and latency from."""
    seen: Observed | None = None
    """What was measured, kept with the scenario so that it gives the same answer elsewhere."""

    @property
    def label(self) -> str:
        """Its shown name."""
        return self.name or self.model


class Scenario(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The whole question. `gpumon size` and the panel answer the same one alike."""

    name: str = ""
    note: str = ""
    packing: Packing = "busy"
    """Which plan is needed: `busy` shares a GPU by memory and busy share, `memory` by memory alone."""
    planning_factor: float = 0.8
    """Share of a worked-out capacity that is planned with."""
    usable_memory_ratio: float = 0.92
    """Share of a GPU's memory that engines may take (vLLM's gpu_memory_utilization)."""
    queue_wait_ratio: float | None = None
    """Highest share of requests that may wait for a slot (Erlang C); None: not asked."""
    spare_instances: int = 0
    """Of each workload."""
    spare_servers: int = 0
    itl_p95_ms: float | None = None
    ttft_p95_ms: float | None = None
    e2e_p95_ms: float | None = None
    server: tuple[Server, ...] = ()
    """Shapes in the order in which they are filled."""
    workload: tuple[Workload, ...] = ()
