"""Proves gpumon on real engines of this host: found, named and measured without any configuration.

    python -m tests.real.prove [--engines vllm,llamacpp,triton] [--seconds 60] [--markdown FILE] [--endpoints]

Starts the engines (tests.real.install puts them there), lets the fake NVIDIA driver report that their processes hold
GPUs, runs the installed `gpumon watch --json` with an empty home folder, loads all engines at once, and compares what
gpumon prints with the load client's account. Fails where something is not found or a figure is more than 5% off.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.fakes.nvml.driver import FakeDriver
from tests.real.engines import ENGINES, Feed, NotStarted, Running, running
from tests.real.install import folder, installed
from tests.real.judge import POLL_S, Expected, Outcome, Sight, judge, table
from tests.real.load import Load, Phase, Request, Stalls, first_in_line

DEFAULT: Final = ("vllm", "llamacpp", "triton")
LEAST: Final = 2
FIND_S: Final = 45.0
LEAD_S: Final = 4.0
"""From the start of the load until all clients are in their rhythm."""
LINE_BYTES: Final = 1 << 24
GPUMON: Final = Path(sys.executable).with_name("gpumon")


class Ended(Exception):  # noqa: N818
    """gpumon ended before it was told to."""


class Watch:
    """The installed gpumon, watching; `lines` grows."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.began_s = time.time()
        self._process: asyncio.subprocess.Process | None = None

    @contextlib.asynccontextmanager
    async def on(self, env: dict[str, str], arguments: Sequence[str]) -> AsyncIterator[Watch]:
        """While it runs. Raises Ended where it ends by itself."""
        self._process = process = await asyncio.create_subprocess_exec(
            str(GPUMON), "watch", "--json", *arguments, env=env, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES
        )
        reading = asyncio.create_task(self._read(process))
        try:
            yield self
            self.check()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            await reading

    def check(self) -> None:
        """Raises Ended where it has ended."""
        if self._process is not None and self._process.returncode is not None:
            raise Ended(f"gpumon ended by itself, with {self._process.returncode}")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.lines.append(json.loads(line))

    def sights(self, engine: Running, model: str) -> list[Sight]:
        """What was shown of one model of an engine, oldest first."""
        shown = ((line["time"], _shown(line, engine, model)) for line in self.lines)
        return [Sight(unix_s(moment) - one["age_s"], one) for moment, one in shown if one is not None]

    def seen(self, engine: Running, model: str) -> float | None:
        """Seconds until it was first shown with its model and GPUs."""
        for line in self.lines:
            shown = _shown(line, engine, model)
            if shown is not None and shown["state"] == "ok" and shown["model"] == model and shown["gpus"]:
                return unix_s(line["time"]) - self.began_s
        return None


def _shown(line: dict[str, Any], engine: Running, model: str) -> dict[str, Any] | None:
    """The entry of one model of an engine in a snapshot; of a server with one entry, that."""
    of_server = [shown for shown in line["engines"] if engine.is_at(shown["url"])]
    named = [shown for shown in of_server if model in (shown.get("part"), shown["model"])]
    return (named or (of_server if len(of_server) == 1 else [None]))[0]


def unix_s(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def script(engines: Sequence[Running]) -> tuple[str, dict[str, tuple[int, ...]]]:
    """The fake driver's script, in which the processes that run models hold GPUs and one GPU is idle; and which do."""
    lines, given, at = [], {}, 0
    for engine in engines:
        pids = engine.gpu_pids()
        held = [pids] if engine.engine.one_gpu else [[pid] for pid in pids]
        for gpu, holders in enumerate(held, at):
            lines.append(f"gpu {gpu} busy sine:80:10:40")
            lines += [f"gpu {gpu} process {pid} {60000 // len(holders)} compute 80" for pid in holders]
        given[engine.name] = tuple(range(at, at + len(held)))
        at += len(held)
    return "\n".join([f"gpus {at + 1}", "profile h100-sxm", *lines]) + "\n", given


def arrivals(requests: Sequence[Request], t0: float) -> Iterator[tuple[float, float]]:
    """When what arrived, in Unix time: tokens, or items of a batch."""
    for request in requests:
        if request.batch is not None and request.status == 200 and request.t_end is not None:
            yield t0 + request.t_end, request.batch
        yield from ((t0 + at, tokens) for at, tokens in request.events)


async def warm_up(engine: Running, feed: Feed) -> None:
    """One short request: a router starts the server of a model when it is asked for."""
    phase = Phase("warm-up", 0.0, 0.1, "c", 1, 0.0, feed.prompt, 4)
    await Load(engine.url, engine.engine.api, feed.model, time.monotonic()).run([phase])


async def measure(feeds: Sequence[tuple[Running, Feed]], seconds: float) -> tuple[list[Load], float]:
    """Load all at once; the clients' accounts, and the Unix time that they count from."""
    t0, wall = time.monotonic(), time.time()
    stalls = Stalls(t0)
    watching = asyncio.create_task(stalls.watch())
    loads = [Load(one.url, one.engine.api, feed.model, t0, seed=at) for at, (one, feed) in enumerate(feeds, 1)]
    plans = [Phase("steady", 0.0, seconds, "c", feed.clients, 0.0, feed.prompt, feed.answer) for _, feed in feeds]
    with first_in_line() as first:
        await asyncio.gather(*(load.run([plan]) for load, plan in zip(loads, plans, strict=True)))
    watching.cancel()
    worst = max((stall for _, stall, _ in stalls.found), default=0.0)
    print(f"client {'at real-time priority' if first else 'at NORMAL priority'}, worst stall {worst:.2f} s")
    return loads, wall


async def prove(engines: Sequence[Running], seconds: float, place: Path, *, endpoints: bool) -> list[Outcome]:
    """Watch, load, compare."""
    feeds = [(engine, feed) for engine in engines for feed in engine.engine.feeds]
    await asyncio.gather(*(warm_up(engine, feed) for engine, feed in feeds))
    for engine in engines:
        engine.look()
    driver = FakeDriver(place)
    text, given = script(engines)
    driver.write(text)
    (place / "home").mkdir()
    env = driver.env(HOME=str(place / "home"))
    env = {key: value for key, value in env.items() if not key.startswith(("XDG_", "GPUMON_CONFIG"))}
    arguments = [word for engine in engines for word in ("--endpoint", engine.metrics_url)] if endpoints else []
    watch = Watch()
    async with watch.on(env, arguments):
        end_s = time.monotonic() + FIND_S
        while time.monotonic() < end_s and None in [watch.seen(engine, feed.model) for engine, feed in feeds]:
            await asyncio.sleep(0.5)
            watch.check()
        await asyncio.sleep(2 * POLL_S)
        loads, wall = await measure(feeds, seconds)
        await asyncio.sleep(2 * POLL_S)
    outcomes = []
    for (engine, feed), load in zip(feeds, loads, strict=True):
        found_by = "config" if endpoints else "discovery"
        expected = Expected(engine.engine.kind, feed.model, given[engine.name], engine.engine.tp, found_by)
        sights, found_s = watch.sights(engine, feed.model), watch.seen(engine, feed.model)
        events = list(arrivals(load.requests, wall))
        outcomes.append(judge(engine.name, expected, sights, found_s, events, (wall + LEAD_S, wall + seconds)))
    return outcomes


def main() -> int:
    """The table; 0 where all is right, 1 where not, 2 where an engine did not start or gpumon ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", help=f"some of {', '.join(ENGINES)} (default: {', '.join(DEFAULT)}, as installed)")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the load (default 60)")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--endpoints", action="store_true", help="tell gpumon the URLs: leaves discovery out of it")
    arguments = parser.parse_args()
    there = [name for name in DEFAULT if installed(name)]
    names = arguments.engines.split(",") if arguments.engines else there
    if not arguments.engines and len(there) < LEAST:
        print(f"{len(there)} of {', '.join(DEFAULT)} installed in {folder()}, {LEAST} are needed", file=sys.stderr)
        return 2
    if unknown := [name for name in names if name not in ENGINES]:
        parser.error(f"--engines: no such engine {unknown[0]!r}; known: {', '.join(ENGINES)}")
    print(f"starting {', '.join(names)} (a minute or two) ...", flush=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gpumon-prove-") as temporary,
            running(names, Path(temporary)) as engines,
        ):
            outcomes = asyncio.run(prove(engines, arguments.seconds, Path(temporary), endpoints=arguments.endpoints))
    except (NotStarted, Ended) as wrong:
        print(wrong, file=sys.stderr)
        return 2
    text = table(outcomes)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text + "\n", encoding="utf-8")
    return int(any(outcome.problems for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
