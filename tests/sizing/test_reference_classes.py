"""What a plan says of the errors of classes that no reference row is of."""

from __future__ import annotations

import msgspec

from gpumon.outputs.sizing_data import encode
from gpumon.sizing.accuracy import NO_BAND, NOT_MEASURED, band_of
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.each_row import each_row
from tests.sizing.questions import KNOWN

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
REASONS = [
    ("L40S", LLAMA, {}, "of a GPU of the generation Ada Lovelace"),
    ("Instinct MI300X", LLAMA, {}, "of a GPU of the generation CDNA3"),
    ("GB10", LLAMA, {}, "of a GPU whose memory is as slow as that of GB10"),
    ("H100 SXM5 80GB", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", {}, "of a model below 3 billion parameters"),
    ("H100 SXM5 80GB", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", {}, "of a model with such recurrent layers"),
    ("H100 SXM5 80GB", LLAMA, {"weight_precision": "int4"}, "of a dense model whose weights are widened"),
]


def asked(gpu: str, model: str, fields: dict[str, str]) -> Scenario:
    workload = Workload(model, 20.0, prompt_tokens=500.0, answer_tokens=200.0, tp=1, **fields)
    return Scenario(server=(Server(gpu, 1),), workload=(workload,))


@each_row(("gpu", "model", "fields", "reason"), REASONS)
def test_a_class_without_rows_says_so_and_is_null(gpu: str, model: str, fields: dict[str, str], reason: str) -> None:
    answer = plan(asked(gpu, model, fields), KNOWN)
    row = answer.workloads[0]
    assert row.band == NO_BAND
    assert row.errors_text == NOT_MEASURED
    assert any(NOT_MEASURED in note and reason in note for note in row.notes), row.notes
    printed = msgspec.json.decode(encode(answer))["workloads"][0]
    assert printed["band"] is None
    assert printed["missing"]["band"] == "not_measured"


def test_a_class_with_rows_has_its_own_band() -> None:
    row = plan(asked("B200 SXM 180GB", LLAMA, {"weight_precision": "nvfp4"}), KNOWN).workloads[0]
    assert row.band == band_of("itl nvfp4", 1, moe=False)
    assert row.band != band_of("itl", 1, moe=False)
