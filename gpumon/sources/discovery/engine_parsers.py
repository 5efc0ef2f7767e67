"""Options of engines' own parsers: which there are, and how many words each takes (`make parsers` reads them)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from gpumon.config.resources import resource
from gpumon.readings.frame import EngineKind

_BY_NAME: Final = {
    "vllm": EngineKind.VLLM,
    "sglang": EngineKind.SGLANG,
    "llamacpp": EngineKind.LLAMA_CPP,
    "tgi": EngineKind.TGI,
}
"""Name of an engine in the table -> its kind."""
MOST_WORDS: Final = 100_000
"""Words of an option that takes any number of them."""
_WORDS: Final = {"0": 0, "1": 1, "2": 2, "?": 1, "*": MOST_WORDS, "+": MOST_WORDS}
"""Number of words as argparse writes it -> the most that belong to the option."""


@cache
def _tables() -> Mapping[EngineKind, Mapping[str, int]]:
    """Options by kind of engine; those that nobody has read have no table."""
    tables: dict[EngineKind, dict[str, int]] = {}
    for line in resource("specs/data/engine_parsers.tsv").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        engine, names, words = line.split("\t")
        table = tables.setdefault(_BY_NAME[engine], {})
        table.update(dict.fromkeys(names.split(), _WORDS[words]))
    return tables


def parser_options(kind: EngineKind) -> Mapping[str, int]:
    """The options of an engine of this kind -> the words that each takes; empty where its parser is not known."""
    return _tables().get(kind, {})
