"""The command that starts an engine anew as it was started: its folder, its variables, its arguments."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from gpumon.sources.discovery.shown_command import STRUCK, shown_words, speaks_of_secret, strike_secrets
from gpumon.sources.family import ProcessRecord, matching_variables

_PREFIXES: Final = (
    *("VLLM_", "SGLANG_", "SGL_", "LLAMA_ARG_", "OLLAMA_", "TRTLLM_", "TLLM_", "HF_", "HUGGINGFACE_HUB_"),
    *("TRANSFORMERS_", "NCCL_", "RCCL_", "UCX_", "NVSHMEM_", "TORCH_NCCL_", "TORCHINDUCTOR_", "FLASHINFER_", "NIM_"),
)
"""Begins of the names of variables that change how an engine runs."""
_NAMES: Final = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        *("HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "CUDA_HOME", "CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS"),
        *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME"),
        *("TRITON_CACHE_DIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"),
    }
)
"""Further ones."""
_GPU_UUIDS: Final = re.compile(r"(?:(?:GPU|MIG)-[0-9a-f-]{1,36}(?:,|$))+", re.ASCII)
"""UUIDs of GPUs and slices: long and of hexadecimal digits, and no secret."""
_MOST_COMMAND: Final = 1536
"""Characters of a command."""
_MOST_VARIABLES: Final = 24
"""Variables of a command."""


def relaunch_command(server: ProcessRecord) -> str:
    """Folder, variables and command line of a server as a shell takes them, as far as this user may read them.

    What may be a secret is `***`. Empty where its arguments are only a title that it gave itself.
    """
    if len(server.argv) < 2:
        return ""
    words = [_quoted(word) for word in shown_words(server.argv)]
    command = " ".join((*_assignments(server.pid), *words))
    folder = _folder(server.pid)
    if folder:
        command = f"cd {shlex.quote(folder)} && {command}"
    return command if len(command) <= _MOST_COMMAND else ""


def _quoted(word: str) -> str:
    """A word as a shell takes it; `***` stays what everybody knows as left out."""
    return STRUCK.join(part and shlex.quote(part) for part in word.split(STRUCK))


def _assignments(pid: int) -> list[str]:
    """The variables that matter to an engine, as they stand before a command."""
    variables = matching_variables(pid, _matters) or {}
    assignments = []
    for name, value in sorted(variables.items())[:_MOST_VARIABLES]:
        shown = value
        if speaks_of_secret(name):
            shown = STRUCK
        elif not _GPU_UUIDS.fullmatch(value):
            shown = strike_secrets(value)
        assignments.append(f"{name}={_quoted(shown)}")
    return assignments


def _matters(name: str) -> bool:
    """Whether a variable changes how an engine runs."""
    is_name = name.isascii() and name.isidentifier()
    return is_name and (name in _NAMES or name.startswith(_PREFIXES))


def _folder(pid: int) -> str:
    """The folder that a process runs in; empty where Linux hides it, or where it is of another file system."""
    try:
        if Path(f"/proc/{pid}/root").readlink() != Path("/"):
            return ""
        folder = str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""
    return "" if folder.endswith(" (deleted)") or not folder.isprintable() else folder
