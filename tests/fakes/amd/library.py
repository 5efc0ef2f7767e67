"""Builds the fake `libamd_smi.so` and hands it, with a script, to AMD's own Python binding."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("fake.c")
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-fPIC", "-shared", "-lm")


def build() -> Path:
    """The folder that holds the library. Every other function that the binding looks up says NOT_SUPPORTED."""
    spec = importlib.util.find_spec("amdsmi")
    assert spec is not None, "the tests of AMD GPUs need the Python package amdsmi: pip install -e '.[dev]'"
    assert spec.origin is not None
    wrapper = Path(spec.origin).with_name("amdsmi_wrapper.py").read_text()
    names = set(re.findall(r"_libraries\['libamd_smi.so'\]\.(\w+)", wrapper))
    known = SOURCE.read_text()
    stubs = (f"int {name}(void) {{ return 2; }}\n" for name in sorted(names) if f"int {name}(" not in known)
    text = known + "".join(stubs)
    folder = Path(tempfile.gettempdir()) / f"fake-amd-{os.getuid()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    library = folder / "libamd_smi.so"
    if not library.exists():
        gcc = shutil.which("gcc")
        assert gcc is not None, "the fake AMD driver needs a C compiler: apt-get install gcc libc6-dev"
        folder.mkdir(mode=0o700, exist_ok=True)
        fresh = folder / f"{os.getpid()}"
        fresh.with_suffix(".c").write_text(text)
        subprocess.run([gcc, *FLAGS, "-o", fresh, fresh.with_suffix(".c")], check=True)
        fresh.rename(library)
    return folder


class FakeAmd:
    """A driver with a script of its own; `fake.c` describes it."""

    def __init__(self, folder: Path) -> None:
        self._library = build()
        self._script = folder / "amd.script"

    def write(self, text: str) -> None:
        """Put a script into force."""
        fresh = self._script.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self._script)

    def env(self) -> dict[str, str]:
        """This process's environment with the fake driver in it."""
        left = {key: value for key, value in os.environ.items() if key not in ("ROCM_HOME", "ROCM_PATH")}
        return {**left, "LD_LIBRARY_PATH": str(self._library), "GPUMON_FAKE_AMD": str(self._script)}
