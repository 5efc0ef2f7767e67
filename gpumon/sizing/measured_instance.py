"""The instance that a profile was measured on, by the catalogues, and how far it is the one that is sized."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.sizing import memory
from gpumon.sizing.first_token import engine_of
from gpumon.sizing.latency import NO_SPECULATION, Mix, Speculation
from gpumon.sizing.profile import Observed
from gpumon.sizing.roofline import InstanceSetting
from gpumon.sizing.scenario import Catalogues, Scenario, Workload
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec

SAME_MIX: Final = 0.1
"""Share by which mean lengths of one mix may differ."""
_LEAST_SHARE: Final = 0.01
"""Length, or share, below which differences are measured against this instead."""
_DIMENSIONS: Final = (
    "params", "matmul_params", "vocab", "hidden", "layers", "attention", "states", "experts", "experts_per_token",
)  # fmt: skip
"""Dimensions that two models share which cost the same but for their precisions, whatever they are called."""


class MeasuredInstance(NamedTuple):
    """The instance that a profile was measured on, by the catalogues."""

    seen: Observed
    llm: LlmSpec | None = None
    """Its model at its precisions; None where they are not known."""
    setting: InstanceSetting | None = None
    """The instance as the roofline formulas take it; None where something of it is not known."""

    @classmethod
    def look_up(cls, seen: Observed, catalogues: Catalogues, dp: int = 1) -> MeasuredInstance:
        """Look up model and GPU of a profile. Its GPUs beyond TP share the experts if they are `dp` times as many.

        What the catalogues do not have is None.
        """
        base = catalogues.llm(seen.model)
        if base is None:
            return cls(seen)
        try:
            llm = memory.variant(catalogues.llms, seen.model, base, seen.weight_precision, seen.kv_precision)
        except ValueError:
            return cls(seen)
        try:
            return cls(seen, llm, _setting_of_profile(seen, llm, catalogues, dp))
        except ValueError:
            return cls(seen, llm)

    @property
    def ranks(self) -> int:
        """Number of data-parallel ranks that share its experts."""
        setting = self.setting
        if setting is not None and setting.expert_gpus:
            return setting.expert_gpus // setting.tp
        return 1

    def same_model(self, workload: Workload, llm: LlmSpec | None) -> bool:
        """Whether it has these dimensions and precisions; for an unknown model: this name and the typed precisions."""
        own = self.llm
        if llm is not None and own is not None:
            return same_size(llm, own) and (llm.precision, llm.kv_precision) == (own.precision, own.kv_precision)
        return (
            (self.seen.model == workload.model or bool(workload.profile))
            and workload.weight_precision in ("", self.seen.weight_precision)
            and workload.kv_precision in ("", self.seen.kv_precision)
        )

    def same_mix(self, prompt: float | None, answer: float | None, hit_ratio: float) -> bool:
        """Whether it was measured with these mean lengths and hits; unknown ones do not differ."""
        computed_share = 1.0 - hit_ratio
        own_computed_share = 1.0 - (self.seen.prefix_hit_ratio or 0.0)
        return (
            _about_same(prompt, self.seen.prompt_tokens)
            and _about_same(answer, self.seen.answer_tokens)
            and _about_same(computed_share, own_computed_share)
        )

    def pool_shift_ratio(self, llm: LlmSpec | None, scenario: Scenario, catalogues: Catalogues) -> float | None:
        """Share of a GPU's memory by which its KV pool differs from the formula; None where that is not known."""
        seen = self.seen
        tokens = seen.kv_pool_tokens
        knows_gpus = seen.gpu and (seen.tp or seen.gpus)
        if llm is None or self.llm is None or not tokens or not knows_gpus or not same_size(llm, self.llm):
            return None
        tp, pp = seen.parallel
        try:
            gpu = catalogues.gpus.find(seen.gpu)
            return memory.pool_shift_ratio(
                self.llm,
                tokens,
                gpu.memory_bytes,
                gpus=tp * pp,
                tp=tp,
                usable_ratio=scenario.usable_memory_ratio,
                dp=self.ranks,
                startup=memory.startup_of(gpu, engine_of(seen.tool)),
            )
        except ValueError:
            return None


def _about_same(value: float | None, measured_value: float | None) -> bool:
    """Whether two lengths or shares count as the same mix; unknown ones do."""
    if value is None or measured_value is None:
        return True
    return abs(value - measured_value) <= SAME_MIX * max(measured_value, _LEAST_SHARE)


def same_size(llm: LlmSpec, other: LlmSpec) -> bool:
    """Whether two models cost the same but for their precisions."""
    return all(getattr(llm, name) == getattr(other, name) for name in _DIMENSIONS)


def has_hardware(seen: Observed, gpu: GpuSpec, gpus: int, tp: int) -> bool:
    """Whether a profile was measured on these GPUs with this TP; facts that were not recorded do not differ."""
    return seen.gpu in ("", gpu.name) and seen.gpus in (0, gpus) and seen.tp in (0, tp)


def _setting_of_profile(seen: Observed, llm: LlmSpec, catalogues: Catalogues, dp: int) -> InstanceSetting | None:
    """The setting of a profile; None where its GPU or its lengths are not known. Raises ValueError."""
    if not seen.gpu or seen.prompt_tokens is None or seen.answer_tokens is None:
        return None
    tp, pp = seen.parallel
    mix = Mix(seen.prompt_tokens, seen.answer_tokens, seen.prefix_hit_ratio or 0.0)
    gpus = max(tp * pp, seen.gpus)
    expert_gpus = gpus if dp > 1 and gpus == tp * dp else 0
    gpu = catalogues.gpus.find(seen.gpu)
    return InstanceSetting(llm, gpu, gpus, tp, mix, expert_gpus, speculation_of(seen), pp)


def speculation_of(seen: Observed | None) -> Speculation:
    """The speculation in a profile. Where the number of drafted tokens is not known, all drafted ones were accepted."""
    if seen is None or seen.tokens_per_step is None or seen.tokens_per_step <= 1.0:
        return NO_SPECULATION
    accepted = seen.tokens_per_step - 1.0
    return Speculation(max(accepted, seen.drafted_per_step or 0.0), accepted)
