"""Plays troubles on real engines of this host, and holds what gpumon says of them against what was done.

    python -m tests.real.troubles [--engines vllm,sglang] [--troubles full,aborted,...] [--markdown docs/accuracy.md]

Each trouble has an engine that is started for it, the fake NVIDIA driver that reports its processes on GPUs, and the
installed `gpumon watch --json` with an empty home folder. While the cause lasts, a fresh `gpumon status` and `gpumon
snapshot` are asked, too. Fails where the verdict does not come in time or is taken back while its cause lasts, where
another urgent verdict stands, or where a fresh command says something else.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from tests.accuracy.tables import markdown, write
from tests.fakes.nvml.driver import FakeDriver
from tests.real.engines import ENGINES, NotStarted, Running, running, title
from tests.real.load import Load, phases
from tests.real.prove import GPUMON, Ended, Watch, unix_s

DEFAULT: Final = ("vllm", "sglang")
URGENT: Final = ("critical", "warn")
FIND_S: Final = 45.0
AGAIN_S: Final = 3.0
"""Seconds for which a verdict was not there when it came again."""
FRESH_S: Final = 60.0
"""Longest time that a fresh command may take on a busy host."""
BEGIN: Final = "<!-- troubles: begin, written by `python -m tests.real.troubles` -->"
END: Final = "<!-- troubles: end -->"
TRUE_HERE: Final = ("host_cpu_saturated/*", "low_efficiency/eager_mode")
"""What is true of this host whatever is done: engines on its CPU take all cores, and have no CUDA graphs."""


class Trouble(NamedTuple):
    """What is done to an engine, and what has to be said of it."""

    load: str
    """Phases of `tests.real.load`, from the start on."""
    begins_s: float
    """When the cause begins, in seconds of the load."""
    lasts_s: float
    right: tuple[str, ...]
    """Patterns of `code/cause` of the engine's verdict of which one has to stand."""
    within_s: float
    """Longest time until it stands."""
    levels: tuple[str, ...]
    also: tuple[str, ...] = ()
    """Patterns of urgent verdicts that may stand beside it."""
    act: Callable[[Running], None] | None = None
    """What is done when it begins; None where the load itself is the trouble."""
    is_state: bool = True
    """Whether a fresh command sees it at once; else it needs the figures of half a minute and may say that."""
    may_be_silent: bool = False
    """Whether nothing has to be said of it."""
    ends: bool = False
    """Whether the engine is of no use after it."""
    undo: Callable[[Running], None] | None = None
    """What is done when it is over."""


class Said(NamedTuple):
    """One verdict in one snapshot."""

    at_s: float
    """Seconds after the cause began."""
    scope: str
    what: str
    """`code/cause`."""
    level: str
    text: str


class Fresh(NamedTuple):
    """What fresh commands said while the cause lasted."""

    status: int
    """Exit code of `gpumon status`."""
    line: str
    """Its line."""
    verdicts: tuple[Said, ...]
    """Verdicts of `gpumon snapshot --json`."""


class Heard(NamedTuple):
    """How a trouble came out."""

    engine: str
    trouble: str
    named_after_s: float | None
    named_as: str
    fresh: str
    """Exit code and line of a fresh `gpumon status`."""
    problems: tuple[str, ...]


def end_by_term(engine: Running) -> None:
    """SIGTERM to the server, as a service manager sends it."""
    engine.process.send_signal(signal.SIGTERM)


def kill_core(engine: Running) -> None:
    """SIGKILL to the processes that run the model; the server that answers HTTP stays."""
    for process in core_of(engine):
        process.kill()


def stop_core(engine: Running) -> None:
    """SIGSTOP to the processes that run the model."""
    for process in core_of(engine):
        process.suspend()


def continue_core(engine: Running) -> None:
    """SIGCONT to the processes that run the model."""
    for process in core_of(engine):
        process.resume()


def restart(engine: Running) -> None:
    """SIGTERM, and the same command again as soon as it has ended, as systemd does."""
    engine.restart()


def core_of(engine: Running) -> list[psutil.Process]:
    """The processes that run the model, children first."""
    words = ("VLLM::EngineCore", "VLLM::Worker", "sglang::scheduler", "llama-server")
    return [process for process in reversed(engine.family()) if any(word in title(process) for word in words)]


def kill_all(engine: Running) -> None:
    """SIGKILL to all of its processes."""
    for process in reversed(engine.family()):
        process.kill()


TROUBLES: Final[dict[str, Trouble]] = {
    # Those after which an engine goes on come first: they share its start.
    "full": Trouble(
        load="c4:20:64:128:jitter,c40:100:64:128:jitter",
        begins_s=20.0,
        lasts_s=100.0,
        right=("queue_limit/queue_slots",),
        within_s=60.0,
        levels=URGENT,
        is_state=False,
    ),
    "aborted": Trouble(
        load="c4:20:64:128,c4:90:64:400:abort=0.9",
        begins_s=20.0,
        lasts_s=90.0,
        right=("failing/aborts*",),
        within_s=75.0,
        levels=("warn", "note"),
        is_state=False,
    ),
    "refused": Trouble(
        load="c4:20:64:128,c4:90:64:128:refused=0.5",
        begins_s=20.0,
        lasts_s=90.0,
        right=("failing/refusals",),
        within_s=75.0,
        levels=("warn", "note"),
        is_state=False,
    ),
    "core-stopped": Trouble(
        load="c4:80:64:400",
        begins_s=20.0,
        lasts_s=60.0,
        right=("unresponsive/part_stopped",),
        within_s=20.0,
        levels=("critical",),
        act=stop_core,
        undo=continue_core,
    ),
    "restarted": Trouble(
        load="c4:80:64:400",
        begins_s=20.0,
        lasts_s=60.0,
        right=("draining/*", "down/stopped", "starting/*"),
        within_s=60.0,
        levels=("note", "warn", "ok"),
        act=restart,
        may_be_silent=True,
        is_state=False,
    ),
    "drained": Trouble(
        load="c4:25:64:1500",
        begins_s=20.0,
        lasts_s=25.0,
        right=("draining/*", "down/stopped"),
        within_s=25.0,
        levels=("note", "warn"),
        act=end_by_term,
        ends=True,
    ),
    "core-killed": Trouble(
        load="c4:80:64:400",
        begins_s=20.0,
        lasts_s=60.0,
        right=("unresponsive/*", "hung/*", "down/*"),
        within_s=60.0,
        levels=("critical",),
        act=kill_core,
        ends=True,
    ),
    "killed": Trouble(
        load="c4:50:64:400",
        begins_s=20.0,
        lasts_s=30.0,
        right=("down/*",),
        within_s=15.0,
        levels=("critical",),
        act=kill_all,
        ends=True,
    ),
}


def verdicts(lines: Sequence[dict[str, Any]], began_s: float) -> list[Said]:
    """Every verdict of the snapshots; `began_s` is when the cause began, in Unix time."""
    said = []
    for line in lines:
        at_s = unix_s(line["time"]) - began_s
        for verdict in line["verdicts"]:
            what = f"{verdict['code']}/{verdict['cause']}"
            said.append(Said(at_s, verdict["scope"], what, verdict["level"], verdict["text"]))
    return said


def judge(engine: str, name: str, trouble: Trouble, said: Sequence[Said], fresh: Fresh) -> Heard:
    """Whether the verdict came in time and stood, and no other urgent one beside it: in `watch`, in fresh commands."""
    problems = []
    during = [one for one in said if 0.0 <= one.at_s <= trouble.lasts_s]
    named = [one for one in during if _is_right(trouble, one)]
    if not named and not trouble.may_be_silent:
        problems.append("not named: " + (", ".join(sorted({f"{one.what} {one.level}" for one in during})) or "silent"))
    elif named and named[0].at_s > trouble.within_s:
        problems.append(f"named after {named[0].at_s:.0f} s instead of {trouble.within_s:.0f}")
    for one in _changes(during):
        if _is_wrong(trouble, one):
            problems.append(f"after {one.at_s:.0f} s {one.scope}: {one.what} {one.level}: {one.text}")
    after_s = named[0].at_s if named else None
    as_what = f"{named[0].what} {named[0].level}: {named[0].text}" if named else ""
    status = f"{fresh.status}: {fresh.line}"
    problems += _fresh_problems(trouble, fresh, {one.level for one in named})
    return Heard(engine, name, after_s, as_what, status, tuple(dict.fromkeys(problems)))


def _fresh_problems(trouble: Trouble, fresh: Fresh, levels: set[str]) -> list[str]:
    """Where fresh commands say something else than `watch`, which has named it at these levels."""
    problems = [
        f"a fresh snapshot says {one.scope}: {one.what} {one.level}: {one.text}"
        for one in fresh.verdicts
        if _is_wrong(trouble, one)
    ]
    if trouble.is_state and levels and not any(_is_right(trouble, one) for one in fresh.verdicts):
        shown = ", ".join(sorted({f"{one.what} {one.level}" for one in fresh.verdicts}))
        problems.append(f"a fresh snapshot does not name it: {shown or 'silent'}")
    wanted = int(trouble.is_state and levels == {"critical"})
    if fresh.status != wanted:
        problems.append(f"a fresh status ends with {fresh.status} instead of {wanted}: {fresh.line}")
    return problems


def _is_wrong(trouble: Trouble, said: Said) -> bool:
    """Whether it is an urgent verdict on something else, or one that knows no cause."""
    is_urgent = said.level in URGENT or said.what.startswith("unknown/")
    patterns = (*trouble.also, *TRUE_HERE)
    return is_urgent and not _is_right(trouble, said) and not any(fnmatchcase(said.what, each) for each in patterns)


def _changes(said: Sequence[Said]) -> list[Said]:
    """Each verdict at the moments at which it came, or came again."""
    last_s: dict[tuple[str, str, str], float] = {}
    changes = []
    for one in said:
        key = (one.scope, one.what, one.level)
        if one.at_s - last_s.get(key, -10.0) > AGAIN_S:
            changes.append(one)
        last_s[key] = one.at_s
    return changes


def _is_right(trouble: Trouble, said: Said) -> bool:
    return said.level in trouble.levels and any(fnmatchcase(said.what, pattern) for pattern in trouble.right)


class Placement:
    """The fake driver's script: who is on which GPU. What ends leaves its GPU, and what is started takes a free one."""

    def __init__(self, engine: Running, driver: FakeDriver) -> None:
        self._engine = engine
        self._driver = driver
        self._holders: dict[int, list[int]] = {}
        self._written = ""
        self.look()

    def look(self) -> None:
        """Tell the driver what is so now."""
        alive = self._engine.gpu_pids()
        for gpu in self._holders:
            self._holders[gpu] = [pid for pid in self._holders[gpu] if pid in alive]
        for pid in alive:
            if not any(pid in pids for pids in self._holders.values()):
                self._holders.setdefault(self._free(), []).append(pid)
        lines = []
        for gpu, pids in self._holders.items():
            if any(psutil.Process(pid).status() != psutil.STATUS_STOPPED for pid in pids):
                lines.append(f"gpu {gpu} busy sine:80:10:40")
            lines += [f"gpu {gpu} process {pid} {60000 // len(pids)} compute 80" for pid in pids]
        text = "\n".join([f"gpus {len(self._holders) + 1}", "profile h100-sxm", *lines, ""])
        if text != self._written:
            self._driver.write(text)
        self._written = text

    def _free(self) -> int:
        """A GPU that nobody is on; the only one of an engine whose processes share it."""
        if self._engine.engine.one_gpu:
            return 0
        free = [gpu for gpu, pids in self._holders.items() if not pids]
        return free[0] if free else len(self._holders)

    async def follow(self) -> None:
        """Look every second, until it is cancelled."""
        while True:
            await asyncio.sleep(1.0)
            with contextlib.suppress(psutil.Error):
                self.look()


async def play(engine: Running, name: str, place: Path, kept: Path | None) -> Heard:
    """One trouble of a running engine; the snapshots go to the folder `kept`."""
    trouble = TROUBLES[name]
    (feed,) = engine.engine.feeds
    engine.look()
    driver = FakeDriver(place)
    following = asyncio.create_task(Placement(engine, driver).follow())
    (place / "home").mkdir()
    env = driver.env(HOME=str(place / "home"))
    env = {key: value for key, value in env.items() if not key.startswith(("XDG_", "GPUMON_CONFIG"))}
    watch = Watch()
    async with watch.on(env, []):
        end_s = time.monotonic() + FIND_S
        while time.monotonic() < end_s and watch.seen(engine, feed.model) is None:
            await asyncio.sleep(0.5)
            watch.check()
        start_s = time.monotonic()
        began_s = time.time() + trouble.begins_s
        load = Load(engine.url, engine.engine.api, feed.model, start_s)
        loading = asyncio.create_task(load.run(phases(trouble.load), drain_s=1.0))
        await asyncio.sleep(trouble.begins_s)
        if trouble.act is not None:
            await asyncio.to_thread(trouble.act, engine)
        end_s = time.monotonic() + trouble.lasts_s
        await asyncio.sleep(max(trouble.within_s, trouble.lasts_s / 2))
        fresh = await ask_fresh(env, began_s)
        await asyncio.sleep(max(0.0, end_s - time.monotonic()))
        for task in (loading, following):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    if kept is not None:
        lines = [json.dumps(line) + "\n" for line in watch.lines]
        (kept / f"{engine.name}-{name}.jsonl").write_text("".join(lines))
    return judge(engine.name, name, trouble, verdicts(watch.lines, began_s), fresh)


def by_start(names: Sequence[str]) -> list[list[str]]:
    """The troubles that one start of an engine takes: up to one that ends it."""
    groups: list[list[str]] = [[]]
    for name in names:
        groups[-1].append(name)
        if TROUBLES[name].ends:
            groups.append([])
    return [group for group in groups if group]


def play_all(engine: str, names: Sequence[str], kept: Path | None) -> list[Heard]:
    """Troubles of one start of an engine, one after the other. Raises NotStarted, Ended."""
    heard = []
    with (
        tempfile.TemporaryDirectory(prefix="gpumon-troubles-") as temporary,
        running([engine], Path(temporary)) as (started,),
    ):
        for name in names:
            print(f"{engine}, {name} ...", flush=True)
            started.wait()
            place = Path(temporary) / name
            place.mkdir()
            heard.append(asyncio.run(play(started, name, place, kept)))
            print(table(heard[-1:]), flush=True)
            undo = TROUBLES[name].undo
            if undo is not None:
                undo(started)
    return heard


async def ask_fresh(env: dict[str, str], began_s: float) -> Fresh:
    """What `gpumon status` and `gpumon snapshot` say, started now and one after the other."""
    status, line = await _output(env, "status")
    _, page = await _output(env, "snapshot", "--json")
    return Fresh(status, line.strip(), tuple(verdicts([json.loads(page)], began_s)))


async def _output(env: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command of gpumon's."""
    process = await asyncio.create_subprocess_exec(str(GPUMON), *arguments, env=env, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), FRESH_S)
    assert process.returncode is not None
    return process.returncode, output.decode()


def table(heard: Sequence[Heard]) -> str:
    """As Markdown, with what went wrong under it."""
    rows = []
    for one in heard:
        after = "never" if one.named_after_s is None else f"{one.named_after_s:.0f} s"
        rows.append((one.engine, one.trouble, after, one.named_as, f"`{one.fresh}`"))
    wrong = [f"- {one.engine}, {one.trouble}: {problem}" for one in heard for problem in one.problems]
    head = ("engine", "trouble", "named after", "as", "a fresh `gpumon status`")
    return "\n".join([markdown(head, rows), *(["", *wrong] if wrong else [])])


def main() -> int:
    """The table; 0 where all is right, 1 where not, 2 where an engine did not start or gpumon ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default=",".join(DEFAULT), help=f"some of {', '.join(ENGINES)}")
    parser.add_argument("--troubles", default=",".join(TROUBLES), help=f"some of {', '.join(TROUBLES)}")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table into this page, too")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the snapshots of each trouble into it")
    arguments = parser.parse_args()
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    heard = []
    starts = [
        (engine, names) for engine in arguments.engines.split(",") for names in by_start(arguments.troubles.split(","))
    ]
    try:
        for engine, names in starts:
            heard += play_all(engine, names, arguments.keep)
    except (NotStarted, Ended) as wrong:
        print(wrong, file=sys.stderr)
        return 2
    text = table(heard)
    print(text)
    if arguments.markdown:
        write(arguments.markdown, text, BEGIN, END)
    return int(any(one.problems for one in heard))


if __name__ == "__main__":
    raise SystemExit(main())
