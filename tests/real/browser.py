"""`gpumon web --demo` in a real headless Chromium, through the DevTools protocol: what the page shows, keys, its end.

`python -m tests.real.browser [--pictures FOLDER]` (`make browser`); needs a program called chromium or google-chrome.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
SWITCHES: Final = ("--headless", "--no-sandbox", "--remote-debugging-port=0", "--window-size=1400,800", "about:blank")
WAIT_S: Final = 60.0
ESCAPE_S: Final = 0.3
"""After an Escape: what follows at once would be taken for a part of it."""
HOOK: Final = """
Object.defineProperty(Object.prototype, "terminal", {configurable: true, set(made) {
    if (made && made.buffer) window.shown = made;
    Object.defineProperty(this, "terminal", {value: made, writable: true, configurable: true});
}});
"""
"""Keeps the xterm.js of the page, which textual.js shows nobody."""
TEXT: Final = """
(() => { const screen = window.shown && window.shown.buffer.active, lines = [];
for (let y = 0; screen && y < screen.length; y++) lines.push(screen.getLine(y).translateToString(true));
return lines.join("\\n"); })()
"""
CODES: Final = {
    "F2": ("F2", 113, ""),
    "Escape": ("Escape", 27, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "Enter": ("Enter", 13, "\r"),
}
"""Keys that are no characters: code, number, text."""


MONITOR: Final = r"8x H100[\s\S]* ok +700W[\s\S]*\? help"
"""The first view, with figures."""


class Page:
    """A tab of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, count(1)
        self.asked: list[str] = []
        """URLs that the page asked for."""

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command of the DevTools protocol."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = json.loads((await self._socket.receive(timeout=WAIT_S)).data)
            if message.get("method") == "Network.requestWillBeSent":
                self.asked.append(message["params"]["request"]["url"])
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']['message']}")
                result: dict[str, Any] = message["result"]
                return result

    async def value(self, script: str) -> Any:
        """What a script in the page gives."""
        return (await self.call("Runtime.evaluate", expression=script))["result"].get("value")

    async def text(self) -> str:
        """The screen, as xterm.js has it."""
        return str(await self.value(TEXT))

    async def press(self, key: str) -> None:
        """One key, by its name or its character."""
        code, number, text = CODES.get(key, (key, ord(key[0].upper()), key))
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        await self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    async def picture(self, path: Path) -> None:
        """What it looks like."""
        shot = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


async def until(true: Callable[[], Awaitable[Any]], what: str) -> Any:
    """The first value that is true. Raises AssertionError where none comes."""
    end_s = time.monotonic() + WAIT_S
    while not (found := await true()):
        if time.monotonic() > end_s:
            raise AssertionError(f"not within {WAIT_S:.0f} s: {what}")
        await asyncio.sleep(0.1)
    return found


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Page]:
    """A browser with one empty tab."""
    program = next((found for name in NAMES if (found := shutil.which(name))), "")
    if not program:
        raise SystemExit(f"no browser is installed: {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *SWITCHES, f"--user-data-dir={profile}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            port = Path(profile, "DevToolsActivePort")

            async def opened() -> str:
                return port.read_text().partition("\n")[0] if port.exists() else ""

            url = f"http://127.0.0.1:{await until(opened, 'the browser starts')}/json/list"
            async with aiohttp.ClientSession() as session:
                tabs = await (await session.get(url)).json()
                (tab,) = [tab for tab in tabs if tab["type"] == "page"]
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Page(socket)
        finally:
            process.terminate()
            process.wait(WAIT_S)


def served() -> tuple[subprocess.Popen[str], str]:
    """`gpumon web --demo`, and its link."""
    command = [sys.executable, "-m", "gpumon", "web", "--demo", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    link = re.search(r"http://\S+", server.stdout.readline())
    assert link is not None, "the server says no link"
    return server, link[0]


async def look(page: Page, link: str, server: psutil.Process, pictures: Path | None) -> list[str]:
    """Everything that is to be seen; returns what was."""
    told: list[str] = []

    async def shows(pattern: str, after: str = "the link") -> str:
        try:
            await until(lambda: matches(pattern), f"the screen shows {pattern!r}")
        except AssertionError as missing:
            raise AssertionError(f"{missing}; it shows:\n{await page.text()}") from None
        if pictures is not None:
            await page.picture(pictures / f"{len(told)}.png")
        told.append(f"shown after {after}: {pattern}")
        return await page.text()

    async def matches(pattern: str) -> bool:
        return re.search(pattern, await page.text()) is not None

    for domain in ("Page", "Network", "Runtime"):
        await page.call(f"{domain}.enable")
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=HOOK)
    started_s = time.monotonic()
    await page.call("Page.navigate", url=link)
    first = await shows(MONITOR)
    told.append(f"{time.monotonic() - started_s:.1f} s from the link to the first figures")
    size = await page.value("[window.shown.cols, window.shown.rows].join('x')")
    told.append(f"{size} cells; key out of the address: {'key=' not in str(await page.value('location.href'))}")

    async def changed() -> bool:
        return await page.text() != first

    await until(changed, "figures change")
    for key, pattern in KEYS:
        await page.press(key)
        await shows(pattern, f"the key {key!r}")
        await asyncio.sleep(ESCAPE_S if key == "Escape" else 0)
    await page.call("Emulation.setDeviceMetricsOverride", width=1000, height=500, deviceScaleFactor=1, mobile=False)

    async def smaller() -> bool:
        return await page.value("[window.shown.cols, window.shown.rows].join('x')") != size

    await until(smaller, "the terminal follows the window")
    await shows(MONITOR, "another size of the window")
    outside = [url for url in page.asked if not url.startswith((link.partition("#")[0], "data:", "ws:"))]
    assert not outside, f"the page asks others: {outside}"
    told.append(f"{len(page.asked)} requests, none of them to another server")
    assert not (await page.call("Network.getCookies"))["cookies"], "the page sets a cookie"
    await page.call("Page.reload")
    await shows(MONITOR, "a reload, whose address has no key")
    await page.value("sessionStorage.clear()")
    await page.call("Page.reload")

    async def asks() -> bool:
        return str(await page.value("document.body.innerText")).startswith("Open the link that gpumon web printed")

    await until(asks, "a tab without the key says so")
    told.append("a tab without the key says so")
    await page.value(f"location.href = {link!r}")
    await shows(MONITOR, "the link, pasted into an open tab")
    children = server.children(recursive=True)
    assert children, "no process of the tab"
    await page.call("Page.navigate", url="about:blank")

    async def gone() -> bool:
        return not server.children()

    await until(gone, "the process ends with its tab")
    told.append("the process of the tab ended with it")
    return told


KEYS: Final = (
    ("?", "─ keys ─|─ help ─"),
    ("Escape", MONITOR),
    ("s", r"(?i)sizing"),
    ("Escape", MONITOR),
    ("ArrowDown", r"▸ 1"),
    ("/", r"filter gpus: "),
    ("7", r"filter gpus: 7"),
    ("Escape", MONITOR),
    (" ", "PAUSED|paused"),
    (" ", "●"),
    ("F2", r"─ settings ─[\s\S]*engines every"),
    ("Escape", MONITOR),
)


async def main(pictures: Path | None) -> None:
    """Raises AssertionError where something is not as it should be."""
    server, link = served()
    try:
        async with chromium() as page:
            print("\n".join(await look(page, link, psutil.Process(server.pid), pictures)))
    finally:
        server.terminate()
        code = server.wait(WAIT_S)
    print(f"the server ended with {code}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, help="folder for PNG files of what is seen")
    folder = parser.parse_args().pictures
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(folder))
