"""Stand-ins for packages that an engine imports and that are not installed: its parser needs none of them."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any


def _made(name: str) -> Any:
    return _Kind(name, (object,), {"__init__": _ignore, "__call__": _call, "__get_pydantic_core_schema__": _schema})


class _Kind(type):
    """A class that has whatever is asked of it."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _made(name)


def _ignore(*_: object, **__: object) -> None:
    """Takes all arguments."""


def _call(self: object, *arguments: Any, **_: object) -> Any:
    """As a decorator it changes nothing."""
    return arguments[0] if arguments and callable(arguments[0]) else self


@classmethod  # type: ignore[misc]
def _schema(_cls: type, _source: object, _handler: object) -> Any:
    from pydantic_core import core_schema

    return core_schema.any_schema()


class _Module(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _made(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what nobody else finds, for the engine's own files alone."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        frame = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is None or self._folder not in frame.f_code.co_filename:
            return None
        own = name.split(".")[0] in ("vllm", "sglang", "torch", "transformers", *sys.stdlib_module_names)
        if own and not name.startswith(("vllm._", "vllm.vllm_flash_attn")):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def stand_in_for(folder: str) -> None:
    """Modules that are imported by files below `folder`, and are not there, are made up from now on."""
    import torch  # noqa: F401 - they and what they need are real
    import transformers  # noqa: F401

    sys.path.insert(0, folder)
    sys.meta_path.append(_Finder(folder))
