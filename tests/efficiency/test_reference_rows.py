"""Published measurements and predictions, recomputed: every row of reference_rows.csv within 10% of its figures.

A figure that its table prints with one digit may also lie within its rounding ("0.2" stands for 0.15 to 0.25). What
misses both stands in AMBIGUOUS with the reason, and is held to a wider bound.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gpumon.efficiency import flops, ratio, traffic
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.specs.llm import Attention, LlmSpec, Reach
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.precision import Precision
from tests.each_row import each_row

ROWS = list(csv.DictReader((Path(__file__).parents[1] / "data" / "reference_rows.csv").read_text().splitlines()))
TOLERANCE = 0.10

_COUNTS_TABLE = (
    "the table's 8B figures fit 2 x 8.03 B FLOPs a token, embedding look-up included; only 7.50 B are multiplied"
)
_REPLICATED = "the source counts embedding and LM head on every rank: see the test of its bandwidths below"
AMBIGUOUS = {
    ("G6", "mbu"): (0.15, _REPLICATED),
    ("G7", "mbu"): (0.25, _REPLICATED),
    ("D1", "mfu"): (0.13, _COUNTS_TABLE),
    ("D6", "mfu"): (0.11, _COUNTS_TABLE),
    ("T12", "mfu"): (0.15, "the table counts MLA decode with full keys and values; engines run the absorbed form"),
    ("M12", "mfu"): (0.65, "a lower bound without attention; answers of 3,700 tokens add 43% to a token's FLOPs"),
    ("A14", "mbu"): (0.20, "KV precision not stated: 44% with BF16, 37% with FP8"),
}
"""(row, quantity) -> how far it may be off, and why the source's inputs do not settle it."""

NOT_COMPUTABLE = {
    "B2": "a ratio of two speeds, no MBU",
    "B3": "an MBU without a speed (60% and 55%): nothing to compute it from",
    "X1": "GPU type not stated, no MBU",
    "X2": "GPU type not stated, no MBU",
    "E1-E4": "inferences of unknown length, no MFU or MBU",
}
"""Rows of the fact sheet that have no figure to hold."""


def llm_of(row: dict[str, str]) -> LlmSpec:
    if row["model"] == "Llama-2-7B-int4-g32":
        config = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}}
        return llm_from_config({**LLAMA_2_7B, **config}, "Llama-2-7B", "test")
    spec = llm_catalogue().find(row["model"])
    assert spec is not None
    return spec


LLAMA_2_7B = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}


def mbu(row: dict[str, str]) -> float:
    """Steps per second from the inter-token latency, else from tokens/s and batch."""
    llm, gpus = llm_of(row), int(row["gpus"])
    batch = float(row["batch"])
    steps = 1000.0 / float(row["itl_ms"]) if row["itl_ms"] else float(row["tokens_per_s"]) / batch
    context = float(row["prompt"]) + float(row["answer"]) / 2
    kv = Precision(row["kv"]) if row["kv"] else None
    per_s = traffic.step_bytes_per_s(llm, steps, steps * batch, context, tp=gpus, kv_precision=kv)
    return 100.0 * ratio.mbu(per_s, gpus, gpu_catalogue().find(row["gpu"]).bandwidth_bytes_per_s)


def mfu(row: dict[str, str]) -> float:
    llm, gpu = llm_of(row), gpu_catalogue().find(row["gpu"])
    chosen = flops.compute_peak(gpu, llm)
    assert chosen is not None
    peak = gpu.flops_per_s[Precision(row["peak"])] if row["peak"] else chosen[0]
    rate, prompt, answer = float(row["tokens_per_s"]), float(row["prompt"]), float(row["answer"])
    prefill = flops.prefill_flops_per_token(llm, prompt)
    if row["phase"] == "prefill":
        needed = rate * (prefill + flops.head_flops(llm) / prompt)
    else:
        needed = rate * flops.decode_flops_per_token(llm, prompt + answer / 2)
        if row["phase"] == "all":
            needed += rate / answer * (prompt * prefill + flops.head_flops(llm))
    return 100.0 * ratio.mfu(needed, int(row["gpus"]), peak)


def single_stream(row: dict[str, str]) -> float:
    per_s = traffic.single_stream_bytes_per_s(llm_of(row), float(row["tokens_per_s"]))
    return 100.0 * ratio.mbu(per_s, int(row["gpus"]), gpu_catalogue().find(row["gpu"]).bandwidth_bytes_per_s)


QUANTITIES = {"mbu": mbu, "mfu": mfu, "single_stream": single_stream}
CASES = [
    pytest.param(row, quantity, row[f"{quantity}_pct"], id=f"{row['id']}-{quantity}")
    for row in ROWS
    for quantity in QUANTITIES
    if row[f"{quantity}_pct"]
]


def within(computed: float, printed: str, tolerance: float) -> bool:
    expected = float(printed)
    if abs(computed / expected - 1.0) <= tolerance:
        return True
    digits = printed.lstrip("0.")
    unit = 10.0 ** -len(printed.partition(".")[2])
    return len(digits) == 1 and abs(computed - expected) <= unit / 2


@each_row(("row", "quantity", "printed"), CASES)
def test_a_published_figure_comes_out(row: dict[str, str], quantity: str, printed: str) -> None:
    computed = QUANTITIES[quantity](row)
    tolerance, reason = AMBIGUOUS.get((row["id"], quantity), (TOLERANCE, ""))
    assert within(computed, printed, tolerance), (
        f"{row['id']} {quantity}: {computed:.2f}% for {printed}% ({row['source']}; {row['note']}) {reason}"
    )


def test_no_row_is_called_ambiguous_without_need() -> None:
    rows = {row["id"]: row for row in ROWS}
    for row_id, quantity in AMBIGUOUS:
        row = rows[row_id]
        assert not within(QUANTITIES[quantity](row), row[f"{quantity}_pct"], TOLERANCE), row_id


def test_every_row_has_a_source_and_a_figure() -> None:
    assert len(CASES) > 150
    for row in ROWS:
        assert row["source"]
        assert any(row[f"{quantity}_pct"] for quantity in QUANTITIES), row["id"]
    assert not {row["id"] for row in ROWS} & set(NOT_COMPUTABLE)


@each_row(("gpus", "tokens_per_s", "gb_per_s"), [(1, 104.9, 1397), (2, 168.8, 1182), (4, 254.0, 956), (8, 328.4, 704)])
def test_gpt_fast_prints_its_replicated_tables(gpus: int, tokens_per_s: float, gb_per_s: float) -> None:
    """Why G5 to G7 read low: per rank gpt-fast counts its share of the layers plus both vocabulary tables."""
    llm = llm_from_config(LLAMA_2_7B, "Llama-2-7B", "test")
    head = llm.vocab * llm.hidden * 2.0
    per_rank = (llm.read_bytes - head) / gpus + 2 * head
    assert per_rank * tokens_per_s / 1e9 == pytest.approx(gb_per_s, rel=0.02)


@each_row(("row_id", "factor"), [("N1", 1.0), ("N2", 4.6), ("D2", 10.0), ("N5", 42.0), ("N10", 123.0)])
def test_batching_breaks_the_single_stream_form_by_about_the_batch(row_id: str, factor: float) -> None:
    row = next(each for each in ROWS if each["id"] == row_id)
    assert single_stream(row) / mbu(row) == pytest.approx(factor, rel=TOLERANCE)


def test_the_scaling_book_step_times_are_exact() -> None:
    """jax-ml scaling-book, inference: Llama-2-13B on 8 TPU v5e, 26 GB of weights and 6.7 GB of KV per sequence."""
    llm = LlmSpec(
        name="S1",
        source="scaling book",
        params=13e9,
        matmul_params=13e9,
        head_params=0.0,
        vocab=0,
        hidden=5120,
        layers=1,
        heads=40,
        kv_heads=40,
        head_dim=128,
        # With 8,000 tokens in BF16: the 6.7 GB that the book rounds to.
        attention=(Attention(Reach.FULL, 1, 0.0, 0.0, elements=418_750, kv_heads=40),),
        read_bytes=26e9,
    )
    cells = {1: (4.98, 201), 16: (20.30, 788), 240: (249.1, 964)}
    for batch, (milliseconds, tokens_per_s) in cells.items():
        steps = 1.0 / (traffic.step_bytes_per_s(llm, 1.0, batch, 8000.0) / (8 * 0.82e12))
        assert ratio.mbu(traffic.step_bytes_per_s(llm, steps, steps * batch, 8000.0), 8, 0.82e12) == pytest.approx(1.0)
        assert 1000.0 / steps == pytest.approx(milliseconds, abs=0.05 if batch == 240 else 0.005)
        assert round(steps * batch) == tokens_per_s


def test_databricks_example() -> None:
    """7B at 16 bit and 14 ms per token moves 1 TB/s: half of an A100's 2 TB/s."""
    assert ratio.mbu(7e9 * 2 / 0.014, 1, 2e12) == pytest.approx(0.5)
