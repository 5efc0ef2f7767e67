"""The user's question: workloads with targets, goals and server shapes, with valid ranges; and the catalogues."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec

from gpumon.sizing.latency import Speculation
from gpumon.sizing.length_tail import MOST_TOKENS, Lengths, problem_of
from gpumon.sizing.profile import Observed, Point
from gpumon.sizing.tails import TailsOf
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.gpus import GpuCatalogue
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llms import LlmCatalogue
from gpumon.specs.networks import Network, NetworkCatalogue

TargetKind = Literal["concurrency", "users", "requests_per_s"]
Packing = Literal["busy", "memory"]
EngineName = Literal["", "vllm", "sglang", "trtllm"]
GOAL_NAMES: Final = ("tpot_p95_ms", "itl_p95_ms", "itl_mean_ms", "ttft_p95_ms", "e2e_p95_ms")
"""Fields of the goals, of a workload and of the scenario."""


class Server(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A shape of server. Prices in the user's currency."""

    gpu: str
    """Catalogue name of its GPUs, e.g. `H100 SXM 80GB`."""
    gpus: int = 8
    nvlink_gpus: int = 0
    """GPUs of one NVLink domain; 0: all of the server. 2 on bridged PCIe pairs."""
    network: str = ""
    """Network between such servers, by its name in the catalogue; empty: the usual one with such GPUs."""
    network_gb_per_s: float | None = None
    """1e9 bytes per second of one GPU to other servers; default: that of the network."""
    count: int = 0
    """Most servers that there are; 0: as many as it takes."""
    price_per_gpu_hour: float | None = None
    price_per_hour: float = 0.0
    """Price of the host, beside its GPUs."""
    gpu_power_w: float | None = None
    """Watts of one GPU under this load; default: measured, else the board's limit from the catalogue."""

    @property
    def domain(self) -> int:
        """GPUs that NVLink, or else PCIe, joins: all of the server where no domain is given."""
        return min(self.nvlink_gpus or self.gpus, self.gpus)


class Disaggregated(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Prefill and decode on pools of instances of their own. None: searched or looked up."""

    prefill_tp: int | None = None
    decode_tp: int | None = None
    prefill_dp: int | None = None
    """Data-parallel ranks of a prefill instance; default: those of the workload."""
    decode_dp: int | None = None
    link_gb_per_s: float | None = None
    """1e9 bytes per second that one GPU sends to the other pool; default: its link of the catalogue."""


class Workload(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One model and its target. None: looked up among measured, then imported values, then worked out."""

    model: str
    target: float
    """Requests in flight, users, or requests per second, by `target_kind`."""
    target_kind: TargetKind = "concurrency"
    name: str = ""
    """Shown name; default is the model."""
    think_s: float = 0.0
    """Seconds between an answer and the next question, for a target in users."""
    capacity_per_instance: float | None = None
    """Requests in flight that one instance carries: an operating point, so the planning factor does not apply."""
    memory_gb: float | None = None
    """Memory of one instance, in 1e9 bytes."""
    busy_ratio: float | None = None
    """Share of its GPU that one instance keeps busy at that capacity."""
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    """Data-parallel ranks of an instance: each has the attention for itself, the experts are spread over all."""
    weight_precision: str = ""
    """A value of `specs.Precision`; empty: as published or seen."""
    kv_precision: str = ""
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    prefix_hit_ratio: float | None = None
    lengths: Lengths | None = None
    """How prompt and answer lengths spread around their means; default: as seen."""
    speculative: Speculation | None = None
    """Default: as seen."""
    tpot_p95_ms: float | None = None
    """p95 over requests of the mean time between the tokens of each. Default of all goals: those of the scenario."""
    itl_p95_ms: float | None = None
    """p95 over the gaps between two tokens."""
    itl_mean_ms: float | None = None
    """Mean of these gaps."""
    ttft_p95_ms: float | None = None
    e2e_p95_ms: float | None = None
    itl_tail_ratio: float | None = None
    """p95 / mean of the ITL; default: as seen, else 1."""
    kv_pool_tokens: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    """Most tokens of one step; simulations alone use it."""
    prefill_tokens_per_s: float | None = None
    """Prefill rate of one instance."""
    spare_instances: int | None = None
    """Default: that of the scenario."""
    engine: EngineName = ""
    """Engine that will serve it; empty: the one that was seen. TTFT differs by engine."""
    disaggregated: Disaggregated | None = None
    """Compare with prefill and decode on pools of their own."""
    profile: str = ""
    """Name of an imported profile to take capacity and latency from."""
    seen: Observed | None = None
    """Measured profile, kept with the scenario so that it gives the same answer elsewhere."""
    dimensions: LlmSpec | None = None
    """Dimensions of its model, kept likewise where no catalogue has them: they come before those that are looked up."""

    @property
    def label(self) -> str:
        """The shown name."""
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
    spare_instances: int = 0
    """Spare instances of each workload."""
    spare_servers: int = 0
    tpot_p95_ms: float | None = None
    itl_p95_ms: float | None = None
    itl_mean_ms: float | None = None
    ttft_p95_ms: float | None = None
    e2e_p95_ms: float | None = None
    assume_ttft: bool = False
    """A TTFT goal decides the number of GPUs by an estimate, too, where TTFT was not measured on the engine."""
    server: tuple[Server, ...] = ()
    """Shapes in the order in which they are filled; each instance stands on one type of GPU."""
    workload: tuple[Workload, ...] = ()

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Types of GPU of its servers, each once."""
        return tuple(dict.fromkeys(server.gpu for server in self.server))


def with_disaggregation(scenario: Scenario) -> Scenario:
    """The scenario in which each workload is compared with pools for prefill and decode."""
    workloads = tuple(
        msgspec.structs.replace(workload, disaggregated=workload.disaggregated or Disaggregated())
        for workload in scenario.workload
    )
    return msgspec.structs.replace(scenario, workload=workloads)


class _Layered(Mapping[str, LlmSpec]):
    """Dimensions of a scenario above those that are known without it, which may match names by a pattern."""

    def __init__(self, above: Mapping[str, LlmSpec], below: Mapping[str, LlmSpec]) -> None:
        self._above = above
        self._below = below

    def __getitem__(self, model: str) -> LlmSpec:
        return self._above[model] if model in self._above else self._below[model]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._above, *self._below)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Catalogues(NamedTuple):
    """Catalogues and what the user added to them."""

    gpus: GpuCatalogue
    llms: LlmCatalogue
    own: Mapping[str, LlmSpec] = MappingProxyType({})
    """Model name -> dimensions that come before the catalogue's: of running engines and of the config."""
    profiles: Mapping[str, Observed] = MappingProxyType({})
    """Name of an imported profile -> its measurements."""
    prices: Mapping[str, float] = MappingProxyType({})
    """Catalogue name of a GPU -> price of one hour."""
    networks: NetworkCatalogue = NetworkCatalogue()
    tails: TailsOf | None = None
    """Works out the p95 of an instance's latencies where nobody measured it; None: nobody does."""

    def llm(self, model: str) -> LlmSpec | None:
        """Dimensions of a model; None where they are not known."""
        return self.own.get(model) or self.llms.find(model)

    def gpu_name(self, text: str) -> str:
        """The catalogue's name of a GPU by any of its names, also those that planners use; an unknown name as it is."""
        spec = self.gpus.planned(text)
        return text if spec is None else spec.name

    def server(self, server: Server) -> Server:
        """The server with the catalogue's own name of its GPU; of a cloud's server with all that the cloud says, where
        nothing else was typed."""
        rented = self.gpus.servers.find(server.gpu)
        if rented is None:
            return msgspec.structs.replace(server, gpu=self.gpu_name(server.gpu))
        rate = server.network_gb_per_s
        if rate is None and not server.network:
            rate = rented.network_gb_per_s
        return msgspec.structs.replace(
            server,
            gpu=self.gpu_name(rented.gpu),
            gpus=rented.gpus,
            nvlink_gpus=server.nvlink_gpus or rented.nvlink_gpus,
            network=server.network or rented.network,
            network_gb_per_s=rate,
        )

    def name_taken(self, server: Server) -> str:
        """The part that the name of a server's GPU is taken for, where that is none of the catalogue's own; empty where
        it is one."""
        resolved = self.server(server)
        if self.gpus.servers.find(server.gpu) is not None:
            return f"{server.gpu} is {resolved.gpus} x {resolved.gpu}, network {resolved.network}"
        if resolved.gpu != server.gpu and not self.gpus.has(server.gpu):
            return f"{server.gpu} is taken for {resolved.gpu}"
        return ""

    def price(self, gpu: str) -> float | None:
        """Price of one hour of a GPU, by any of its names; None where there is none."""
        return self.prices.get(self.gpu_name(gpu))

    def network(self, server: Server, gpu: GpuSpec) -> Network | None:
        """The network between servers: the one that is named, or else the usual one with such GPUs, at the typed rate
        if there is one. None where no catalogue has one. ValueError for an unknown name."""
        network = self.networks.find(server.network) if server.network else self.networks.usual(gpu)
        if network is None or server.network_gb_per_s is None:
            return network
        return msgspec.structs.replace(network, bytes_per_s=server.network_gb_per_s * 1e9)

    def profile_of(self, workload: Workload) -> Observed | None:
        """The profile of a workload: the one that it names, or else the one that is kept in it; None without either."""
        if workload.profile:
            return self.profiles.get(workload.profile, workload.seen)
        return workload.seen

    def with_models_of(self, scenario: Scenario) -> Catalogues:
        """The catalogues with the dimensions that a scenario has in it; the same object where it has none."""
        dimensions = {
            workload.model: workload.dimensions for workload in scenario.workload if workload.dimensions is not None
        }
        if not dimensions:
            return self
        return self._replace(own=_Layered(dimensions, self.own))

    def self_contained(self, scenario: Scenario) -> Scenario:
        """The scenario with its profiles, prices, and the dimensions of models that no catalogue has, in it: it gives
        the same answer on a machine that knows none of them."""
        workloads = []
        for workload in scenario.workload:
            seen = self.profile_of(workload)
            dimensions = workload.dimensions or self._own_dimensions(workload.model)
            workloads.append(msgspec.structs.replace(workload, seen=seen, dimensions=dimensions))
        servers = []
        for server in scenario.server:
            price = self.price(server.gpu) if server.price_per_gpu_hour is None else server.price_per_gpu_hour
            servers.append(msgspec.structs.replace(server, price_per_gpu_hour=price))
        return msgspec.structs.replace(scenario, server=tuple(servers), workload=tuple(workloads))

    def _own_dimensions(self, model: str) -> LlmSpec | None:
        """Dimensions of a model as an engine or the config tells them; None where the catalogue has the same."""
        own = self.own.get(model)
        return None if own == self.llms.find(model) else own


class Range(NamedTuple):
    """Valid range of a figure."""

    low: float
    """Least value that is allowed."""
    high: float
    """Largest value that is allowed."""
    label: str
    """Name of the figure in an error message."""
    unit: str = ""
    """End of the message, such as ` ms`."""


MOST_SERVER_GPUS: Final = 576
"""Most GPUs of one server: no NVLink domain has more, and a typing error must not fill the memory."""
_LEAST_INEXACT: Final = 1e15
"""Number from which a float does not show its digits one by one."""
_MOST_RUNNING: Final = 1e6
"""Sequences of one engine beyond which a measured point is left out."""
_OR_LEFT_OUT: Final = ", or left out where it is not known"
"""End of the message about a price of 0: a price that is not known is none."""
_SPARES: Final = Range(0, 1e6, "spare instances")
"""Range of the spare instances, of a workload and of the scenario."""
RANGES: Final[dict[str, Range]] = {
    "capacity_per_instance": Range(1.0, 1e6, "capacity of an instance", " requests in flight"),
    "memory_gb": Range(1e-3, 1e6, "memory of an instance", " GB"),
    "busy_ratio": Range(0.0, 1.0, "busy share"),
    "tp": Range(1, 1024, "TP"),
    "pp": Range(1, 1024, "PP"),
    "dp": Range(1, 1024, "DP"),
    "think_s": Range(0.0, 1e7, "think time", " s"),
    "prompt_tokens": Range(1.0, 1e8, "prompt tokens"),
    "answer_tokens": Range(1.0, 1e8, "answer tokens"),
    "prefix_hit_ratio": Range(0.0, 1.0, "share of prefix hits"),
    "tpot_p95_ms": Range(1e-3, 1e7, "TPOT goal", " ms"),
    "itl_p95_ms": Range(1e-3, 1e7, "ITL goal", " ms"),
    "itl_mean_ms": Range(1e-3, 1e7, "goal of the mean ITL", " ms"),
    "ttft_p95_ms": Range(1e-3, 1e8, "TTFT goal", " ms"),
    "e2e_p95_ms": Range(1e-3, 1e9, "E2E goal", " ms"),
    "itl_tail_ratio": Range(1.0, 100.0, "p95 / mean of the ITL"),
    "kv_pool_tokens": Range(1.0, 1e12, "tokens of the KV cache"),
    "max_num_seqs": Range(1, 1e6, "most requests of the engine"),
    "max_num_batched_tokens": Range(1, 1e7, "most tokens of a step"),
    "prefill_tokens_per_s": Range(1e-3, 1e9, "prompt tokens per second"),
    "spare_instances": _SPARES,
}
"""Valid ranges of a workload's figures."""
SCENARIO_RANGES: Final = {
    "planning_factor": Range(1e-3, 1.0, "planning factor"),
    "usable_memory_ratio": Range(1e-3, 1.0, "usable share of the memory"),
    "spare_instances": _SPARES,
    "spare_servers": Range(0, 1e6, "spare servers"),
}
"""Valid ranges of a scenario's own figures."""
SERVER_RANGES: Final = {
    "gpus": Range(1, MOST_SERVER_GPUS, "GPUs"),
    "nvlink_gpus": Range(0, MOST_SERVER_GPUS, "GPUs of an NVLink domain"),
    "network_gb_per_s": Range(1e-3, 1e6, "network of a GPU", " GB/s"),
    "count": Range(0, 1e6, "number of servers"),
    "price_per_gpu_hour": Range(1e-6, 1e9, "price of a GPU per hour", _OR_LEFT_OUT),
    "price_per_hour": Range(0.0, 1e9, "price of the host per hour"),
    "gpu_power_w": Range(1e-3, 1e6, "power of a GPU", " W"),
}
"""Valid ranges of a server's figures."""
DISAGGREGATED_RANGES: Final = {
    "prefill_tp": Range(1, 1024, "TP of the prefill pool"),
    "decode_tp": Range(1, 1024, "TP of the decode pool"),
    "prefill_dp": Range(1, 1024, "DP of the prefill pool"),
    "decode_dp": Range(1, 1024, "DP of the decode pool"),
    "link_gb_per_s": Range(1e-3, 1e6, "link between the pools", " GB/s"),
}
"""Valid ranges of the figures of `Disaggregated`."""
SPECULATION_RANGES: Final = {
    "tokens": Range(0.0, 63.0, "drafted tokens"),
    "accepted": Range(0.0, 63.0, "accepted tokens"),
}
"""Valid ranges of the figures of `Speculation`."""
LENGTH_RANGES: Final = {
    "tokens": Range(1e-3, MOST_TOKENS, "length", " tokens"),
    "share": Range(0.0, 1.0, "share of the requests"),
}
"""Valid ranges of one step of a distribution of lengths."""
SEEN_RANGES: Final = {
    "gpus": Range(0, 1e5, "GPUs"),
    "tp": Range(0, 1e5, "TP"),
    "pp": Range(0, 1e5, "PP"),
    "prompt_tokens": Range(0.0, 1e9, "prompt tokens"),
    "answer_tokens": Range(0.0, 1e9, "answer tokens"),
    "prefix_hit_ratio": Range(0.0, 1.0, "share of prefix hits"),
    "tpot_tail_ratio": Range(1e-3, 1e6, "p95 / mean of the TPOT"),
    "itl_tail_ratio": Range(1e-3, 1e6, "p95 / mean of the ITL"),
    "ttft_tail_ratio": Range(1e-3, 1e6, "p95 / mean of the TTFT"),
    "kv_pool_tokens": Range(0.0, 1e15, "tokens of the KV cache"),
    "max_num_seqs": Range(1, 1e9, "most requests of the engine"),
    "max_num_batched_tokens": Range(1, 1e9, "most tokens of a step"),
    "max_model_len": Range(1, 1e9, "tokens of the longest request"),
    "memory_bytes": Range(1.0, 1e18, "memory of an instance"),
    "busy_ratio": Range(0.0, 1.0, "busy share"),
    "power_w": Range(0.0, 1e9, "power"),
    "tokens_per_step": Range(1.0, 64.0, "tokens per step"),
    "drafted_per_step": Range(0.0, 63.0, "drafted tokens per step"),
    "prefill_tokens_per_s": Range(0.0, 1e12, "prompt tokens per second"),
    "concurrency": Range(0.0, 1e12, "requests in flight"),
}
"""Ranges of a profile's figures, wider than those of what is typed: beyond them the profile is broken."""


def _check(record: msgspec.Struct, ranges: Mapping[str, Range]) -> None:
    """Raises ValueError for a figure that is out of its range, with its name and the range; None passes."""
    for field, (low, high, label, unit) in ranges.items():
        value: float | None = getattr(record, field)
        if value is None or low <= value <= high:
            continue
        name = f"{label} ({field})" if label.lower() != field else label
        raise ValueError(
            f"{name} is {_figure_text(value)}: it must be from {_figure_text(low)} to {_figure_text(high)}{unit}"
        )


def _figure_text(value: float) -> str:
    """A number in an error message: whole ones with thousands separators."""
    if abs(value) < _LEAST_INEXACT and value == int(value):
        return f"{value:,.0f}"
    return f"{value:g}"


def check_workload(workload: Workload) -> None:
    """Raises ValueError for a figure of a workload, or of the tables in it, that is out of its range."""
    _check(workload, RANGES)
    if workload.speculative is not None:
        _check(workload.speculative, SPECULATION_RANGES)
        problem = workload.speculative.problem
        if problem:
            raise ValueError(f"speculative: {problem}")
    if workload.disaggregated is not None:
        _check(workload.disaggregated, DISAGGREGATED_RANGES)
    if workload.lengths is not None:
        check_lengths(workload.lengths)


def check_lengths(lengths: Lengths) -> None:
    """Raises ValueError for a distribution of lengths that cannot be."""
    for name, steps in (("prompt", lengths.prompt), ("answer", lengths.answer)):
        problem = problem_of(steps)
        if problem:
            raise ValueError(f"{name} lengths: {problem}")


def check_scenario(scenario: Scenario) -> None:
    """Raises ValueError for a figure of the scenario itself, or of a server, that is out of its range."""
    _check(scenario, SCENARIO_RANGES)
    for server in scenario.server:
        if not 1 <= server.gpus <= MOST_SERVER_GPUS:  # said of the server, which a range does not name
            raise ValueError(f"a server of {server.gpus} GPUs: give it from 1 to {MOST_SERVER_GPUS}")
        _check(server, SERVER_RANGES)


def checked_profile(profile: Observed) -> Observed:
    """The profile without points that cannot be. Raises ValueError for another figure that is out of its range."""
    try:
        _check(profile, SEEN_RANGES)
        if profile.lengths is not None:
            check_lengths(profile.lengths)
    except ValueError as error:
        raise ValueError(f"what was seen of {profile.name or profile.model}: {error}") from None
    points = tuple(point for point in profile.points if _is_possible(point))
    if len(points) == len(profile.points):
        return profile
    return msgspec.structs.replace(profile, points=points)


def _is_possible(point: Point) -> bool:
    """Whether an engine can have run at a point: no figure is negative or infinite, and not too many ran."""
    if point.running > _MOST_RUNNING:
        return False
    return all(value is None or 0 <= value < math.inf for value in msgspec.structs.astuple(point))
