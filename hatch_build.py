"""Puts the manual page and the completions, made from the command's own parsers, into the wheel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACES = {
    "man": "share/man/man1/gpumon.1",
    "bash": "share/bash-completion/completions/gpumon",
    "zsh": "share/zsh/site-functions/_gpumon",
    "fish": "share/fish/vendor_completions.d/gpumon.fish",
}


class CompletionHook(BuildHookInterface):  # type: ignore[type-arg]  # of the config of a builder, which it does not use
    """Hatchling calls it for each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write them into build/share; an editable install goes without."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, self.root)
        from gpumon.commands import completion

        for form, place in PLACES.items():
            file = Path(self.root, "build", place)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(getattr(completion, form)(), encoding="utf-8")
            build_data["shared_data"][str(file)] = place
