"""The catalogues that ship with gpumon, read once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from gpumon.specs.gpus import GpuCatalogue, parse_gpus
from gpumon.specs.llms import LlmCatalogue, parse_llms


@cache
def gpu_catalogue() -> GpuCatalogue:
    """The packaged `gpus.csv`."""
    return parse_gpus(_text("gpus.csv"))


@cache
def llm_catalogue() -> LlmCatalogue:
    """The packaged `llms.jsonl`."""
    return parse_llms(_text("llms.jsonl"))


def _text(name: str) -> str:
    return files("gpumon.specs").joinpath("data", name).read_text(encoding="utf-8")
