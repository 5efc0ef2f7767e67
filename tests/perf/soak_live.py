"""Two hours of the installed program in a real terminal, beside engines that come and go: does its memory stay flat?

make soak-live                  # or: python -m tests.perf.soak_live [--minutes 120] [--warm-up 40] [--every 6]

`gpumon` runs over the fake driver of 8 GPUs. One engine is under load and starts anew each time that its recording
ends; another comes and goes every six seconds, each time with another model. A key is pressed every ten seconds. RSS of
the program and its worker is printed by the minute, and the command fails where the last ten minutes lie more than 5 MB
above the ten after the warm-up.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fakes.engine import Capture
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.perf.bench import servers_driver
from tests.perf.contestants import BIN
from tests.terminal import Terminal

STEADY = "vllm-staircase"
GUEST = "vllm-basic"
KEYS = (
    "[",
    "[",
    "n",
    "\x1b",
    "s",
    "\x1b[B",
    "\x1b",
    "z",
    "z",
    "\t",
    "/kv",
    "\x1b",
    "?",
    "\x1b",
    ",",
    "\x1b",
    "r",
    "\x1b",
)
"""Time travel, sizing, zoom, panes, a filter, help, settings: each is left again."""
MOST_MB = 5.0
MEAN_OVER_MIN = 10


class Guest:
    """An engine at one address that is there for some seconds and gone for as many, each time with another model."""

    def __init__(self, every_s: float) -> None:
        self._scrapes = Capture(GUEST).scrapes
        self._model = Capture(GUEST).meta["model"].encode()
        self._every_s = every_s
        self._began_s = time.monotonic()
        self.server = LoopbackServer(self._answer)

    def _visit(self) -> tuple[int, float]:
        number, since_s = divmod(time.monotonic() - self._began_s, self._every_s)
        return int(number), since_s

    def _answer(self, request: Request) -> Reply:
        number, since_s = self._visit()
        if request.path != "/metrics":
            return Reply(404)
        scrape = self._scrapes[min(len(self._scrapes) - 1, 30 + int(since_s))]
        return Reply(body=scrape.body.replace(self._model, b"guest-%d" % number), content_type=scrape.content_type)

    def come_or_go(self) -> None:
        """Listen in every other span, refuse connections in those between."""
        number, _ = self._visit()
        if number % 2:
            self.server.refuse()
        else:
            self.server.listen()


def start_steady(port: int) -> subprocess.Popen[str]:
    """A replay of an engine under load, at the same address as the one before."""
    command = [sys.executable, "-m", "tests.fakes.engine", STEADY, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def rss_mb(terminal: Terminal) -> float:
    """RSS of the program and all its descendants."""
    return sum(process.memory_info().rss for process in terminal.tree()) / 1e6


def play(minutes: int, every_s: float) -> list[float]:
    """RSS in MB at the end of each minute."""
    length_s = Capture(STEADY).scrapes[-1].t
    guest = Guest(every_s)
    with LoopbackServer(lambda _: Reply(404)) as probe:
        port = probe.port
    with tempfile.TemporaryDirectory() as folder, guest.server:
        env = servers_driver(Path(folder), free_calls=True).env(
            TERM="xterm-256color", LANG="C.UTF-8", HOME=folder, XDG_CONFIG_HOME=folder, XDG_STATE_HOME=folder
        )
        urls = (f"http://127.0.0.1:{port}", guest.server.url)
        command = [str(BIN / "gpumon"), "--interval", "1", *itertools.chain(*(("--endpoint", url) for url in urls))]
        steady = start_steady(port)
        minutes_mb: list[float] = []
        keys = itertools.cycle(KEYS)
        try:
            with Terminal(command, env) as terminal:
                began_s = restarted_s = time.monotonic()
                for turn in itertools.count(1):
                    guest.come_or_go()
                    terminal.run(1.0)
                    if turn % 10 == 0:
                        terminal.type(next(keys).encode())
                    if time.monotonic() - restarted_s > length_s:
                        steady.kill()
                        steady.wait()
                        steady = start_steady(port)
                        restarted_s = time.monotonic()
                    if time.monotonic() - began_s < 60.0 * (len(minutes_mb) + 1):
                        continue
                    if terminal.has_ended():
                        raise SystemExit("it ended:\n" + "\n".join(terminal.screen()))
                    minutes_mb.append(rss_mb(terminal))
                    print(f"minute {len(minutes_mb)}: {minutes_mb[-1]:.1f} MB", flush=True)
                    if len(minutes_mb) == minutes:
                        print("\n".join(terminal.screen()))
                        break
                    terminal.forget()
        finally:
            steady.kill()
    return minutes_mb


def main() -> None:
    """Play, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=120)
    parser.add_argument("--warm-up", type=int, default=40, help="minutes that are not judged")
    parser.add_argument("--every", type=float, default=6.0, help="seconds from a coming of the engine to its going")
    options = parser.parse_args()
    if options.minutes < options.warm_up + 2 * MEAN_OVER_MIN:
        parser.error(f"--minutes must be at least {options.warm_up + 2 * MEAN_OVER_MIN}")
    minutes_mb = play(options.minutes, options.every)
    first_mb = statistics.fmean(minutes_mb[options.warm_up : options.warm_up + MEAN_OVER_MIN])
    last_mb = statistics.fmean(minutes_mb[-MEAN_OVER_MIN:])
    print(f"RSS: {first_mb:.1f} MB after the warm-up, {last_mb:.1f} MB at the end")
    if last_mb - first_mb > MOST_MB:
        sys.exit("grows")


if __name__ == "__main__":
    main()
