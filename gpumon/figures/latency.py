"""Figures of latencies and of goals, as engines and models have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from gpumon.figures.figure import HIGHER, LOWER, MINUTE, MINUTES, Charted, Column, Exported, Figure
from gpumon.figures.merge import Merge
from gpumon.figures.unit import NUMBER, SECONDS, SHARE


class LatencyWords(msgspec.Struct, frozen=True):
    """A latency and its words."""

    field: str
    """Field of `Latency`, in which the `Quantiles` are."""
    word: str
    """Its word in names of metrics, and in headers."""
    help: str
    """Help for the exporter."""
    name: str = ""
    """Name on charts and detail pages."""
    meaning: str = ""
    """Meaning of its p95; empty where the glossary has none."""
    histogram: str = ""
    """Histogram of an engine that observes it (`readings.quantities`), where that is not named as the field."""

    @property
    def quantity(self) -> str:
        """Histogram of an engine that observes it."""
        return self.histogram or self.field

    @property
    def buckets(self) -> str:
        """Name of the metric with the buckets of all its observations, those of all ranks added up."""
        return f"engine_{self.word}_distribution_seconds"


LATENCIES: Final = (
    LatencyWords(
        "ttft_s",
        "ttft",
        "Time to the first token",
        "TTFT",
        "Time to first token inside the engine, without HTTP; of 95% of the requests it is at most this.",
    ),
    LatencyWords(
        "itl_s",
        "itl",
        "Time per token after the first",
        "ITL",
        "Inter-token latency: time from one token of a request to its next; 95% are at most this.",
    ),
    LatencyWords(
        "queue_s",
        "queue",
        "Time in the queue",
        "queue",
        "Time in the queue before the first step; 95% are at most this.",
    ),
    LatencyWords(
        "e2e_s",
        "e2e",
        "Time of whole requests",
        "E2E",
        "End-to-end latency inside the engine: from the request to its last token; 95% are at most this.",
    ),
)
"""Latencies of engines and of models."""
TPOT: Final = LatencyWords("tpot_s", "tpot", "Mean time per token after the first of each request that ended", "TPOT")
PREFILL: Final = LatencyWords(
    "prefill_s",
    "prefill",
    "Time of the prefill of each request that ended",
    "prefill",
    histogram="prefill_time_s",
)
DECODE: Final = LatencyWords(
    "decode_s",
    "decode",
    "Time from the first token to the last of each request",
    "decode",
    histogram="decode_time_s",
)
LATENCIES_OF_ENGINES: Final = (*LATENCIES, TPOT, PREFILL, DECODE)
"""Latencies of engines: the last three have no sum over replicas."""


class GoalWords(msgspec.Struct, frozen=True):
    """A share within a goal and its words."""

    field: str
    """Field of `Goodput`, in which the `WithinGoal` is."""
    latency: str
    counted: str
    """Things of which it is a share."""
    short: str = ""
    name: str = ""
    meaning: str = ""
    shown_with: tuple[str, ...] = ()


_GOALS: Final = (
    GoalWords(
        "ttft_goal",
        "ttft",
        "requests",
        "ttft ok",
        "TTFT in goal",
        "Share of requests whose time to first token was within the goal (`[goals]`); `?`: 1 s is assumed.",
    ),
    GoalWords(
        "itl_goal",
        "itl",
        "tokens",
        "itl ok",
        "ITL in goal",
        "Share of requests whose mean time per token (TPOT) was within the goal, else of tokens; `?`: 50 ms are "
        "assumed.",
        ("tpot_goal",),
    ),
    GoalWords("tpot_goal", "tpot", "requests"),
)
_COLUMNS: Final = {
    "ttft_s.p95": Column("ttft", 70, sorts=True),
    "itl_s.p95": Column("itl", 80, sorts=True),
    "e2e_s.p95": Column("e2e", 110),
    "queue_s.p95": Column("queue", 120, width=9),
    "ttft_goal.low_ratio": Column("ttft_ok", 140, sorts=True),
    "itl_goal.low_ratio": Column("itl_ok", 150, sorts=True),
    "ttft_s.p50": Column("ttft_p50", 280, width=8),
    "ttft_s.p99": Column("ttft_p99", 290, width=8),
    "itl_s.p50": Column("itl_p50", 300, width=7),
    "itl_s.p99": Column("itl_p99", 310, width=7),
}
"""Field of an engine -> its column in the table of engines."""
_CHARTED: Final = {
    "ttft_s.p95": Charted("ttft", "ok", of_all=", worst"),
    "itl_s.p95": Charted("itl", "ok", of_all=", worst"),
    "queue_s.mean": Charted("queue", "warn", name="queue, mean"),
    "ttft_goal.low_ratio": Charted("ttft_ok", "accent", of_all=", worst"),
    "itl_goal.low_ratio": Charted("itl_ok", "tokens", of_all=", worst"),
}
"""Field of an engine -> its series in the history."""
_COMPARED: Final = {
    "ttft_s.mean": 100,
    "ttft_s.p50": 110,
    "ttft_s.p95": 120,
    "ttft_goal.low_ratio": 130,
    "itl_s.mean": 140,
    "itl_s.p50": 150,
    "itl_s.p95": 160,
    "itl_goal.low_ratio": 170,
    "e2e_s.mean": 180,
    "queue_s.mean": 190,
}
"""Field of an engine -> its place among the figures that are compared."""
_LEVELS: Final = {"ttft_s.p95": "ttft", "itl_s.p95": "itl", "e2e_s.p95": "e2e"}
"""Field of an engine -> its level."""
_QUANTILES: Final = (("p50", "0.5"), ("p90", "0.9"), ("p95", "0.95"), ("p99", "0.99"))
"""Field of `Quantiles`, and its value of the label `quantile`."""


def latency_figures(owner: str, *latencies: LatencyWords) -> Iterator[Figure]:
    """Quantiles, their buckets and means of the latencies of an `engine` or a `model`."""
    columns = _COLUMNS if owner == "engine" else {}
    charted = _CHARTED if owner == "engine" else {}
    compared = _COMPARED if owner == "engine" else {}
    for latency in latencies:
        field = latency.field
        metric = f"{owner}_{latency.word}"
        mean = Exported(f"{metric}_mean_seconds", f"{latency.help}, mean of the last 60 s.")
        yield Figure(
            f"{field}.mean",
            SECONDS,
            name=f"{latency.name} mean",
            window=MINUTE,
            better=LOWER,
            charted=charted.get(f"{field}.mean"),
            compared=compared.get(f"{field}.mean", 0),
            in_csv=latency in LATENCIES,
            exported=mean,
        )
        for part, quantile in _QUANTILES:
            labels = {"quantile": quantile, "window": "60s"}
            yield Figure(
                f"{field}.{part}",
                SECONDS,
                short=f"{latency.word} {part}",
                name=f"{latency.name} {part}",
                window=MINUTE,
                merge=Merge.OBSERVATIONS,
                better=LOWER,
                listed=part == "p95" and bool(latency.meaning),
                meaning=latency.meaning.replace("95%", f"{part[1:]}%"),
                column=columns.get(f"{field}.{part}"),
                level=_LEVELS.get(f"{field}.{part}", ""),
                charted=charted.get(f"{field}.{part}"),
                compared=compared.get(f"{field}.{part}", 0),
                in_csv=latency in LATENCIES,
                exported=Exported(f"{metric}_seconds", f"{latency.help}, of the last 60 s.", labels),
            )
            if part == "p90":  # its bucket is not kept
                continue
            for end in ("low", "high"):
                text = f"{latency.help}: the histogram's bucket that the quantile fell in."
                bound = Exported(f"{metric}_bound_seconds", text, {"of": part, "bound": end})
                yield Figure(f"{field}.{part}_{end}", SECONDS, exported=bound)
        text = f"{latency.help}: end of the histogram's first bucket; lower quantiles are known no better."
        yield Figure(f"{field}.first_bound_s", SECONDS, exported=Exported(f"{metric}_first_bound_seconds", text))


def goal_figures(owner: str) -> Iterator[Figure]:
    """Shares within the goals, by what is counted; the least and the largest share that can be true."""
    columns = _COLUMNS if owner == "engine" else {}
    charted = _CHARTED if owner == "engine" else {}
    compared = _COMPARED if owner == "engine" else {}
    for goal in _GOALS:
        metric = f"{owner}_goal"
        labels = {"latency": goal.latency, "of": goal.counted}
        text = "Share of the last 2 min within the goal: at least low (with HTTP users_low), at most high."
        yield Figure(
            f"{goal.field}.low_ratio",
            SHARE,
            short=goal.short,
            name=goal.name,
            window=MINUTES,
            merge=Merge.OBSERVATIONS,
            better=HIGHER,
            listed=bool(goal.meaning),
            meaning=goal.meaning,
            shown_with=goal.shown_with,
            column=columns.get(f"{goal.field}.low_ratio"),
            charted=charted.get(f"{goal.field}.low_ratio"),
            compared=compared.get(f"{goal.field}.low_ratio", 0),
            exported=Exported(f"{metric}_attained_ratio", text, {**labels, "bound": "low"}),
        )
        for bound in ("high", "users_low"):
            share = Exported(f"{metric}_attained_ratio", text, {**labels, "bound": bound})
            yield Figure(f"{goal.field}.{bound}_ratio", SHARE, exported=share)
        goal_s = Exported(f"{metric}_seconds", "The goal, or the assumed one.", labels)
        yield Figure(f"{goal.field}.goal_s", SECONDS, exported=goal_s)
        count = Exported(f"{metric}_observations", "Number of what is counted.", labels)
        yield Figure(f"{goal.field}.count", NUMBER, exported=count)
