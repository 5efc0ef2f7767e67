"""Names by which people call GPUs when they plan: parts of a name and its memory, and the names that are near one."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Final

from gpumon.specs.gpu import GpuSpec

USUAL: Final = (
    *("A100 SXM4 80GB", "H100 SXM5 80GB", "H200 SXM 141GB", "B200 SXM 180GB", "GH200 96GB HBM3"),
    *("GeForce RTX 4090", "GeForce RTX 5090", "GeForce RTX 3090"),
)
"""Parts that a name of several stands for where one plans, and nothing more is said."""
_WORDS: Final = re.compile(r"[a-z]+\d+[a-z]*|\d+|[a-z]+")
"""Words of a name: `h100`, `80`, `gb`."""
_SAYS_NOTHING: Final = frozenset({"nvidia", "amd", "geforce", "instinct", "gb", "gib", "g", "gpu", "tensor", "core"})
"""Words that tell no part from another."""
_SOCKET: Final = re.compile(r"sxm\d")


def planned_gpu(text: str, by_short: Mapping[str, GpuSpec]) -> GpuSpec | None:
    """The GPU that somebody means who plans, by the words of its name and its memory.

    Of several the usual one (`USUAL`), or the only one with a socket of its own (SXM); None where that tells none. What
    runs is never looked up so: an H100 may be another part than the usual one, with other peaks.
    """
    by_name = {spec.name: spec for spec in by_short.values()}
    asked = _words(text)
    candidates = [spec for spec in by_name.values() if asked and asked <= _words(spec.name) | _memory_words(spec)]
    usual = [spec for spec in candidates if spec.name in USUAL]
    on_boards = [spec for spec in candidates if "SXM" in spec.name]
    for choice in (candidates, usual, on_boards):
        if len(choice) == 1:
            return choice[0]
    return None


def _words(name: str) -> set[str]:
    """The words of a name that tell parts apart; `SXM5` is `SXM`."""
    words = {_SOCKET.sub("sxm", word) for word in _WORDS.findall(name.casefold())}
    return words - _SAYS_NOTHING


def _memory_words(spec: GpuSpec) -> set[str]:
    """The size of its memory in GB as the word that a name may have for it."""
    return {f"{spec.memory_bytes / 1024**3:.0f}"}


def nearest_names(text: str, names: Iterable[str]) -> list[str]:
    """All names, those first that share the words with `text` that fewest names have, then those with words like it.

    A whole word in common counts before any likeness of letters: `RTX 5090 33GB` is near every 5090, and no RTX 3080.
    """
    words_by_name = {name: _words(name) for name in names}
    frequency = Counter(word for words in words_by_name.values() for word in words)
    asked = _words(text)

    def distance(name: str) -> tuple[float, float, int, str]:
        words = words_by_name[name]
        shared = sum(math.log((len(words_by_name) + 1) / frequency[word]) for word in asked & words)
        likeness = sum(_best_likeness(word, words) for word in asked)
        return -shared, -likeness, abs(len(name) - len(text)), name

    return sorted(words_by_name, key=distance)


def _best_likeness(word: str, words: Iterable[str]) -> float:
    """The largest share of letters that a word has in common with one of these."""
    return max((SequenceMatcher(None, word, other).ratio() for other in words), default=0.0)
