"""Why an engine's log has no request lines, as its command line tells, and what brings them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind

_LEVELS_ABOVE_INFO: Final = ("warning", "error", "critical")
"""Levels of Python's logging above that of uvicorn's access lines."""


class Switch(NamedTuple):
    """An option that leaves request lines out of the log."""

    option: str
    values: tuple[str, ...] = ()
    """Values of the option that do so; empty: the option alone does."""
    unless: str = ""
    """Option that has precedence."""
    fix: str = "start it without that option"


_UVICORN_SWITCHES: Final = (
    Switch("--disable-uvicorn-access-log"),
    Switch("--uvicorn-log-level", _LEVELS_ABOVE_INFO, fix="--uvicorn-log-level info writes them"),
)
"""Options of engines that serve with uvicorn."""
SWITCHES: Final[Mapping[EngineKind, tuple[Switch, ...]]] = {
    EngineKind.VLLM: _UVICORN_SWITCHES,
    EngineKind.APHRODITE: _UVICORN_SWITCHES,
    EngineKind.VLLM_OMNI: _UVICORN_SWITCHES,
    EngineKind.VLLM_STACK: (Switch("--log-level", _LEVELS_ABOVE_INFO, fix="--log-level info writes them"),),
    EngineKind.SGLANG: (
        Switch("--log-level-http", _LEVELS_ABOVE_INFO, fix="--log-level-http info writes them"),
        Switch("--log-level", _LEVELS_ABOVE_INFO, unless="--log-level-http", fix="--log-level-http info writes them"),
    ),
    EngineKind.LLAMA_CPP: (Switch("--log-disable"),),
}
"""Options of an engine that keep requests out of its log."""
ACCESS_LOG_HINTS: Final[Mapping[EngineKind, str]] = {
    EngineKind.VLLM: "vLLM writes a line for each request unless VLLM_LOGGING_CONFIG_PATH names other loggers",
    EngineKind.SGLANG: "SGLang writes a line for each request unless its log level is above info",
    EngineKind.LMDEPLOY: "LMDeploy writes a line for each request unless UVICORN_LOG_LEVEL is above info",
    EngineKind.LLAMA_CPP: (
        "builds of llama.cpp since May 2026 write a line for each request with -lv 4 only, and the newest none"
    ),
    EngineKind.TGI: "TGI writes a line for each request unless LOG_LEVEL is above info",
    EngineKind.TRITON: "Triton writes a line for each request with --log-verbose=1, without status and client",
    EngineKind.DYNAMO: "no form of Dynamo's request lines is known",
    EngineKind.RAY: "Ray Serve writes its request lines into files of its own, which gpumon does not read",
}
"""Kind of engine -> why its log may have no request lines though its command line does not say so."""


def silence_of(kind: EngineKind, argv: Sequence[str]) -> str:
    """Why an engine with that command line writes no request lines, and what brings them; empty: nothing says so."""
    options = _options(argv)
    for switch in SWITCHES.get(kind, ()):
        value = options.get(switch.option)
        if value is None or switch.unless in options:
            continue
        if not switch.values:
            return f"its request lines are off by {switch.option}: {switch.fix}"
        if value.lower() in switch.values:
            return f"its request lines are off by {switch.option} {value.lower()}: {switch.fix}"
    return ""


def _options(argv: Sequence[str]) -> dict[str, str]:
    """Options of a command line with the word after each, or behind its `=`; `_` in a name is `-`."""
    options: dict[str, str] = {}
    for place, word in enumerate(argv):
        if not word.startswith("--"):
            continue
        name, sign, value = word.partition("=")
        if not sign and place + 1 < len(argv):
            value = argv[place + 1]
        options[name.replace("_", "-")] = value
    return options
