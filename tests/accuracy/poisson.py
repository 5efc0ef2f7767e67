"""The simulation against measured Poisson runs: vLLM 0.8.5, 200 prompts of ShareGPT at 1, 4 and 8 requests/s.

    python -m tests.accuracy.poisson [--markdown docs/sizing-accuracy.md]

Rows are those of tests/data/measured-2026.csv with a rate, but four whose first requests warmed the engine up for
seconds. Lengths are lognormal around the row's means: the runs' own are not published. Nothing is fitted to a row's
TTFT; the step of TP over PCIe is (`gpumon.specs.networks`).
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import mean
from typing import Final, NamedTuple

from gpumon.sizing.roofline import roofline, ttft_line
from gpumon.sizing.simulate.requests import Draw, RequestShape, RequestSource, steady
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import EngineLimits
from gpumon.sizing.simulate.setup import delay_of, step_terms
from gpumon.specs.engine_defaults import default_bounds
from tests.accuracy.silicon_rows import RECENT, Row, read
from tests.accuracy.tables import markdown, write

BEGIN, END = "<!-- poisson: begin, written by `make silicon` -->", "<!-- poisson: end -->"
SPREAD: Final = 1.0
"""Standard deviation of a length over its mean: that of ShareGPT's prompts and answers, cut as vLLM does."""
PLAYED: Final = 2000
"""Requests that are played: ten times those of a run, so that the p95 is not chance."""
WARM_UP_S: Final = 0.4
"""Mean TTFT from which a run holds the warm-up of its engine."""
ROOMY: Final = 10**6
"""KV blocks of a cache that never fills."""
HEAD: Final = ("model", "GPU", "TP", "requests/s", "measured TTFT", "p95", "simulated", "p95", "formula")


class Played(NamedTuple):
    """One run, simulated over measured - 1."""

    row: Row
    mean: float
    p95: float
    formula: float


def runs() -> list[Played]:
    """All runs."""
    rows, _ = read(RECENT)
    return [judge(row) for row in rows if row.rate and row.ttft_s < WARM_UP_S]


def judge(row: Row) -> Played:
    """Play a run."""
    setting = row.setting
    cost = step_terms(roofline(setting), setting)
    tokens, seqs = default_bounds(setting.gpu.memory_bytes, setting.gpu.name)
    limits = EngineLimits(seqs, tokens, ROOMY)
    line = ttft_line(setting, row.engine)
    shape = RequestShape(lognormal(setting.mix.prompt_tokens), lognormal(setting.mix.answer_tokens), longest=4000)
    requests = steady(row.rate, PLAYED / row.rate, shape, seed=1)
    delay_s = delay_of(line, cost, limits, setting.mix)
    log = play(RequestSource(requests), cost, limits, 1, ROUTERS["round-robin"](), delay_s)
    ttfts_s = sorted(served.ttft_s for served in log.served)
    return Played(
        row,
        mean=mean(ttfts_s) / row.ttft_s - 1.0,
        p95=ttfts_s[int(0.95 * len(ttfts_s))] / p95_of(row) - 1.0,
        formula=line.ttft_s(row.running) / row.ttft_s - 1.0,
    )


def lognormal(mean_tokens: float) -> Draw:
    """Lengths with this mean."""
    sigma = math.sqrt(math.log(1.0 + SPREAD**2))
    return lambda random: _draw(random, math.log(mean_tokens) - sigma**2 / 2.0, sigma)


def _draw(random: Random, mu: float, sigma: float) -> float:
    return random.lognormvariate(mu, sigma)


def p95_of(row: Row) -> float:
    """The measured p95 of the TTFT in seconds, which stands in the row's note."""
    told = re.search(r"p95 ttft (\d+)", row.note)
    assert told is not None, row.note
    return float(told[1]) / 1e3


def table(played: list[Played]) -> str:
    """All runs as Markdown."""
    return markdown(HEAD, list(_lines(played)))


def _lines(played: list[Played]) -> Iterator[tuple[str, ...]]:
    for run in played:
        row = run.row
        measured = (f"{row.ttft_s * 1e3:.0f} ms", f"{p95_of(row) * 1e3:.0f} ms")
        errors = (f"{run.mean:+.0%}", f"{run.p95:+.0%}", f"{run.formula:+.0%}")
        yield row.model.rpartition("/")[2], row.gpu, str(row.tp), f"{row.rate:g}", *measured, *errors


def main() -> None:
    """Print the table, or write it into a document."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy.poisson")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    text = table(runs())
    if chosen.markdown is None:
        print(text)
    else:
        write(chosen.markdown, text, BEGIN, END)


if __name__ == "__main__":
    main()
