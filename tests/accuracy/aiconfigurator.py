"""Eight questions to gpumon and to aiconfigurator, on aggregated servers and on pools of prefill and decode.

    python -m tests.accuracy.aiconfigurator [--markdown docs/sizing-accuracy.md]

aiconfigurator's answers are those of its version 0.12.0, with its tables of vLLM 0.24:

    aiconfigurator cli recommend --backend vllm --model-path M --system S --isl P --osl A --tpot T --ttft F \\
        --target-concurrency N (or --target-request-rate N)

Its load is what its plan carries, ours what was asked. gpumon plans with `planning_factor = 1` here, and with the same
goal for the mean gap between tokens; its TTFT goal does not count, as TTFT was not measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.readings.missing import number
from gpumon.sizing.answer import DisaggregatedPlan, WorkloadPlan
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Disaggregated, Scenario, Server, TargetKind, Workload
from tests.accuracy.tables import markdown, write
from tests.sizing.questions import KNOWN

BEGIN, END = "<!-- aiconfigurator: begin, written by `make silicon` -->", "<!-- aiconfigurator: end -->"
HEAD: Final = ("asked", "gpumon, aggregated", "aiconfigurator", "gpumon, prefill + decode", "aiconfigurator")


class Question(NamedTuple):
    """A question, and the GPUs, split, tokens/s per GPU and ITL in ms that aiconfigurator answers."""

    model: str
    gpu: str
    target: float
    kind: TargetKind
    prompt: float
    answer: float
    itl_ms: float
    aggregated: tuple[int, str, float, float]
    pools: tuple[int, str, float, float]


QWEN, LLAMA_8B, LLAMA_70B = "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"
H100, H200, B200, L40S = "H100 SXM5 80GB", "H200 SXM 141GB", "B200 SXM 180GB", "L40S"
FLIGHT: Final[TargetKind] = "concurrency"
RATE: Final[TargetKind] = "requests_per_s"
QUESTIONS: Final = (
    Question(QWEN, H100, 100, FLIGHT, 4000, 500, 40, (6, "3 x TP 2", 509, 38.4), (8, "4 (1) + 1 (4)", 536, 32.4)),
    Question(LLAMA_8B, H100, 500, FLIGHT, 1024, 512, 20, (4, "4 x TP 1", 6769, 18.7), (8, "3 (1) + 5 (1)", 5594, 19.8)),
    Question(LLAMA_70B, H200, 200, FLIGHT, 2000, 500, 50, (8, "2 x TP 4", 589, 46.8), (8, "2 (2) + 2 (2)", 480, 40.7)),
    Question(QWEN, H100, 10, RATE, 8000, 200, 25, (20, "5 x TP 4", 101, 24.8), (24, "18 (1) + 3 (2)", 112, 24.7)),
    Question(
        LLAMA_8B, "L40S", 200, FLIGHT, 1024, 256, 50, (5, "5 x TP 1", 989, 47.7), (4, "2 (1) + 1 (2)", 1009, 49.5)
    ),
    Question(LLAMA_8B, H200, 300, FLIGHT, 2000, 300, 30, (3, "3 x TP 1", 4018, 27.4), (4, "2 (1) + 1 (2)", 2896, 16.8)),
    Question(QWEN, B200, 200, FLIGHT, 2000, 500, 30, (4, "2 x TP 2", 2177, 28.8), (4, "2 (1) + 2 (1)", 2184, 29.5)),
    Question(LLAMA_70B, H100, 5, RATE, 1000, 300, 40, (4, "1 x TP 4", 598, 39.3), (8, "2 (2) + 1 (4)", 569, 24.6)),
)


def asked(question: Question) -> WorkloadPlan:
    """The plan for a question."""
    workload = Workload(
        question.model,
        question.target,
        question.kind,
        prompt_tokens=question.prompt,
        answer_tokens=question.answer,
        itl_mean_ms=question.itl_ms,
        disaggregated=Disaggregated(),
    )
    scenario = Scenario(server=(Server(question.gpu, 8),), workload=(workload,), planning_factor=1.0)
    return plan(scenario, KNOWN).workloads[0]


def lines() -> Iterator[tuple[str, ...]]:
    """A line for each question."""
    for question in QUESTIONS:
        answer = asked(question)
        unit = "in flight" if question.kind == FLIGHT else "requests/s"
        lengths = f"{question.prompt:,.0f} / {question.answer:,.0f}"
        words = f"{question.model.rpartition('/')[2]}, {question.gpu}, {question.target:g} {unit}"
        yield (
            f"{words}, {lengths}, {question.itl_ms:g} ms",
            aggregated_text(answer),
            theirs(question.aggregated),
            pools_text(answer.disaggregated),
            theirs(question.pools),
        )


def theirs(answer: tuple[int, str, float, float]) -> str:
    """An answer of aiconfigurator."""
    gpus, split, tokens_per_s, itl_ms = answer
    return f"{gpus} GPUs: {split}; {tokens_per_s:,.0f} tok/s per GPU, {itl_ms:.0f} ms"


def aggregated_text(answer: WorkloadPlan) -> str:
    """gpumon's answer on servers that do both."""
    gpus = number(answer.gpus)
    if not gpus:
        return answer.problem
    per_gpu = (number(answer.tokens_per_s) or 0.0) / gpus
    itl_ms = (number(answer.itl_s) or 0.0) * 1e3
    instances = number(answer.instances) or 0.0
    return f"{gpus:.0f} GPUs: {instances:.0f} x TP {answer.tp}; {per_gpu:,.0f} tok/s per GPU, {itl_ms:.0f} ms"


def pools_text(pools: DisaggregatedPlan | None) -> str:
    """gpumon's answer on two pools."""
    if pools is None or pools.problem or pools.prefill is None or pools.decode is None:
        return "" if pools is None else pools.problem
    split = " + ".join(f"{pool.instances:.0f} ({pool.tp})" for pool in (pools.prefill, pools.decode))
    per_gpu = number(pools.tokens_per_s_per_gpu) or 0.0
    itl_ms = (number(pools.itl_s) or 0.0) * 1e3
    return f"{number(pools.gpus):.0f} GPUs: {split}; {per_gpu:,.0f} tok/s per GPU, {itl_ms:.0f} ms"


def main() -> None:
    """Print the table, or write it into a document."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy.aiconfigurator")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    text = markdown(HEAD, list(lines()))
    if chosen.markdown is None:
        print(text)
    else:
        write(chosen.markdown, text, BEGIN, END)


if __name__ == "__main__":
    main()
