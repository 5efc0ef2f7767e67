"""The `models` command: lists and searches the catalogue, shows a model's facts and where they come from."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.arguments import Usage
from gpumon.config.schema import Config
from gpumon.outputs.models import Shown, as_json, encoded, listed, not_found, shown, shown_json
from gpumon.readings.text import clean
from gpumon.sources.model_facts import POINTER, look_up
from gpumon.sources.model_files import view
from gpumon.sources.packaged import llm_catalogue

OK, FAILED = 0, 1
"""Exit codes: done; no such model is known."""
CONTEXT_TOKENS: Final = 4096.0
"""Context of the derived figures where none is asked for."""
_MOST_WORDS: Final = 32

Write = Callable[[str | bytes], None]


class _Do(NamedTuple):
    chosen: argparse.Namespace
    config: Config
    environ: Mapping[str, str]
    write: Write
    width: int


def models_command(
    chosen: argparse.Namespace, config: Config, environ: Mapping[str, str], write: Write, width: int
) -> int:
    """Run `gpumon models ACTION WORD...`; returns the exit code, 1 where no such model is known.

    Text is laid out for `width` columns. Raises Usage, which ends with exit code 2 like any other command's.
    """
    action = _ACTIONS.get(chosen.action)
    if action is None:
        meant = get_close_matches(chosen.action, _ACTIONS, n=1)
        hint = f"did you mean {meant[0]}?" if meant else f"gpumon models search {clean(chosen.action, 40)}?"
        raise Usage(f"models {clean(chosen.action, 40)!a}: no such action; known: {', '.join(_ACTIONS)}; {hint}")
    least, most, what, run = action
    if not least <= len(chosen.words) <= most:
        raise Usage(f"models {chosen.action} takes {what} (see gpumon models --help)")
    if chosen.action != "show" and chosen.context is not None:
        raise Usage("--context belongs to `gpumon models show`")
    return run(_Do(chosen, config, environ, write, width))


def _list(do: _Do) -> int:
    rows = llm_catalogue().rows
    configured = [entry.match for entry in do.config.model]
    if do.chosen.json:
        do.write(encoded({"models": [as_json(row) for row in rows], "configured": configured}))
    else:
        do.write(listed(rows, configured, do.width))
    return OK


def _search(do: _Do) -> int:
    llms, words = llm_catalogue(), do.chosen.words
    rows = llms.search(words)
    near = [row.name for row in llms.nearest(" ".join(words))] if not rows else []
    if do.chosen.json:
        do.write(encoded({"models": [as_json(row) for row in rows], "nearest": near}))
    else:
        do.write(listed(rows, (), do.width) if rows else not_found(words, near, do.width))
    return OK if rows else FAILED


def _show(do: _Do) -> int:
    name, llms = do.chosen.words[0], llm_catalogue()
    facts = look_up(_path(name) or name, "", do.config.model, llms, (view(do.environ),))
    own = llms.row(name)
    near = () if facts.spec is not None or own is not None else tuple(row.name for row in llms.nearest(name))
    context = CONTEXT_TOKENS if do.chosen.context is None else do.chosen.context
    why = "no such file or folder on this host" if _is_missing(name) else facts.why.removesuffix(f"\n{POINTER}")
    model = Shown(name, facts.spec, own, why, facts.looked, near, context)
    do.write(encoded(shown_json(model)) if do.chosen.json else shown(model, do.width))
    return OK if facts.spec is not None else FAILED


def _path(name: str) -> str:
    """The absolute path of a folder or .gguf file of this host; empty where it is none.

    A `config.json` stands for its folder; a bare word is a folder where that has a `config.json`.
    """
    try:
        path = Path(name).expanduser()
        path = path.parent if path.name == "config.json" and path.is_file() else path
        is_named = "/" in name or name.endswith((".gguf", ".json")) or (path / "config.json").is_file()
        return str(path.resolve()) if is_named and path.exists() else ""
    except (OSError, ValueError, RuntimeError):
        return ""


def _is_missing(name: str) -> bool:
    """Whether this can be nothing but a path, and there is none on this host."""
    is_path = name.startswith(("/", "./", "../", "~")) or name.endswith((".json", ".gguf"))
    return is_path and not _path(name)


_ACTIONS: Final[dict[str, tuple[int, int, str, Callable[[_Do], int]]]] = {
    "list": (0, 0, "no name", _list),
    "search": (1, _MOST_WORDS, "parts of a model's name", _search),
    "show": (1, 1, "one name, folder or .gguf file", _show),
}
"""Action -> fewest and most words after it, what they are, and who does it."""
