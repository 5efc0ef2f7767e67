"""Back in time and the incident bundle, by keys in a real terminal; and no secret in any of its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.history.reader import Recording
from tests.fakes.engine import FakeEngine
from tests.fakes.nvml.driver import FakeDriver
from tests.terminal import Terminal

GPUMON = str(Path(sys.executable).with_name("gpumon"))
ARGUMENT, VARIABLE = "sk-argument-of-a-process", "sk-variable-of-an-endpoint"


def wait(terminal: Terminal, shows: Callable[[str], object], seconds: float = 60.0) -> str:
    """Run until the screen shows it."""
    end_s = time.monotonic() + seconds
    text = ""
    while time.monotonic() < end_s:
        terminal.run(0.2)
        text = "\n".join(terminal.screen())
        if shows(text):
            return text
    raise AssertionError(f"never shown:\n{text}")


def bundle_of(folder: Path) -> Path:
    (found,) = (folder / "state" / "gpumon" / "bundles").glob("gpumon-*")
    return found


def test_what_happened_just_now_is_looked_at_and_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = {
        **os.environ,
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    with Terminal([GPUMON, "demo", "--scenario", "healthy-chat"], env, loaded=True) as terminal:
        wait(terminal, lambda text: "SIMULATED" in text and "llama-8b" in text and "W " in text)
        began_s = time.monotonic()
        wait(terminal, lambda _: time.monotonic() - began_s > 5.0)
        terminal.type(b"[")
        wait(terminal, lambda text: " AGO " in text)
        terminal.type(b"\x1b[C")
        wait(terminal, lambda text: "← → frame" in text and " AGO " in text)
        terminal.type(b"\x1b[H")
        wait(terminal, lambda text: "m " in text.splitlines()[0] and " AGO " in text)
        terminal.type(b"\x1b[D")
        wait(terminal, lambda text: "the oldest moment kept" in text)
        terminal.type(b"\x1b[F")
        wait(terminal, lambda text: " AGO " not in text and "PAUSED" not in text)
        terminal.type(b"w")
        wait(terminal, lambda text: "wrote gpumon-" in text)
        bundle = bundle_of(tmp_path)
        files = {path.name for path in bundle.iterdir()}
        pictures = {"card.svg", "screen.svg", "screen.txt"}
        assert files == {"recording.gpumon", "snapshot.json", "verdicts.md", "versions.txt", *pictures}
        assert json.loads((bundle / "snapshot.json").read_bytes())["simulated"]
        assert "SIMULATED" in (bundle / "verdicts.md").read_text().splitlines()[0]
        recording = Recording(bundle / "recording.gpumon")
        span = recording.span()
        assert span is not None
        assert len(recording.frames(*span)) >= 4
        recording.close()
        terminal.type(b"q")
    with Terminal([GPUMON, "replay", str(bundle / "recording.gpumon")], env, loaded=True) as terminal:
        wait(terminal, lambda text: " REPLAY 20" in text and "recording.gpumon" in text and "SIMULATED" in text)
        terminal.type(b"\x1b[F")
        wait(terminal, lambda text: " END " in text)
        terminal.type(b"\x1b[H")
        wait(terminal, lambda text: " PAUSED " in text and "the recording begins" in text)


@pytest.fixture
def serving() -> Iterator[int]:
    """A real process whose command line holds a key, as that of an engine does."""
    code = "import time; time.sleep(120)"
    started = subprocess.Popen([sys.executable, "-c", code, "serve", "--api-key", ARGUMENT, f"--hf-token={ARGUMENT}"])
    yield started.pid
    started.kill()
    started.wait()


def test_no_secret_is_in_any_file_of_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: int) -> None:
    monkeypatch.chdir(tmp_path)
    driver = FakeDriver(tmp_path)
    driver.write(driver.busy_h100s(2, pid=serving))
    with FakeEngine("prometheus-api", start_s=20.0) as engine:
        config = tmp_path / "config.toml"
        config.write_text(f'[[endpoint]]\nurl = "{engine.url}"\napi_key_env = "ENGINE_KEY"\n')
        state = str(tmp_path / "state")
        env = driver.env(
            TERM="xterm-256color", LANG="C.UTF-8", HOME=str(tmp_path), XDG_STATE_HOME=state, ENGINE_KEY=VARIABLE
        )
        with Terminal([GPUMON, "--config", str(config)], env, columns=200, lines=60, loaded=True) as terminal:
            wait(terminal, lambda text: "--api-key ***" in text and "tiny-lla" in text)
            terminal.type(b"w")
            wait(terminal, lambda text: "wrote gpumon-" in text)
    bundle = bundle_of(tmp_path)
    recording = Recording(bundle / "recording.gpumon")
    span = recording.span()
    assert span is not None
    frames = repr(recording.frames(*span))
    recording.close()
    assert "--api-key ***" in frames
    assert "--api-key ***" in (bundle / "snapshot.json").read_text()
    written = [frames.encode(), *(path.read_bytes() for path in bundle.iterdir())]
    assert len(written) == 7
    assert not [text for text in written if ARGUMENT.encode() in text or VARIABLE.encode() in text]
