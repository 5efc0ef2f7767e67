"""No verdict of a scenario of the demo is false, whatever signals are missing.

A scenario is played until all that had to be named is named and what follows is more of the same (`decisive`), at four
seconds a frame. `make check` plays those that together have every verdict, `make properties` all of them, and each one
at a second a frame to its end; `make triage` does that with three kinds of traffic.
"""

from __future__ import annotations

import functools
import random
import shutil
import subprocess
from collections.abc import Callable, Container, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.demo.scenario import Scenario
from gpumon.demo.scenarios import SCENARIOS, scenario
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Event, EventKind, Level, Snapshot
from gpumon.triage.copyable import to_copy
from tests.accuracy.triage import agrees, decisive, frames, judged, said, score
from tests.records import replace

GPU_FIELDS = {
    "tensor": ("tensor_active_ratio",),
    "sm": ("sm_active_ratio", "sm_occupancy_ratio"),
    "dram": ("dram_active_ratio",),
    "nvlink": ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
    "pcie": ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    "power": ("power_w", "power_limit_w"),
    "memory busy": ("memory_busy_ratio",),
}
"""Signals of GPUs that a generation, a driver or a container does not give."""
SIGNALS = (*GPU_FIELDS, "host", "model")
EVERY_S = 4
"""Seconds between two frames, and two polls of an engine: what is true of a server is true at any interval."""
QUICK_S = 2
"""The same of scenarios in `QUICK`."""
QUICK = frozenset(
    {
        *("burst", "cold-start", "model-swap", "replica-starts", "short-periodic-stalls", "slow-weights"),
        *("program-rounds-longer", "training-waits"),
    }
)
"""Scenarios with a change that must be seen within a few seconds: at `EVERY_S` a verdict is one poll behind it, and a
pause of a few seconds is none."""
WIDE = frozenset(
    {
        *("answers-of-one-token", "batch-client", "client-stops-reading", "compile-midway", "cpu-bound-server"),
        *("cpu-hog", "cured-slots", "engine-crash", "engine-loses-lanes", "engine-restart", "error-storm"),
        *("errors-then-crash", "gpu-mute-recovers", "healthy-traffic", "itl-levels-off", "kv-leak", "kv-offload"),
        *("nan-logits", "notebook-at-work", "one-request-stuck", "overload", "planned-stop", "power-limit-halved"),
        *("power-limit-taken-back", "prefill-decode-pair", "queue-grows", "replica-crash", "replica-starts"),
        *("replicas-half-asleep", "short-periodic-stalls", "slots-short-answers", "slots-three-tokens"),
        *("slow-weights", "slower-at-once", "slower-drift", "slower-drift-open", "some-errors", "users-stop-answers"),
        *("weight-sync", "worker-gone"),
    }
)
"""Dear scenarios whose every verdict (code, cause, level) stands in another one, too, and every truth."""
NAMES = [scenario.name for scenario in SCENARIOS]
KEPT = [name for name in NAMES if name not in WIDE]
WITHOUT_SIGNALS = frozenset(KEPT[1::3])
"""Scenarios that `make check` plays with signals missing, too."""
Timed = list[tuple[float, Frame]]
Judged = list[tuple[float, Snapshot]]


def without(signals: frozenset[str]) -> Callable[[Frame], Frame]:
    """Takes signals from a frame, as hardware or a container that lacks them would."""
    fields = {field: NOT_SUPPORTED for signal in signals & GPU_FIELDS.keys() for field in GPU_FIELDS[signal]}

    def change(frame: Frame) -> Frame:
        gpus = tuple(replace(gpu, **fields) for gpu in frame.gpus)
        engines = frame.engines
        if "model" in signals:
            info = {"model_missing": "no such model"}
            engines = tuple(replace(each, llm=None, info={**each.info, **info}) for each in engines)
        host = HostReading(name=frame.host.name) if "host" in signals else frame.host
        return replace(frame, gpus=gpus, engines=engines, host=host)

    return change


class Play(NamedTuple):
    """A scenario, the frames that were played of it, and what the screen shows of each."""

    scenario: Scenario
    frames: Timed
    shown: Judged


def plays_of(chosen: Container[str]) -> pytest.MarkDecorator:
    """All scenarios; those that are not chosen are wide cases. Tests of the same scenario share its play."""
    params = []
    for name in NAMES:
        params.append(pytest.param(name, marks=() if name in chosen else pytest.mark.wide))
    return pytest.mark.parametrize("play", params, indirect=True)


@pytest.fixture(scope="module")
def play(request: pytest.FixtureRequest) -> Play:
    """A scenario, played once for all that is asked of it."""
    played = scenario(request.param)
    recorded: Timed = []

    def recording() -> Iterator[tuple[float, Frame]]:
        every_s = QUICK_S if played.name in QUICK else EVERY_S
        for timed in frames(played, played.length_s, every_s=every_s):
            recorded.append(timed)
            yield timed

    shown = list(decisive(played, judged(played, recording())))
    return Play(played, recorded, shown)


def test_every_truth_of_a_wide_scenario_stands_in_another_one() -> None:
    due: dict[str, set[str]] = {}
    for one in SCENARIOS:
        due[one.name] = {truth.code for truth in one.truth if truth.within_s < float("inf")}
    assert due.keys() > WIDE
    assert set().union(*(due[name] for name in KEPT)) == set().union(*due.values())


@plays_of(KEPT)
def test_every_verdict_is_true_and_what_matters_is_named_in_time(play: Play) -> None:
    scored = score(play.scenario, play.shown)
    assert [str(span.said) for span in scored.false] == []
    assert [(named.truth.thing, named.truth.code) for named in scored.missed] == []


@plays_of(WITHOUT_SIGNALS)
def test_a_mix_of_missing_signals_is_never_another_verdict(play: Play) -> None:
    """They cost a verdict its confidence, or make it unknown."""
    draw = random.Random(play.scenario.name)
    signals = frozenset(signal for signal in SIGNALS if draw.random() < 0.4) | {"dram"}
    codes = {(truth.thing, truth.code.partition("/")[0]) for truth in play.scenario.truth}
    for _, snapshot in judged(play.scenario, play.frames, without(signals)):
        for one in map(said, snapshot.verdicts):
            known = [code for thing, code in codes if fnmatchcase(one.thing, thing)]
            tolerable = (*known, "unknown", "healthy", "evaluating")
            if one.cause in ("queue_host", "queue_unmeasured"):
                continue  # a queue that stands has a name, whatever is not measured
            assert any(fnmatchcase(one.code, each) for each in tolerable), (sorted(signals), one)


def events_of(name: str) -> Iterator[Event]:
    of = scenario(name)
    for _, snapshot in judged(of, frames(of, 130.0, every_s=EVERY_S)):
        yield from snapshot.events


def test_what_happens_is_recorded_as_events() -> None:
    assert {EventKind.ENGINE, EventKind.RESTART} <= {event.kind for event in events_of("engine-restart")}
    lost = list(events_of("gpu-off-the-bus"))
    assert {EventKind.XID, EventKind.GPU} <= {event.kind for event in lost}
    assert "gpu 2" in {event.scope for event in lost}


def test_long_prompts_one_after_the_other_are_one_verdict() -> None:
    """Its words do not change to full arithmetic and back between two of them."""
    of = scenario("long-prefill")
    told = []
    for _, snapshot in judged(of, frames(of, 250.0, every_s=2)):
        told += [(event.code, event.verdict.cause) for event in snapshot.events if event.verdict is not None]
    assert told == [("verdict_began", "long_prefill")]


def test_a_verdict_without_a_truth_is_false_and_one_that_is_late_is_missed() -> None:
    of = scenario("engine-mute")
    timed = list(judged(of, frames(of, 120.0)))
    first, *others = (truth for truth in of.truth if truth.from_s < 120.0)
    short = replace(of, length_s=120.0, truth=(first, *others))
    assert score(short, timed).false == ()
    late = replace(first, within_s=5.0)
    assert len(score(replace(short, truth=(late, *others)), timed).missed) == 1
    (span,) = score(replace(short, truth=tuple(others)), timed).false
    assert agrees(first, span.said, span.from_s)
    assert span.from_s == 5.0 + score(short, timed).named[0].after_s
    wrong = replace(first, levels=(Level.OK,))
    assert score(replace(short, truth=(wrong, *others)), timed).false == (span,)


PROGRAMS = (
    *("curl", "dcgmi", "dmesg", "docker", "gpumon", "grep", "head", "iotop", "journalctl", "kill"),
    *(
        "kubectl",
        "nethogs",
        "nvidia-smi",
        "pgrep",
        "ping",
        "ps",
        "py-spy",
        "sim:vllm",
        "sudo",
        "systemctl",
        "systemd-cgtop",
        "tail",
        "top",
    ),
)
"""Programs that advice names; each is a stub that reads its input and ends well."""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stub of each program that advice names, and nothing else."""
    folder = tmp_path_factory.mktemp("stubs")
    for name in PROGRAMS:
        stub = folder / name
        stub.write_text("#!/bin/sh\nexit 0\n")
        stub.chmod(0o755)
    return folder


@functools.cache
def runs_well(command: str, folder: Path) -> bool:
    """Whether bash can read a command and finds its programs in a folder; scenarios offer many of them alike.

    `kill` is a program of that folder, too: the processes of a simulation are not there.
    """
    bash = shutil.which("bash")
    assert bash is not None
    ran = subprocess.run(
        [bash, "-e", "-o", "pipefail", "-c", f"enable -n kill\n{command}"],
        env={"PATH": str(folder)},
        capture_output=True,
        check=False,
    )
    return (ran.returncode, ran.stderr) == (0, b"")


@plays_of(KEPT)
def test_what_is_copied_of_every_verdict_runs_in_a_shell(play: Play, stubs: Path) -> None:
    """Each command is one that bash can read, and names nothing but programs that there are."""
    verdicts = [verdict for _, snapshot in play.shown for verdict in snapshot.verdicts]
    offered = {copyable for verdict in verdicts for copyable in to_copy(verdict.actions)}
    commands = sorted(copyable.text for copyable in offered if copyable.runs)
    assert [text for text in commands if not runs_well(text, stubs)] == []
    settings = [copyable.text for copyable in offered if not copyable.runs]
    assert [text for text in settings if not text.startswith("--")] == []
