"""How often what is said of an idle or healthy thing changes: python -m tests.accuracy.flaps [--seeds 1,2,3] [NAME ...]

Each scenario is played for 12 minutes at live pace in virtual time; the first two, in which figures are still missing,
do not count. A change is another code, cause or level of a verdict that is a note or better, or that it comes or goes.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from gpumon.demo.scenarios import scenario
from gpumon.readings.verdict import Level
from tests.accuracy.triage import frames, judged

HEALTHY = (
    *("healthy-chat", "quiet-night", "engine-asleep", "vllm-reserves-memory", "replicas-half-asleep", "training"),
    *("decode-bound-long-context", "tp-over-nvlink", "prefill-decode-pair", "kv-offload", "batch-client"),
    *("rare-requests", "near-the-edge", "short-prompts-near-the-edge"),
)
"""Scenarios without a trouble: a note at most."""
SETTLED_S = 120.0
WATCHED_S = 600.0
MOST = 2
"""Changes of a note in ten minutes."""


def changes(name: str, seed: int, every_s: int = 1) -> Counter[str]:
    """Id of a verdict's place -> how often what stands there changed."""
    played = scenario(name)
    before: dict[str, tuple[str, ...]] = {}
    counts: Counter[str] = Counter()
    for at_s, snapshot in judged(played, frames(played, SETTLED_S + WATCHED_S, seed, every_s)):
        now = {}
        for verdict in snapshot.verdicts:
            if verdict.level is Level.NOTE:
                now[verdict.id] = (verdict.code.value, verdict.cause)
        if at_s > SETTLED_S:
            for place in now.keys() | before.keys():
                counts[place] += now.get(place) != before.get(place)
        before = now
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=HEALTHY)
    parser.add_argument("--seeds", default="1,2,3")
    asked_for = parser.parse_args(arguments)
    worst = 0
    for name in asked_for.names:
        for seed in map(int, asked_for.seeds.split(",")):
            counts = changes(name, seed)
            worst = max([worst, *counts.values()])
            print(name, seed, dict(counts.most_common(3)), flush=True)
    return int(worst > MOST)


if __name__ == "__main__":
    raise SystemExit(main())
