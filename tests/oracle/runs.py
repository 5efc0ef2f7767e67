"""flops.csv and caches.csv: each model run over a prompt and one step of decode, at two lengths."""

import multiprocessing
import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from types import FrameType
from typing import Any

import torch
import transformers

from tests.oracle.configs import Source
from tests.oracle.model import ENCODERS, Language, build, read_config
from tests.oracle.run import PAIRED, counting, forward, held

Row = dict[str, object]
_FLOPS = ("linear", "experts", "head", "linear_cached", "attention", "cross", "indexer", "state", "convolution")
_TENSORS = (
    "keys", "values", "cross_keys", "cross_values", "indexer_keys", "compressed", "buffered", "conv_states",
    "recurrent_states", "other",
)  # fmt: skip
_SHORT = 128
# Beyond every window, chunk and selection of sparse attention but Llama 4's; what walks a prompt in Python, token by
# token or chunk by chunk, gets a shorter one.
_LONG = 4608
_SHORTER = {
    **dict.fromkeys(("bailing_hybrid", "glm5_next", "kimi_linear"), 512),
    **dict.fromkeys(("falcon_mamba", "jamba", "mamba", "recurrent_gemma", "rwkv", "zamba"), 160),
    **dict.fromkeys(("llama4", "llama4_text"), 9984),
    **dict.fromkeys(("bert-generation", "roc_bert", "whisper", *PAIRED), 384),  # learned positions
    **dict.fromkeys(("gpt_neo", "mpt"), 1920),
}
_PATIENCE_CPU_S = 150
# Their code needs more than token ids, or runs on no meta device.
_SKIPPED = {
    "blt", "cpmant", "ctrl", "git", "moshi", "openai-gpt", "prophetnet", "reformer", "xglm", "xlm", "xlnet",
}  # fmt: skip


def rows(sources: Iterable[Source], same: Callable[[Source], object]) -> Iterator[tuple[list[Row], list[Row]]]:
    """Rows of flops.csv and caches.csv, model by model; of models that are the `same` only the first runs."""
    unique: dict[object, Source] = {}
    for source in sources:
        if source.id not in _SKIPPED:
            unique.setdefault(same(source), source)
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_measure, unique.values())


class _TooSlowError(Exception):
    pass


def _stop(number: int, frame: FrameType | None) -> None:
    raise _TooSlowError(f"longer than {_PATIENCE_CPU_S} s of CPU time")


def _measure(source: Source) -> tuple[list[Row], list[Row]]:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, _stop)
    flops: list[Row] = []
    caches: list[Row] = []
    named: Row = {"id": source.id, "kind": source.kind, "model_type": source.config.get("model_type")}
    signal.setitimer(signal.ITIMER_PROF, _PATIENCE_CPU_S)
    try:
        encoder = source.kind == "defaults" and source.config["model_type"] in ENCODERS
        language = build(read_config(source.config), encoder, source.device)
        language.body.eval().requires_grad_(False)
        long = 512 if encoder or source.device == "cpu" else _SHORTER.get(language.config.model_type, _LONG)
        for tokens in (_SHORT, long):
            for row, cache_row in _lengths(language, tokens):
                flops.append(named | row)
                caches += [named | cache_row] if cache_row else []
    except Exception as error:  # the reason stands in the file
        note = f"not counted: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
        flops.append(
            named
            | dict.fromkeys(
                ("class", "device", "phase", "tokens", "context", *_FLOPS, "total", "state_elementwise"), ""
            )
            | {"note": note}
        )
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return flops, caches


def _lengths(language: Language, tokens: int) -> Iterator[tuple[Row, Row | None]]:
    cache: dict[str, Any] = {}
    for phase, new, context in (("prefill", tokens, 0), ("decode", 1, tokens)):
        if phase == "decode" and not language.decodes:
            return
        with counting(language, new) as counter:
            cache = forward(language, new, cache)
        split = counter.split
        head = {"class": language.class_name, "device": language.input_table.device.type}
        row: Row = head | {"phase": phase, "tokens": new, "context": context} | {name: split[name] for name in _FLOPS}
        row |= {"total": counter.get_total_flops(), "state_elementwise": split["state_elementwise"], "note": ""}
        yield row, _cache_row(language, new + context, cache) if cache else None


def _cache_row(language: Language, tokens: int, cache: dict[str, Any]) -> Row:
    (kept,) = cache.values()
    sums: Counter[str] = Counter()
    wide = 0
    for tensors in held(kept, language).values():
        for name, elements in tensors.items():
            tensor, dtype = name.split(":")
            sums[_column(tensor)] += elements
            wide += elements if dtype == "float32" else 0
    halves = [getattr(kept, half, None) for half in ("self_attention_cache", "cross_attention_cache")]
    layers = Counter(type(layer).__name__ for half in (kept, *halves) for layer in getattr(half, "layers", ()))
    return (
        {"class": language.class_name, "tokens": tokens}
        | {name: sums[name] for name in _TENSORS}
        | {"float32": wide, "layers": " ".join(f"{name}:{count}" for name, count in layers.items())}
    )


def _column(tensor: str) -> str:
    for start, column in _COLUMNS:
        if tensor.startswith(start):
            return column
    return tensor if tensor in _TENSORS else "other"


_COLUMNS = (
    ("compressed", "compressed"),
    ("buffer", "buffered"),
    ("overlap", "buffered"),
    ("idx_keys", "indexer_keys"),
    ("index_keys", "indexer_keys"),
    ("linear_cache", "recurrent_states"),
    ("rnn_state", "recurrent_states"),
)
