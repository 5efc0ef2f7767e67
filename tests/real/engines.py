"""The real engines: their command lines as people write them, when they are ready, and which process holds the GPU."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import psutil

from tests.real.install import folder, installed

HERE: Final = Path(__file__).resolve().parent
READY_S: Final = 600.0
STOP_S: Final = 20.0
QUIET: Final = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "SGLANG_USE_CPU_ENGINE": "1",
}


class Feed(NamedTuple):
    """One model of an engine, and the load that it gets: a phase of tests.real.load, without its length."""

    model: str
    clients: int
    prompt: int
    answer: int


class Engine(NamedTuple):
    """A server to start."""

    kind: str
    """gpumon's word for it (`readings.frame.EngineKind`)."""
    command: str
    """With {engines}, {here}, and a free {port}; {port2} and {port3} beside it where it needs more."""
    ready: str
    api: str
    """Key of `tests.real.load.APIS`."""
    feeds: tuple[Feed, ...]
    holds_gpu: str
    """Pattern of the title or command line of the processes that run the model."""
    metrics: str = "/metrics"
    """Where its figures are: a path, on {port} or after `:{port3}`."""
    pages: Mapping[str, str] = {}
    """Other pages that tell something, by the file name of a recording."""
    install: str = ""
    """Step of tests.real.install; the kind where empty."""
    one_gpu: bool = False
    """Its processes share a GPU; else each has one to itself."""
    tp: int | None = 1
    """Tensor-parallel size; None where there is no such thing."""


VLLM: Final = "{engines}/vllm/bin/vllm serve ./tiny-llama --served-model-name tiny-llama --host 127.0.0.1 --port {port}"
VLLM_OPTIONS: Final = " --dtype bfloat16 --max-model-len 2048 --max-num-seqs 16"
LLAMA: Final = "{engines}/llamacpp/build/bin/llama-server --host 127.0.0.1 --port {port} -t 1 --metrics"
TINY: Final = Feed("tiny-llama", 4, 64, 256)
DRAFT: Final = '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4,"prompt_lookup_min":2}'
SPECULATE: Final = f" --speculative-config '{DRAFT}'".replace("{", "{{").replace("}", "}}")
TRITON: Final = Engine(
    "triton",
    "{engines}/triton/bin/python {here}/triton_models.py {port} {port2} {port3}",
    "/v2/models/classify/ready",
    "triton",
    (Feed("embed", 3, 256, 4), Feed("classify", 2, 4, 2)),
    r"/bin/tritonserver |triton_python_backend_stub ",
    metrics=":{port3}/metrics",
    one_gpu=True,
    tp=None,
)
_VLLM: Final = Engine("vllm", VLLM + VLLM_OPTIONS, "/health", "openai", (TINY,), r"^VLLM::Worker")
FAMILIES: Final = ("granite-hybrid", "nemotron-h", "qwen3-next", "gpt-oss", "deepseek-v3")
"""Models of tests.real.families."""
_FAMILY: Final = (
    "{{engines}}/vllm/bin/vllm serve ../families/tiny-{name} --served-model-name tiny-{name} --host 127.0.0.1"
    " --port {{port}} --dtype bfloat16 --max-model-len 4096 --max-num-seqs 16 --enforce-eager"
    # With it vLLM 0.32 fails at the second prompt of a Mamba2 model: its kernel for CPUs keeps no states of chunks.
    " --no-enable-prefix-caching"
)
_LLAMA: Final = Engine(
    "llamacpp",
    LLAMA + " -m gguf/small-llama.gguf --alias small-llama -c 8192 -np 2",
    "/health",
    "llamacpp",
    (Feed("small-llama", 2, 64, 96),),
    r"llama-server",
    pages={"slots": "/slots", "props": "/props"},
)
ENGINES: Final[dict[str, Engine]] = {
    "vllm": _VLLM,
    # Without compiled kernels it starts in a fifth of the time.
    "vllm-eager": _VLLM._replace(command=_VLLM.command + " --enforce-eager"),
    "vllm-tp2": _VLLM._replace(command=_VLLM.command + " --tensor-parallel-size 2", tp=2),
    "vllm-dp2": _VLLM._replace(command=_VLLM.command + " --data-parallel-size 2 --data-parallel-address 127.0.0.1"),
    "vllm-ngram": _VLLM._replace(command=_VLLM.command + SPECULATE),
    **{
        f"vllm-{name}": _VLLM._replace(
            command=_FAMILY.format(name=name), install="families", feeds=(Feed(f"tiny-{name}", 2, 256, 64),)
        )
        for name in FAMILIES
    },
    "llamacpp": _LLAMA,
    "llamacpp-tiny": _LLAMA._replace(
        command=LLAMA + " -m gguf/tiny-llama.gguf --alias tiny-llama -c 8192 -np 4", feeds=(TINY,)
    ),
    "llamacpp-long-prompts": _LLAMA._replace(
        command=LLAMA + " -m gguf/tiny-llama.gguf --alias tiny-llama -c 8192 -np 4 -b 256", feeds=(TINY,)
    ),
    "llamacpp-router": _LLAMA._replace(
        command=LLAMA + " --models-dir gguf -c 4096 -np 2 --models-max 2",
        feeds=(TINY,),
        holds_gpu=r"llama-server.*(--alias|-m|--model) ",
        pages={
            "metrics_model": "/metrics?model=tiny-llama&autoload=false",
            "models": "/models",
            "props": "/props",
        },
    ),
    "triton": TRITON,
    "sglang": Engine(
        "sglang",
        "{engines}/sglang/bin/python -m sglang.launch_server --model-path ./tiny-llama --served-model-name tiny-llama"
        " --host 127.0.0.1 --port {port} --device cpu --attention-backend torch_native --sampling-backend pytorch"
        " --enable-metrics --dtype bfloat16 --disable-overlap-schedule --max-total-tokens 32768"
        " --max-running-requests 16 --context-length 2048 --disable-cuda-graph --skip-server-warmup",
        "/health",
        "sglang",
        (TINY,),
        r"^sglang::scheduler",
        pages={"metrics_b": "/metrics", "loads": "/v1/loads"},
    ),
}


class NotStarted(Exception):  # noqa: N818
    """An engine did not come up; the text has the end of its log."""


class Running:
    """An engine that was started."""

    def __init__(self, name: str, log: Path) -> None:
        """Starts it; `log` takes its output. Raises NotStarted where it is not installed."""
        self.name, self.engine, self.log = name, ENGINES[name], log
        step = self.engine.install or self.engine.kind
        if not installed(step):
            raise NotStarted(f"{name} is not installed: python -m tests.real.install {step}")
        self.ports = _free_ports(3)
        self._others: set[int] = set()
        names = ("port", "port2", "port3")
        self._words = {"engines": folder(), "here": HERE, **dict(zip(names, self.ports, strict=True))}
        self.command = self.engine.command.format(**self._words)
        self.process = self._start()

    @property
    def url(self) -> str:
        """Where it takes requests."""
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def metrics_url(self) -> str:
        """Where its figures are."""
        return self.page(self.engine.metrics)

    def page(self, path: str) -> str:
        """The URL of one of its pages."""
        path = path.format(**self._words)
        return f"http://127.0.0.1{path}" if path.startswith(":") else self.url + path

    def is_at(self, url: str) -> bool:
        """Whether a URL is on one of its ports, or of its children's: a router's servers choose theirs."""
        port = urlsplit(url).port
        return port in self.ports or port in self._others

    def look(self) -> None:
        """Learn which other ports its children listen at by now."""
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                sockets = process.net_connections("tcp")
                self._others |= {one.laddr.port for one in sockets if one.status == psutil.CONN_LISTEN}

    def wait(self, seconds: float = READY_S) -> None:
        """Until it answers. Raises NotStarted."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(self.page(self.engine.ready), timeout=2, trust_env=False).status_code == 200:
                    return
            time.sleep(0.5)
        end = "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])
        raise NotStarted(f"{self.name} did not come up (exit status {self.process.poll()}): {self.command}\n{end}")

    def restart(self) -> None:
        """End it as a service manager does, and start the same command again at once."""
        self.stop()
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        """The server's process, whose output goes on in its log."""
        with self.log.open("a") as output:
            return subprocess.Popen(
                f"exec nice -n 10 taskset -c {_cores()} {self.command}",
                shell=True,
                cwd=folder() / "models",
                env={**os.environ, **QUIET},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> None:
        """SIGTERM as a service manager does, SIGKILL to what is left of its process group after a while."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def family(self) -> list[psutil.Process]:
        """The process and its descendants."""
        try:
            parent = psutil.Process(self.process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def gpu_pids(self) -> list[int]:
        """The processes that would hold GPUs: those that run the model."""
        pattern = re.compile(self.engine.holds_gpu)
        return sorted(process.pid for process in self.family() if pattern.search(title(process)))

    def tree(self) -> str:
        """`pid ppid title` of each, parents first; the title is what ps shows: the command line, or its replacement."""
        return "".join(f"{process.pid} {process.ppid()} {title(process)}\n" for process in self.family())


def title(process: psutil.Process) -> str:
    """The command line; a process that set a title has that in its place."""
    try:
        return " ".join(process.cmdline()).strip()
    except psutil.Error:
        return ""


@contextlib.contextmanager
def running(names: list[str], logs: Path) -> Iterator[list[Running]]:
    """Engines that answer; they start side by side and are stopped at the end. Raises NotStarted."""
    started: list[Running] = []
    try:
        for name in names:
            started.append(Running(name, logs / f"{name}.log"))
        for one in started:
            one.wait()
        yield started
    finally:
        for one in started:
            one.process.terminate()
        for one in started:
            one.stop()


def _cores() -> str:
    """The cores that engines get: all but the first, which stays with the client and gpumon.

    vLLM's processes spin while they wait. On a host without a core to spare gpumon waits for seconds to be run at all.
    """
    cores = sorted(os.sched_getaffinity(0))
    return ",".join(map(str, cores[1:] or cores))


def _free_ports(count: int) -> list[int]:
    """Ports that nobody uses right now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
