"""Addresses of servers: names of this host, and ports that stand in no URL."""

from __future__ import annotations

from typing import Final

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this host: a server answers by each of them."""
USUAL_PORT: Final = {"http": 80, "https": 443}
"""Scheme -> port of an address that names none."""
