"""One instance of a workload: its model, GPUs, lengths and latencies, and its figures under a load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.sizing import memory
from gpumon.sizing.accuracy import NO_BAND, Band
from gpumon.sizing.answer import Source
from gpumon.sizing.communication import Fabric
from gpumon.sizing.first_token import FirstToken, engine_of
from gpumon.sizing.fit import Fitted
from gpumon.sizing.interpolated import Interpolated, ItlCurve
from gpumon.sizing.latency import (
    MOST_SEQUENCES,
    NO_SPECULATION,
    Curve,
    Mix,
    Speculation,
    Tail,
    largest_load,
    response_s,
)
from gpumon.sizing.length_tail import TokensInFlight
from gpumon.sizing.profile import Observed
from gpumon.sizing.roofline import InstanceSetting
from gpumon.sizing.scenario import Server, Workload
from gpumon.sizing.tails import InstanceTails
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec


class Instance(NamedTuple):
    """Knowledge of one instance. None: it could not be found; `notes` say what follows from that."""

    workload: Workload
    """With the goals of the scenario where it has none of its own."""
    server: Server | None = None
    """The server that it is planned on."""
    gpu: GpuSpec | None = None
    fabric: Fabric | None = None
    """Links between its GPUs; None: it stands in one domain of its server."""
    llm: LlmSpec | None = None
    """Dimensions of its model, at its precisions."""
    seen: Observed | None = None
    """The profile of its workload."""
    gpus: int = 0
    """All of them: TP x PP x DP."""
    tp: int = 0
    pp: int = 0
    dp: int = 1
    """Data-parallel ranks: each has the attention and its KV cache for itself, the experts are spread over all."""
    tps: tuple[int, ...] = ()
    """Tensor-parallel sizes that hold it, inside one NVLink domain; empty where they are not known."""
    prompt_tokens: float | None = None
    """Mean per request, cached ones included."""
    answer_tokens: float | None = None
    """Mean per request."""
    hit_ratio: float = 0.0
    """Share of the prompt tokens that come from the prefix cache."""
    tokens_in_flight: TokensInFlight | None = None
    """Distribution of the tokens that a request in flight holds; None where that of the lengths is not known."""
    speculation: Speculation = NO_SPECULATION
    alike: bool = False
    """Whether `seen` was measured on the same model, GPU, parallelism and precision."""
    same_mix: bool = False
    """Whether `seen` was measured with the same lengths."""
    pool_shift_ratio: float | None = None
    """Share of a GPU's memory by which the measured KV pool differs from the formula; None: it was not measured."""
    curve: ItlCurve | None = None
    """Its ITL over the sequences that run."""
    fitted: Fitted | None = None
    """The fit of this very server, if there is one."""
    source: Source = Source.NONE
    """Source of the curve, or of a typed capacity."""
    band: Band = NO_BAND
    """Errors of its ITL."""
    first: FirstToken = FirstToken()
    """Its TTFT."""
    prefill_tokens_per_s: float | None = None
    """Prompt tokens per second that it computes at most: typed, or by the roofline."""
    tpot_tail: Tail = Tail()
    """p95 / mean over requests of the mean time between the tokens of each."""
    itl_tail: Tail = Tail()
    """p95 / mean of its ITL, over the gaps between two tokens."""
    ttft_tail: Tail = Tail()
    """p95 / mean of its TTFT."""
    tails: InstanceTails | None = None
    """p95 of its latencies by simulation; None where nobody simulates, or it cannot be."""
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def mix(self) -> Mix | None:
        """Lengths; None where they are not known."""
        if self.prompt_tokens is None or not self.answer_tokens:
            return None
        return Mix(self.prompt_tokens, self.answer_tokens, self.hit_ratio)

    @property
    def setting(self) -> InstanceSetting | None:
        """The instance as the roofline formulas take it; None where something of it is not known."""
        mix = self.mix
        if self.llm is None or self.gpu is None or mix is None:
            return None
        expert_gpus = self.tp * self.dp if self.dp > 1 else 0
        return InstanceSetting(
            self.llm,
            self.gpu,
            self.gpus,
            self.tp,
            mix,
            expert_gpus,
            self.speculation,
            self.pp or 1,
            self.fabric,
        )

    @property
    def startup(self) -> memory.Startup:
        """Memory that its engine takes of a GPU beside weights and KV cache."""
        if self.gpu is None:
            return memory.VLLM_STARTUP
        return memory.startup_of(self.gpu, engine_to_size(self.workload, self.seen))

    @property
    def goal_itl_s(self) -> float | None:
        """The ITL goal as a mean: the mean at the load at which p95 comes to the goal. None without a goal."""
        if self.workload.itl_p95_ms is None:
            return None
        goal_s = self.workload.itl_p95_ms / 1e3
        tail = self.itl_tail
        curve = self.curve
        if tail.mean_s is None or curve is None:
            return goal_s / tail.ratio_at(1.0)
        load = largest_load(lambda running: curve.itl_s(running) * tail.ratio_at(running) <= goal_s)
        return goal_s / tail.ratio_at(max(1.0, min(load, MOST_SEQUENCES)))

    @property
    def itl_tail_ratio(self) -> float:
        """p95 / mean of the ITL at the load at which the goal is met; without a goal that of the measured points."""
        mean_s = self.goal_itl_s
        goal = self.workload.itl_p95_ms
        if mean_s is None or goal is None:
            return self.itl_tail.ratio
        return goal / 1e3 / mean_s

    @property
    def model_curve(self) -> Curve | None:
        """The model of its ITL: that of its own points, if the ITL goes through such; None where there is none."""
        if isinstance(self.curve, Interpolated):
            return self.curve.model
        return self.curve

    def itl_s(self, running: float) -> float | None:
        """Mean ITL in seconds; None where it is not known.

        Below one running request on average the engine idles most of the time, and decodes single requests.
        """
        if self.curve is None:
            return None
        return self.curve.itl_s(max(1.0, running))

    def itl_p95_s(self, running: float) -> float | None:
        """p95 of the ITL in seconds; None where it is not known."""
        itl_s = self.itl_s(running)
        if itl_s is None or not self.itl_tail.known:
            return None
        return itl_s * self.itl_tail.ratio_at(running)

    def ttft_s(self, running: float) -> float | None:
        """Mean TTFT in seconds of requests that do not wait for admission; None where it is not known."""
        if self.first.line is None:
            return None
        return self.first.line.ttft_s(running)

    def ttft_p95_s(self, running: float) -> float | None:
        """p95 of the TTFT in seconds; None where it is not known."""
        ttft_s = self.ttft_s(running)
        if ttft_s is None or not self.ttft_tail.known:
            return None
        return ttft_s * self.ttft_tail.ratio_at(running)

    @property
    def lacks_ttft(self) -> bool:
        """Whether the time of a request is that of its tokens alone, as the TTFT is not known: it is a least value."""
        return self.first.line is None and self.curve is not None

    def response_s(self, running: float) -> float | None:
        """Seconds from request to last token with `running` in flight: TTFT + ITL*(OSL-1), or as measured.

        None where neither is known.
        """
        itl_s = self.itl_s(running)
        if itl_s is not None and self.answer_tokens is not None:
            return response_s(self.ttft_s(running) or 0.0, itl_s, self.answer_tokens)
        if self.seen is None or not self.alike or not self.same_mix:
            return None
        return interpolate([(point.running, point.e2e_s) for point in self.seen.points], running)

    def gpu_power_w(self, running: float) -> tuple[float | None, str]:
        """Watts of one of its GPUs with so many in flight, and their source: `typed`, `seen` (measured at such a load)
        or `limit` (that of the board); None and an empty source where they are not known."""
        if self.server is not None and self.server.gpu_power_w is not None:
            return self.server.gpu_power_w, "typed"
        if self.alike and self.seen is not None:
            points = [(point.running, point.power_w) for point in self.seen.points]
            power_w = interpolate(points, running) or self.seen.power_w
            if power_w is not None:
                return power_w / self.gpus, "seen"
        if self.gpu is not None and self.gpu.tdp_w:
            return (self.gpu.tdp_w, "limit")
        return (None, "")


def interpolate(points: Sequence[tuple[float, float | None]], load: float) -> float | None:
    """The value at a load, linear between points (load, value) by rising load, flat beyond them; None without any."""
    known = [(point_load, value) for point_load, value in points if value is not None]
    if not known:
        return None
    low_load, low_value = max((point for point in known if point[0] <= load), default=known[0])
    high_load, high_value = min((point for point in known if point[0] >= load), default=known[-1])
    if high_load <= low_load:
        return low_value
    return low_value + (high_value - low_value) * (load - low_load) / (high_load - low_load)


def engine_to_size(workload: Workload, seen: Observed | None) -> str:
    """The engine that is sized: typed, or else that of the profile; empty where neither is known."""
    if workload.engine or seen is None:
        return workload.engine
    return engine_of(seen.tool)
