"""Engines of one model with the same settings: what one of them shows holds for the others, so they share it."""

from __future__ import annotations

import math
import re
from typing import Final

import msgspec

from gpumon.readings.missing import Missing, number
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.sizing.gathered import Gathered, Traffic
from gpumon.sizing.observed import Observed, Origin

MOST_MIXES: Final = 3
POOL_TOLERANCE: Final = 0.1
"""KV pools of replicas differ by what else lay in memory when each started; by more than this it is another setting."""
MOST_PER_STEP: Final = 64.0
"""Tokens per step and sequence beyond which nothing that an engine says is believed."""
_MOST_SEQUENCES: Final = re.compile(r"--max[-_]num[-_]seqs[= ](\d{1,6})\b")


class Setting(msgspec.Struct, frozen=True):
    """What a restart may change; empty or 0 is not known (yet)."""

    model: str
    gpu: str
    """Catalogue name."""
    gpus: int
    """Of one instance."""
    tp: int
    weight_precision: str
    kv_precision: str
    tool: str
    """Engine and version."""
    pool_tokens: float
    """KV pool of one instance."""

    def agrees(self, other: Setting) -> bool:
        """Whether nothing that both know differs."""
        if self.pool_tokens and other.pool_tokens:
            ratio = self.pool_tokens / other.pool_tokens
            if not 1.0 / (1.0 + POOL_TOLERANCE) <= ratio <= 1.0 + POOL_TOLERANCE:
                return False
        tools = f"{self.tool} ".startswith(f"{other.tool} ") or f"{other.tool} ".startswith(f"{self.tool} ")
        names = ("model", "gpu", "gpus", "tp", "weight_precision", "kv_precision")
        pairs = ((getattr(self, name), getattr(other, name)) for name in names)
        return tools and all(a == b or not a or not b for a, b in pairs)

    def filled(self, other: Setting) -> Setting:
        """This one, with what only the other knows."""
        known = {name: getattr(self, name) or getattr(other, name) for name in self.__struct_fields__}
        return Setting(**{**known, "tool": max(self.tool, other.tool, key=len)})


class Replicas:
    """What is known of one instance, whichever of the engines it was seen on."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.names: dict[str, str] = {}
        """URL -> name of each engine."""
        self.last_s = -math.inf
        self.time = ""
        """When one of them was last seen (RFC 3339)."""
        self.prefill_tokens_per_s = 0.0
        self.lengths: Traffic | None = None
        """Of the requests that ended last on one of them: what is known of the traffic before there is a point."""
        self._mixes: list[Gathered] = []
        self._current: Gathered | None = None
        self._memory_bytes: float | None = None
        self._tokens_per_step: float | None = None
        self._told: int | None = None
        """max_num_seqs as the command line says."""
        self._plateau: float | None = None
        self._most_running = 0.0

    def holds(self, setting: Setting) -> bool:
        """Whether an engine with this setting belongs here."""
        return self.setting.agrees(setting)

    def lose(self, url: str) -> None:
        """An engine is something else now; the name of the last one stays with what it showed."""
        if len(self.names) > 1:
            self.names.pop(url, None)

    def learn(self, setting: Setting) -> None:
        """Fill what was not known before."""
        self.setting = self.setting.filled(setting)

    def notice(self, engine: Engine, here: list[Gpu]) -> None:
        """Look at its memory, its speculation and its processes' command lines."""
        found = _memory(engine, here)
        if found is not None:
            self._memory_bytes = found / engine.ranks
        per_step = number(engine.tokens_per_step)
        if per_step is not None and 1.0 <= per_step <= MOST_PER_STEP:
            self._tokens_per_step = per_step
        for gpu in here:
            for process in gpu.processes:
                if process.engine == engine.name and (told := _MOST_SEQUENCES.search(process.command)):
                    self._told = int(told[1])

    def mix(self, traffic: Traffic, requests: float) -> Gathered:
        """The mix that `traffic`, a mean of so many requests, belongs to; it becomes the current one.

        The current mix is kept while it holds, so that lengths at the edge do not go to and fro.
        """
        candidates = sorted(self._mixes, key=lambda mix: (mix is not self._current, mix.traffic.distance(traffic)))
        found = next((mix for mix in candidates if mix.holds(traffic, requests)), None)
        if found is None:
            found = Gathered(traffic)
            self._mixes.append(found)
            if len(self._mixes) > MOST_MIXES:
                self._mixes.remove(min(self._mixes[:-1], key=lambda mix: mix.last_s))
        self._current = found
        return found

    def plateau(self, running: float) -> None:
        """An instance with room in its KV pool let no more than `running` in while others waited."""
        self.exceeded(running)
        if running >= self._most_running:
            self._plateau = running

    def exceeded(self, running: float) -> None:
        """So many ran: a limit that was seen below was none."""
        self._most_running = max(self._most_running, running)
        if self._plateau is not None and running > self._plateau:
            self._plateau = None

    @property
    def max_num_seqs(self) -> int | None:
        """The engine's limit: from its command line, else where it was seen to stop."""
        if self._told is not None:
            return self._told
        return round(self._plateau) if self._plateau else None

    def observed(self) -> Observed:
        """All of it, with the points of the current mix."""
        mix, setting = self._current, self.setting
        traffic = mix.traffic if mix is not None else self.lengths
        points = mix.points() if mix is not None else ()
        names = sorted(self.names.values())
        return Observed(
            origin=Origin.LIVE,
            name=f"{names[0]} +{len(names) - 1}" if len(names) > 1 else "".join(names),
            model=setting.model,
            points=points,
            time=self.time,
            tool=setting.tool,
            gpu=setting.gpu,
            gpus=setting.gpus,
            tp=setting.tp,
            weight_precision=setting.weight_precision,
            kv_precision=setting.kv_precision,
            prompt_tokens=traffic.prompt_tokens if traffic is not None else None,
            answer_tokens=traffic.answer_tokens if traffic is not None else None,
            prefix_hit_ratio=traffic.hit_ratio if traffic is not None else None,
            itl_tail_ratio=mix.itl_tail_ratio if mix is not None else None,
            ttft_tail_ratio=mix.ttft_tail_ratio if mix is not None else None,
            kv_pool_tokens=setting.pool_tokens or None,
            max_num_seqs=self.max_num_seqs,
            memory_bytes=self._memory_bytes,
            busy_ratio=points[-1].busy_ratio if points else None,
            power_w=points[-1].power_w if points else None,
            tokens_per_step=self._tokens_per_step,
            prefill_tokens_per_s=self.prefill_tokens_per_s or None,
        )


def _memory(engine: Engine, here: list[Gpu]) -> float | None:
    """GPU memory of its processes; of a GPU that it has to itself, where those are hidden, all that is in use."""
    total = 0.0
    for gpu in here:
        own = [process.vram_bytes for process in gpu.processes if process.engine == engine.name]
        known = [taken for taken in own if not isinstance(taken, Missing)]
        if own and len(known) == len(own):
            total += sum(known)
        elif gpu.engines == (engine.name,) and not isinstance(gpu.vram_used_bytes, Missing):
            total += gpu.vram_used_bytes
        else:
            return None
    return total if here else None
