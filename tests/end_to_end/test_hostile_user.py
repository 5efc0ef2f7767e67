"""gpumon beside a user with twenty forged engines: links, pipes, sparse files, deep JSON, escape codes in all texts."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gpumon.config.errors import ConfigError
from gpumon.history.reader import Recording
from tests.tui.pty_process import PtyProcess

GPUMON = str(Path(sys.executable).with_name("gpumon"))
SECRET = "swordfish-of-root"
ROOT = os.geteuid() == 0
VALUE = SECRET if ROOT else "x"
"""Without root's rights the forged engines are of gpumon's own user, whose files may be quoted."""
OTHER = 54321
KEY_S = 0.2
"""Most processor time of the screen until a key is answered, forged files or not."""
EVIL = "\x1b]0;owned\x07\x1b[31m\u202e"
WATCH = """
import os, sys

def watch(event, words):
    if event == "socket.connect" and not isinstance(words[1], (str, bytes)):
        text = "connect " + str(words[1][0])
    elif event == "socket.getaddrinfo":
        text = "look up " + str(words[0])
    else:
        return
    descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(descriptor, (str(os.geteuid()) + " " + text + "\\n").encode())
    os.close(descriptor)

LOG = os.environ["WATCH_LOG"]
sys.addaudithook(watch)
"""
"""Every connection and look-up of a name of any process of gpumon, with the user that it was done as."""
SERVER = r"""
import encodings.idna, http.server, json, os, sys, threading
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
evil, roots = json.loads(sys.argv[2])

def forged(root):
    page = ('vllm:generation_tokens_total{engine="0",model_name="%s"} 7\n' % evil
            + 'vllm:num_requests_running{engine="0",model_name="%s"} 1\n' % evil
            + "process_start_time_seconds 1700000000\n").encode()
    card = {"id": evil, "root": root, "parent": None, "max_model_len": 4096}

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            pages = {"/metrics": page, "/version": json.dumps({"version": evil}).encode(),
                     "/v1/models": json.dumps({"object": "list", "data": [card]}).encode()}
            body = pages.get(self.path, b"")
            self.send_response(200 if body else 302)
            self.send_header("Location", "http://192.0.2.1/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        def log_message(self, *words):
            pass
    return Page

ports = []
for root in roots:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), forged(root))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ports.append(server.server_port)
print(json.dumps(ports), flush=True)
sys.stdin.read()
"""


def sparse(path: Path, head: bytes, size: int) -> None:
    path.write_bytes(head)
    os.truncate(path, size)


def header(path: Path, body: bytes) -> None:
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(body)) + body)


def many_tensors() -> bytes:
    """A header of half a million tensors."""
    return b"{" + b",".join(b'"%d":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}' % n for n in range(500_000)) + b"}"


CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4,
          "intermediate_size": 512, "vocab_size": 1000}  # fmt: skip
FORGED: list[Callable[[Path, Path], object]] = [
    lambda m, private: (m / "config.json").symlink_to(private / "config.json"),
    lambda m, private: (m / "config.json").hardlink_to(private / "config.json") if ROOT else None,
    lambda m, _: (m / "config.json").symlink_to("/proc/kmsg"),
    lambda m, _: (m / "config.json").symlink_to("/proc/1/environ"),
    lambda m, _: (m / "config.json").symlink_to("/dev/zero"),
    lambda m, _: (m / "config.json").symlink_to("/sys/kernel/notes"),
    lambda m, _: (m / "config.json").symlink_to("config.json"),
    lambda m, _: os.mkfifo(m / "config.json"),
    lambda m, _: sparse(m / "config.json", b"{", 1 << 40),
    lambda m, _: (m / "config.json").write_text('{"a":' * 900_000),
    lambda m, _: (m / "config.json").write_text("[" + "{}," * 1_000_000 + "{}]"),
    lambda m, _: (m / "config.json").write_text(json.dumps({"model_type": EVIL + VALUE})),
    lambda m, _: (m / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": EVIL + VALUE})),
    lambda m, _: ((m / "config.json").write_text(json.dumps(CONFIG)), header(m, many_tensors())),
    lambda m, _: ((m / "config.json").write_text(json.dumps(CONFIG)), header(m, b'{"a":' + b"[" * (30 << 20))),
    lambda m, _: ((m / "config.json").write_text(json.dumps(CONFIG)), header(m, b'{"' + b"a" * (30 << 20))),
    lambda m, _: sparse(m / "model.safetensors.index.json", b'{"metadata":{"total_size":', 1 << 34),
    lambda m, _: sparse(m / "m.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 1 << 40), 1 << 40),
    lambda m, private: (m / "m.gguf").symlink_to(private / "config.json"),
    lambda m, _: (m / "models--a").symlink_to("/"),
]


@pytest.fixture
def config() -> Iterator[Path]:
    """A config with an endpoint for each of them."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        private = place / "private"
        private.mkdir(mode=0o700)
        (private / "config.json").write_text(json.dumps({**CONFIG, "model_type": SECRET, "key": SECRET}))
        (private / "config.json").chmod(0o600)
        roots = []
        for number, forge in enumerate(FORGED):
            folder = place / f"m{number}"
            folder.mkdir()
            forge(folder, private)
            roots.append(str(folder))
        config = place / "config.toml"
        words = [sys.executable, "-c", SERVER, str(OTHER), json.dumps([EVIL, roots])]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            ports = json.loads(process.stdout.readline())
            config.write_text("".join(f'[[endpoint]]\nurl = "http://127.0.0.1:{port}"\n' for port in ports))
            yield config
            process.communicate()


def has_frames(path: Path) -> bool:
    """Whether a recording that is being made has a frame already."""
    try:
        opened = Recording(path)
    except ConfigError:
        return False
    span = opened.span()
    opened.close()
    return span is not None


def test_nothing_of_a_private_file_gets_out_and_the_screen_stays_quick(config: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "sitecustomize.py").write_text(WATCH)
        log = Path(home) / "watched"
        log.touch()
        log.chmod(0o666)
        Path(home).chmod(0o755)
        watched = {"PYTHONPATH": home, "WATCH_LOG": str(log)}
        environ = {"HOME": home, "XDG_DATA_HOME": home, **watched}
        words = [GPUMON, "--config", str(config), "--no-nvml"]
        screen = PtyProcess(words, 160, 50, **environ)
        try:
            screen.read(60.0, lambda written: b"127.0.0.1" in written or b"vllm:" in written)
            screen.read(4.0)
            costs_s = []
            for _ in range(3):
                before = len(screen.written)
                cpu_s = screen.cpu_s()
                screen.type(b"?")
                screen.read(60.0, lambda written, before=before: b"never quits" in written[before:])  # type: ignore[misc]
                assert b"never quits" in screen.written[before:]
                costs_s.append(screen.cpu_s() - cpu_s)
                screen.type(b"\x1b")
                screen.read(0.7)
            most = psutil.Process(screen.pid).memory_info().rss
            peak = int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{screen.pid}/status").read_text())[0]) * 1024
        finally:
            screen.close()
        environ = {**os.environ, **environ}
        done, doctor = (
            subprocess.run([*words, *command], capture_output=True, env=environ, timeout=120)
            for command in (["snapshot", "--json"], ["doctor"])
        )
        recording = Path(home) / "kept.gpumon"
        with subprocess.Popen([*words, "record", str(recording)], env=environ) as recorder:
            end_s = time.monotonic() + 60.0
            while not has_frames(recording) and time.monotonic() < end_s:
                time.sleep(0.2)
            recorder.send_signal(signal.SIGINT)
        opened = Recording(recording)
        span = opened.span()
        assert span is not None
        frames = repr(opened.frames(*span)).encode()
        opened.close()
        kept = [frames, *(path.read_bytes() for path in Path(home).rglob("*") if path.is_file())]
        seen = {tuple(line.split(" ", 1)) for line in log.read_text().splitlines()}
    texts = (screen.written, done.stdout, done.stderr, doctor.stdout, doctor.stderr, *kept)
    print(f"memory {most / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB; keys up to {1e3 * max(costs_s):.0f} ms")
    assert not [text for text in texts if SECRET.encode() in text]
    assert not [text for text in texts if b"\x1b]0;owned" in text or "\u202e".encode() in text]
    assert b"TypeError" not in doctor.stdout
    assert len(json.loads(done.stdout)["engines"]) == len(FORGED)
    assert {what for _, what in seen} <= {"connect 127.0.0.1", "look up 127.0.0.1"}
    assert ("0" if ROOT else str(os.geteuid()), "connect 127.0.0.1") in seen
    assert peak < 150e6
    assert statistics.median(costs_s) < KEY_S
