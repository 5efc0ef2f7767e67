"""Engines that hand requests on to others: their tokens and requests are those of the engines behind them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from gpumon.readings.frame import EngineKind
from gpumon.readings.snapshot import Engine
from gpumon.specs.llm_names import llm_name

FRONTENDS: Final = frozenset({EngineKind.DYNAMO})
"""Kinds that pass requests on: their workers hold the GPUs, serve the model, and count the same tokens."""


def adding_up(engines: Iterable[Engine]) -> list[Engine]:
    """The engines of a sum, each token and request in it once: without frontends of models that others here serve."""
    every = list(engines)
    served = {model_key(engine.model) for engine in every if engine.kind not in FRONTENDS}
    return [engine for engine in every if engine.kind not in FRONTENDS or model_key(engine.model) not in served]


@lru_cache(maxsize=512)
def model_key(model: str) -> tuple[str, ...]:
    """What is equal for the names of one model, however they are written; empty for no name."""
    return llm_name(model).key or ((model,) if model else ())
