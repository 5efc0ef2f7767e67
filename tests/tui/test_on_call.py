"""What someone on call asks of the screen at 80x24, answered on the first screen or two keys further, and read whole.

The simulator's scenarios in virtual time through the real adapters, deriver, rules and flight recorder.
"""

from __future__ import annotations

import asyncio
import functools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.config.schema import Config
from gpumon.config.themes import load_theme
from gpumon.demo.scenarios import scenario
from gpumon.demo.source import SimulatedServer
from gpumon.efficiency.deriver import Deriver
from gpumon.history.frame_store import Tick
from gpumon.history.memory import MemoryStore
from gpumon.history.timeline import DerivedTimeline
from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.sizing.calibration import Calibration
from gpumon.sources.packaged import gpu_catalogue
from gpumon.triage.copyable import Copyable
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.triage import Triage
from gpumon.tui.app import MonitorApp
from gpumon.tui.pages.detail import DetailPage
from gpumon.tui.screens.questions import copy_question
from gpumon.tui.triage_verdicts import verdict_key
from tests.accuracy.triage import PRICES, frames
from tests.tui.feed import Still
from tests.tui.running import MONOTONIC_S, foot, names_of, text_of, until
from tests.tui.test_keys import type_keys

SIZE = (80, 24)
TASKS = {
    "which GPU is lost, and what to do": ("gpu-off-the-bus", 150, "", "LOST", "gpu 2", "Xid 79", "power-cycle it"),
    "which engine hangs, and what to save before the restart": (
        *("engine-hang-idle", 200, ""),
        *("hung", "llama-8b", "py-spy dump --pid 9000001", "then restart it", "6 running"),
    ),
    "does the server that does not answer still run": (
        *("engine-mute", 120, "", "TIMEOUT", "unresponsive", "py-spy dump --pid 9000001"),
    ),
    "why do requests wait: the KV cache": (
        *("kv-cache-full", 130, "", "KV cache full", "raise --gpu-memory-utilization", "from 0.45 to 0.85", "55 wait"),
    ),
    "why do requests wait: the server's own limit": (
        *("queue-at-the-limit", 120, "", "queue limit", "--max-num-seqs from 12 to 24", "queue limit llama-8b"),
    ),
    "which GPU slows its tensor-parallel group down": (
        *("one-slow-gpu", 150, "", "slowed down by heat", "3 GPUs and llama-70b wait for it"),
        *("nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i 3",),
    ),
    "who locked that clock, and how is it undone": (
        *("locked-clock", 120, "", "clock locked at 1.03 of 1.98 GHz", "sudo nvidia-smi -rgc -i 1"),
    ),
    "why is the new server slower": ("low-power-limit", 120, "", "sudo nvidia-smi -i 0 -pl 700", "1.98 GHz"),
    "is the data on that GPU still right": (
        *("ecc-uncorrectable", 150, "", "data in memory is wrong", "nvidia-smi --gpu-reset -i 0", "suffers from it"),
    ),
    "who holds GPU 1": ("notebook-holds-memory", 240, "", "sim:python (pid 9000002)", "holds 73 GiB", "VRAM held"),
    "what takes the host's CPU": ("cpu-bound-server", 120, "5 enter", "host CPU saturated", "--api-server-count 4"),
    "what do the GPUs wait for": (
        *("data-loader", 120, "5 enter", "waits for the disk", "num_workers and prefetch_factor"),
    ),
    "which replica keeps dying": (
        *("restart-loop", 380, "5 enter", "llama-8b-b", "kubectl logs --previous", "crash loop"),
    ),
    "what died, and where do I read why": (
        *("engine-crash", 75, "2 enter", "✗ down since 08:01", "sudo dmesg -T shows whether the kernel ended it"),
        *("start it again: sim:vllm serve", "answered last"),
    ),
    "did somebody want that stop": (
        *("planned-stop", 150, "2 enter"),
        *("! stopped since 08:01", "after 30 s without requests"),
    ),
    "which replica is gone": ("replica-crash", 75, "2 enter", "! 1 of 2 down"),
    "does the engine that is not there yet start": (
        *("cold-start", 60, "", "starting: llama-70b", "loads its weights: reads", "no problem found"),
    ),
    "is the engine of this page well": ("error-storm", 150, "2 enter", "✗ failing · read", "answers since 08:00:00"),
    "what helps against an overload": ("overload", 240, "", "--gpu-memory-utilization", "more instances on free GPU 1"),
    "is anybody at that URL": (
        *("dead-endpoint", 80, "", "curl -sS http://127.0.0.1"),
        *("nothing listens at its URL, and it was never seen serving",),
    ),
    "what happened before I logged in": ("ecc-uncorrectable", 150, "N", "AGO 08:00", "Xid 48"),
    "what if twice as many users come": ("decode-bound", 120, "s d", "need", "per inst", "servers"),
}
"""Question: scenario, seconds into it, keys, and what is then read on the screen."""
SELDOM = frozenset(
    {
        "does the server that does not answer still run",
        "why do requests wait: the server's own limit",
        "which GPU slows its tensor-parallel group down",
        "what takes the host's CPU",
        "which replica keeps dying",
        "did somebody want that stop",
        "is the engine of this page well",
        "what helps against an overload",
    }
)
"""Questions of `make properties`: their verdicts are held by `accuracy`, and another question has the same keys."""
README = Path(__file__).parents[2] / "README.md"
QUESTIONS = {
    "Why is chat slow tonight?": (
        "kv-cache-full",
        130,
        "t enter",
        "what to do",
        "--gpu-memory-utilization",
        "evidence",
    ),
    "Which GPU can I give back?": ("notebook-holds-memory", 240, "1 o G enter", "by waste", "+ VRAM held"),
    "What happened at 03:10?": ("kv-cache-full", 130, ": 0 8 : 0 2 enter", "AGO 08:02:00"),
    "Is 17% MFU bad?": ("healthy-chat", 120, "2 enter", "what limits it", "headroom"),
}
"""Question of the README: scenario, seconds into it, keys, and what is then read on the screen."""
COMMAND = re.compile(r"nvidia-smi|py-spy|kubectl|--\w")
"""What is copied or typed stands in one line."""


class Course(NamedTuple):
    """A scenario up to some moment: what the screen shows then, and its past."""

    snapshot: Snapshot
    history: History
    store: MemoryStore
    calibration: Calibration
    thresholds: Thresholds


def monitor(name: str, seconds: int) -> MonitorApp:
    """The screen of a scenario after some time, with its past."""
    course = course_of(name, seconds)
    gpus = gpu_catalogue()
    feed = Still(course.snapshot, course.history)
    feed.calibration = course.calibration
    feed.timeline = DerivedTimeline(
        course.store, lambda: (Deriver(gpus), Triage(course.thresholds, PRICES)), lambda _: None, course.history
    )
    return MonitorApp(
        feed,
        load_theme("default"),
        Config(),
        None,
        unix_time=lambda: course.snapshot.wall_s + 0.3,
        monotonic=lambda: MONOTONIC_S,
    )


@functools.cache
def course_of(name: str, seconds: int) -> Course:
    """A scenario, derived and judged once for all tests that look at the same moment."""
    played = scenario(name)
    server = SimulatedServer(played)
    thresholds = server.thresholds(Thresholds())
    asyncio.run(server.close())
    deriver = Deriver(gpu_catalogue())
    triage = Triage(thresholds, PRICES)
    history = History()
    store = MemoryStore(1800.0, 24e6)
    calibration = Calibration()
    for _, frame in frames(played, seconds, every_s=4):
        snapshot, points, _ = deriver.derive(frame)
        snapshot = triage.judge(frame, snapshot)
        history.append(frame.wall_s, points, frame.interval_s)
        for event in snapshot.events:
            history.add_event(event)
        store.keep(Tick(frame, points, snapshot.events, snapshot.verdicts))
        calibration.take(snapshot)
    return Course(snapshot, history, store, calibration, thresholds)


@pytest.mark.parametrize(
    "question",
    [pytest.param(question, marks=pytest.mark.wide) if question in SELDOM else question for question in TASKS],
)
async def test_the_answer_is_read_with_two_keys_at_most(question: str) -> None:
    name, seconds, keys, *wanted = TASKS[question]
    assert len(keys.split()) <= 2
    app = await asyncio.to_thread(monitor, name, seconds)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        await type_keys(app, pilot, *keys.split())
        try:
            await until(lambda: not missing(app, wanted), pilot, 10.0)
        except AssertionError:
            raise AssertionError("\n".join([f"{missing(app, wanted)} not in", *text_of(app)])) from None


@pytest.mark.parametrize("question", QUESTIONS)
async def test_the_keys_that_the_readme_names_answer_its_questions(question: str) -> None:
    name, seconds, keys, *wanted = QUESTIONS[question]
    _, _, answer = README.read_text().partition(f"**{question}**")
    named = " ".join(f"`{key.capitalize() if len(key) > 1 else key}`" for key in keys.split())
    assert named.replace("`0` `8` `:` `0` `2`", "`03:10`") in " ".join(answer.partition("\n\n")[0].split())
    app = await asyncio.to_thread(monitor, name, seconds)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        for key in keys.split():
            await type_keys(app, pilot, key)
        await until(lambda: not missing(app, wanted), pilot)


def missing(app: MonitorApp, wanted: list[str]) -> list[str]:
    """What is not on the screen; a sentence may go on in the next line, a command not."""
    lines = text_of(app)
    text = re.sub(r"\s+", " ", " ".join(lines))
    return [
        words
        for words in wanted
        if not (any(words in line for line in lines) or (words in text and not COMMAND.search(words)))
    ]


@pytest.mark.parametrize("size", [SIZE, (120, 40), (200, 60)])
async def test_the_page_of_a_cause_and_of_a_consequence_draws_the_chain(size: tuple[int, int]) -> None:
    """The builder is that of the card."""
    app = await asyncio.to_thread(monitor, "one-slow-gpu", 150)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        await type_keys(app, pilot, "t", "enter")
        chain = "gpu 3 throttled 08:00:12 → llama-70b throttled +32s"
        await until(lambda: not missing(app, ["what comes of it", chain, "└ +32s ✗ llama-70b throttled"]), pilot)
        page = app.monitor.pages.by_name["detail"]
        assert isinstance(page, DetailPage)
        (suffers,) = [verdict for verdict in app.monitor.shown.verdicts if verdict.caused_by]
        page.look_at(("verdict", verdict_key(suffers)))
        await until(lambda: not missing(app, ["what it comes of", chain]), pilot)


async def test_a_url_where_nobody_answers_is_told_once() -> None:
    app = await asyncio.to_thread(monitor, "dead-endpoint", 80)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await until(lambda: not missing(app, ["never seen serving"]), pilot)
        assert missing(app, [" fault "])


async def test_the_page_of_replicas_marks_the_one_that_ended_as_its_row_does() -> None:
    app = await asyncio.to_thread(monitor, "replica-crash", 75)
    async with app.run_test(size=(120, 60), notifications=True) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        await type_keys(app, pilot, "2", "enter")
        await until(lambda: not missing(app, ["! down since 08:01, pid 9500002"]), pilot)


async def test_a_choice_that_is_wider_than_the_screen_takes_one_line() -> None:
    texts = ("sudo nvidia-smi -i 0 -pl 700", "kubectl -n inference logs llama-8b-7d9f-x2x4 --previous --timestamps")
    copyables = [Copyable(text, "the log of the container that ended before, with times", True) for text in texts]
    app = await asyncio.to_thread(monitor, "healthy-chat", 75)
    async with app.run_test(size=SIZE) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        app.monitor.ask(copy_question(copyables, lambda _: None))
        await until(lambda: not missing(app, ["kubectl -n inference"]), pilot)
        assert app.monitor.question_bar is not None
        assert app.monitor.question_bar.list.size.height == len(texts)


@pytest.mark.parametrize(
    ("name", "seconds", "copied", "offered"),
    [
        ("low-power-limit", 120, "sudo nvidia-smi -i 0 -pl 700", 1),
        ("locked-clock", 120, "sudo nvidia-smi -rgc -i 1", 2),
        ("engine-hang-idle", 200, "journalctl _PID=9000001", 2),
        ("kv-cache-full", 130, "--gpu-memory-utilization 0.85", 2),
    ],
)
async def test_c_copies_the_command_of_the_worst_verdict(name: str, seconds: int, copied: str, offered: int) -> None:
    """One command is copied at once; of several Enter takes the first. The line of keys says what was copied."""
    app = await asyncio.to_thread(monitor, name, seconds)
    async with app.run_test(size=SIZE) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        await type_keys(app, pilot, "c")
        if offered > 1:
            await until(lambda: app.monitor.question_bar is not None, pilot)
            assert len(names_of(app)) == offered
            assert app.clipboard == ""
            await type_keys(app, pilot, "enter")
        await until(lambda: app.clipboard == copied, pilot)
        await until(lambda: copied in foot(app), pilot)
