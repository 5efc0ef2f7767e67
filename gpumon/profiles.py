"""The `profiles` command: imports load tests into the user's profiles, lists, shows and removes them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.arguments import Usage
from gpumon.config.errors import ConfigError
from gpumon.config.load import named
from gpumon.config.profile_store import (
    NotStoredError,
    absent,
    builtin,
    checked_name,
    remove,
    safe_name,
    store,
    stored_profiles,
)
from gpumon.outputs.profiles import added, as_json, encoded, listed, shown
from gpumon.readings.text import clean
from gpumon.sizing.profile import Observed
from gpumon.sizing.sweeps.formats import precision
from gpumon.sizing.sweeps.read import Given, imported
from gpumon.sizing.sweeps.record import MOST_BYTES, MOST_FILES, MOST_TOTAL, SweepError
from gpumon.sources.packaged import gpu_catalogue

OK, FAILED, USAGE = 0, 1, 2
"""Exit codes: done; the disk refuses; a file, a name or an option that can not be taken."""

Words = Sequence[str]
Write = Callable[[str | bytes], None]
Complain = Callable[[str], object]


class _Do(NamedTuple):
    chosen: argparse.Namespace
    environ: Mapping[str, str]
    write: Write
    width: int


def profiles_command(
    chosen: argparse.Namespace, environ: Mapping[str, str], write: Write, complain: Complain, width: int
) -> int:
    """Run `gpumon profiles ACTION WORD...`; returns the exit code. `complain` takes one line of an error at a time.

    Text is laid out for `width` columns.

    Raises Usage and ConfigError, which end with exit code 2 like any other command's.
    """
    action = _ACTIONS.get(chosen.action)
    if action is None:
        raise Usage(f"profiles {clean(chosen.action, 40)!a}: no such action; known: {', '.join(_ACTIONS)}")
    least, most, what, run = action
    if not least <= len(chosen.words) <= most:
        raise Usage(f"profiles {chosen.action} takes {what} (see gpumon profiles --help)")
    if chosen.action != "add" and (odd := [name for name in _ADDING if getattr(chosen, name, None)]):
        raise Usage(f"--{odd[0].replace('_', '-')} belongs to `gpumon profiles add`")
    try:
        run(_Do(chosen, environ, write, width))
    except SweepError as refused:
        for line in (*str(refused).splitlines(), "nothing was imported"):
            complain(line)
        return USAGE
    except NotStoredError as failure:
        complain(str(failure))
        return FAILED
    return OK


def _add(do: _Do) -> None:
    chosen = do.chosen
    given = Given(
        name=checked_name(chosen.name) if chosen.name else "",
        model=clean(chosen.model or ""),
        gpu=_gpu(chosen.gpu),
        gpus=int(chosen.gpus or 0),
        tp=int(chosen.tp or 0),
        pp=int(chosen.pp or 0),
        weight_precision=_precision("--precision", chosen.precision),
        kv_precision=_precision("--kv-precision", chosen.kv_precision),
        prompt_tokens=chosen.prompt_tokens,
        answer_tokens=chosen.answer_tokens,
        concurrency=_concurrency(chosen.concurrency),
        memory_bytes=None if chosen.memory_gb is None else chosen.memory_gb * 1e9,
        busy_ratio=chosen.busy,
    )
    found = imported(_files(chosen.words), given, gpu_catalogue())
    named_ = [_renamed(each) for each in found.profiles]
    paths = store(named_, do.environ, notes=found.notes, replace=chosen.replace)
    if chosen.json:
        do.write(encoded({"added": [as_json(each) for each in named_], "notes": list(found.notes)}))
    else:
        do.write(added(named_, found.notes, str(paths[0].parent), do.width))


def _list(do: _Do) -> None:
    stored, own = stored_profiles(do.environ), builtin()
    everything = own | {name: each.profile for name, each in stored.profiles.items()}
    if do.chosen.json:
        each = [
            as_json(profile, _notes(stored.profiles, name), built=name in own) for name, profile in everything.items()
        ]
        do.write(encoded({"profiles": each, "problems": list(stored.broken)}))
    else:
        do.write(listed(everything, frozenset(own), stored.broken, do.width))


def _show(do: _Do) -> None:
    name = do.chosen.words[0]
    stored, own = stored_profiles(do.environ), builtin()
    everything = own | {each: found.profile for each, found in stored.profiles.items()}
    if name not in everything:
        raise ConfigError(absent(name, stored))
    notes = _notes(stored.profiles, name)
    if do.chosen.json:
        do.write(encoded({"profile": as_json(everything[name], notes, built=name in own)}))
    else:
        do.write(shown(everything[name], notes, built=name in own, width=do.width))


def _remove(do: _Do) -> None:
    path = remove(do.chosen.words[0], do.environ)
    do.write(encoded({"removed": path.stem}) if do.chosen.json else f"removed {path.stem} ({named(path)})\n")


def _notes(stored: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return stored[name].notes if name in stored else ()


_ACTIONS: Final[dict[str, tuple[int, int, str, Callable[[_Do], None]]]] = {
    "add": (1, MOST_FILES, f"1 to {MOST_FILES} files", _add),
    "list": (0, 0, "no name", _list),
    "show": (1, 1, "the name of one profile", _show),
    "remove": (1, 1, "the name of one profile", _remove),
}
"""Action -> fewest and most words after it, what they are, and who does it."""

_ADDING: Final = (
    "name",
    "replace",
    "model",
    "gpu",
    "gpus",
    "tp",
    "pp",
    "precision",
    "kv_precision",
    "prompt_tokens",
    "answer_tokens",
    "concurrency",
    "memory_gb",
    "busy",
)
"""Options of `add` alone."""


def _files(words: Words) -> dict[str, bytes]:
    """Name -> content; stops reading where it is more than any import may have, and lets that be refused."""
    files: dict[str, bytes] = {}
    total = 0
    for word in dict.fromkeys(words):
        if total <= MOST_TOTAL:
            files["standard input" if word == "-" else word] = content = _content(word)
            total += len(content)
    return files


def _content(word: str) -> bytes:
    try:
        if word == "-":
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        with Path(word).open("rb") as stream:
            return stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as failure:
        why = failure.strerror if isinstance(failure, OSError) and failure.strerror else "is no file name"
        raise ConfigError(f"{named(word)}: cannot be read: {why}") from None


def _gpu(text: str | None) -> str:
    try:
        return gpu_catalogue().find(text).name if text else ""
    except ValueError as unknown_gpu:
        raise ConfigError(f"--gpu: {unknown_gpu}") from None


def _precision(option: str, text: str | None) -> str:
    found = precision(text) if text else ""
    if text and not found:
        raise ConfigError(
            f"{option}: {clean(text, 40)!a} is no precision; allowed: bf16, fp16, fp8, int8, int4, mxfp4, nvfp4"
        )
    return found


def _concurrency(text: str | None) -> tuple[float, ...]:
    if not text:
        return ()
    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        values = (0.0,)
    if not all(1.0 <= value <= 1e6 for value in values):
        raise ConfigError(f"--concurrency: {clean(text, 40)!a} must be numbers from 1 to 1e6 with commas between")
    return values


def _renamed(profile: Observed) -> Observed:
    return msgspec.structs.replace(profile, name=safe_name(profile.name))
