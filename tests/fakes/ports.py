"""Ports of loopback that tests give to servers before these open them."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

_PORTS = itertools.count(os.getpid() * 256)
"""Numbers of ports, far from those of other processes of tests."""


def free_port() -> int:
    """A port that nobody listens on, below those that the kernel hands out: nobody is given it before it is opened."""
    for number in _PORTS:
        port = 10_000 + number % 22_000
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise AssertionError("there is always a further number")
