"""Measured rows of tests/data/silicon.csv, and files like it, as the types of sizing."""

from __future__ import annotations

import csv
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sizing import memory
from gpumon.sizing.latency import NO_SPECULATION, Mix, Speculation
from gpumon.sizing.roofline import InstanceSetting, step_cost
from gpumon.sizing.scenario import Scenario
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue

DATA: Final = Path(__file__).parents[1] / "data" / "silicon.csv"
RECENT: Final = DATA.with_name("measured-2026.csv")
GPUS: Final = {
    "a100_sxm": "A100 SXM4 80GB",
    "h100_sxm": "H100 SXM 80GB",
    "h200_sxm": "H200 SXM 141GB",
    "b200_sxm": "B200 SXM 180GB",
    "b300_sxm": "B300 SXM 288GB",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "MI300X": "Instinct MI300X",
    "GB300 288GB": "GB300",
    "RTX 4090": "GeForce RTX 4090",
}
PRECISIONS: Final = {"fp8": "fp8", "fp4": "nvfp4", "bf16": "bf16", "nvfp4": "nvfp4", "int4": "int4", "": ""}
SAME: Final = {"moonshotai/Kimi-K2.5": "moonshotai/Kimi-K2-Instruct"}
"""Language models with the dimensions of one in the catalogue, where the catalogue lacks them."""
MOST_GPUS: Final = 8
"""Of one instance: rows of more count the GPUs of several instances, prefill and decode apart."""
USABLE: Final = Scenario().usable_memory_ratio
"""Share of the memory that the product plans with."""
FEW_PROMPTS: Final = "about 50 prompts at every load"
"""Note of rows whose higher loads are one wave of prompts, which no prompt interrupts."""
FITS_NO_REQUEST: Final = "weights leave no room for one request"


class Row(NamedTuple):
    """One measured row as the types of sizing."""

    model: str
    gpu: str
    engine: str
    setting: InstanceSetting
    running: float
    """What runs of the requests that the client held open: what fits the KV cache, or the engine's limit lets in."""
    offered: float
    itl_s: float
    ttft_s: float
    sweep: tuple[str, ...]
    """Rows with the same differ in load alone."""
    rate: float = 0.0
    """Requests/s of an open loop; 0: a closed one."""
    note: str = ""

    @property
    def tp(self) -> int:
        return self.setting.tp

    @property
    def moe(self) -> bool:
        return bool(self.setting.llm.experts)

    @property
    def family(self) -> str:
        """Models of one name with the publisher's prefixes and formats cut off: they are left out together."""
        return _family(self.model)


@functools.cache
def _family(model: str) -> str:
    name = model.rsplit("/", 1)[-1].lower()
    for ending in ("-fp8", "-nvfp4", "-instruct"):
        name = name.replace(ending, "")
    return "deepseek-671b" if name.startswith(("deepseek-v3", "deepseek-r1")) else name


def ranks(tp: int, ep: int, dp: int) -> tuple[int, int]:
    """TP and data-parallel ranks, from the columns tp, ep, attention_dp.

    Files of one run write its parallelism in different ways: the same latencies stand as (4, 4, 1) in one and as
    (16, 4, 1) or (4, 16, 4) in another, the number of GPUs being 4 throughout; (1, 8, 8) is (1, 8, 64) elsewhere.
    """
    ep, dp = max(ep, 1), max(dp, 1)
    if ep > 1 and tp == ep * ep:
        tp = ep
    elif tp > 1 and ep == tp * tp:
        ep, dp = tp, 1
    elif tp == 1 and dp == ep * ep and ep > 1:
        dp = ep
    return tp, dp


def speculation_of(cell: str) -> Speculation:
    """Drafted and kept tokens per step, as `3;2.31`; none of an empty cell."""
    if not cell:
        return NO_SPECULATION
    drafted, kept = cell.split(";")
    return Speculation(float(drafted), float(kept))


def decoding(offered: float, ttft_s: float, itl_s: float, answer_tokens: float) -> float:
    """Requests that run where most of a response is waiting, by Little's law; else all that were offered.

    Files do not name an engine's limit on sequences: some hold 512 requests open of which 100 decode.
    """
    decode_s = itl_s * (answer_tokens - 1.0)
    if ttft_s <= decode_s:
        return offered
    return max(1.0, offered * decode_s / (decode_s + ttft_s))


@functools.cache
@functools.cache
def read(file: Path) -> tuple[list[Row], Counter[str]]:
    """The rows that can be predicted, and why others cannot; a file is read once in a process."""
    gpus, llms = gpu_catalogue(), llm_catalogue()
    rows, left = list[Row](), Counter[str]()
    with file.open(encoding="utf-8", newline="") as stream:
        for cells in csv.DictReader(stream):
            tp, dp = ranks(int(cells["tp"]), int(cells.get("ep") or 1), int(cells.get("attention_dp") or cells["dp"]))
            name = cells["model"]
            llm = llms.find(name) or llms.find(SAME.get(name, ""))
            if tp * dp > MOST_GPUS:
                left[f"more than {MOST_GPUS} GPUs as one instance"] += 1
                continue
            if llm is None:
                left[f"not in the catalogue: {name}"] += 1
                continue
            if cells.get("note") == FEW_PROMPTS:
                left[FEW_PROMPTS] += 1
                continue
            wanted = "mxfp4" if "gpt-oss" in name else PRECISIONS[cells["precision"]]
            try:
                llm = memory.variant(llms, name, llm, wanted, "")
                mix = Mix(float(cells["isl"]), float(cells["osl"]))
                gpu = gpus.find(GPUS.get(cells["gpu"], cells["gpu"]))
                speculation = speculation_of(cells.get("speculative") or "")
                setting = InstanceSetting(llm, gpu, tp * dp, tp, mix, tp * dp if dp > 1 else 0, speculation)
                step_cost(setting)
                startup = memory.startup_of(gpu, cells["engine"])
                pool = memory.pool_tokens(llm, gpu.memory_bytes, tp * dp, tp, USABLE, dp=dp, startup=startup)
                request = memory.request_tokens(llm, mix.prompt_tokens + mix.answer_tokens, tp)
            except ValueError as wrong:
                left[str(wrong)] += 1
                continue
            if pool < request:
                left[FITS_NO_REQUEST] += 1
                continue
            offered = max(1.0, float(cells["concurrency"]))
            itl_s = float(cells["itl_ms"]) / 1e3
            ttft_s = float(cells["ttft_ms"]) / 1e3
            row = Row(
                model=name,
                gpu=cells["gpu"],
                engine=cells["engine"],
                setting=setting,
                running=min(offered, pool / request, decoding(offered, ttft_s, itl_s, mix.answer_tokens)),
                offered=offered,
                itl_s=itl_s,
                ttft_s=ttft_s,
                rate=float(cells.get("rate") or 0.0),
                note=cells.get("note") or "",
                sweep=tuple(text for key, text in cells.items() if key not in ("concurrency", "ttft_ms", "itl_ms")),
            )
            rows.append(row)
    return rows, left


Group = Callable[[Row], str]
"""Name of the group that a row belongs to."""


def family_of(row: Row) -> str:
    """The group of rows of one model."""
    return row.family


def gpu_of(row: Row) -> str:
    """The group of rows of one type of GPU."""
    return row.gpu


def sweeps_of(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows that do not queue by sweep, each by rising load."""
    sweeps = defaultdict(list)
    for row in rows:
        if row.offered <= row.running:
            sweeps[row.sweep].append(row)
    return [sorted(sweep, key=lambda row: row.running) for sweep in sweeps.values()]
