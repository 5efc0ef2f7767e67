"""How an engine is started: what discovery tells a server by, and where its command line says port, model and ranks.

From the engines' own argument parsers and documentation; a name with `_` for `-` in an option is the same option.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind

Names = Mapping[str, str]
"""What is said -> the options or variables that say it, with spaces between them."""
NONE: Final[Names] = MappingProxyType({})
HOST_PORT: Final[Names] = {"host": "--host", "port": "--port"}
NODE: Final = "it is one of several nodes: only the first has metrics; add that node's URL"
UNIX_SOCKET: Final = "it serves on a Unix socket only: start it with --host and --port"


class Catch(NamedTuple):
    """An option that leaves a process without a page of its own, unless it has one of the `harmless` values."""

    option: str
    why: str
    harmless: tuple[str, ...] = ()


class Form(NamedTuple):
    """One way to start an engine. `options` and `variables` (of the environment) are by what they say:

    host, port, address (both in one), model, served_name, tp, pp, dp (numbers), on, off (metrics), key (an API key is
    asked for), tls, prefix (path that its pages stand below), quantization and kv_dtype (in the engine's words), embeds
    (it generates nothing), file (options stand in a file too).
    """

    kind: EngineKind
    title: str
    commands: tuple[str, ...]
    """Program or Python module, and the words that follow it."""
    options: Names = NONE
    variables: Names = NONE
    positional: bool = False
    """A word that belongs to no option is the model."""
    others: tuple[str, ...] = ()
    """First words that make it another command."""
    catches: tuple[Catch, ...] = ()
    nowhere: str = ""
    """Why it has no page that gpumon can read."""
    part: bool = False
    """A process of an engine, not its server."""
    apart: tuple[EngineKind, ...] = ()
    """Children of these kinds are servers of their own, and this one only hands requests on to them."""
    wrapper: bool = False
    """Counts only where no process below it is known as a server."""
    usual: bool = True
    """It takes the kind's usual port where none is said."""
    unsaid: str = ""
    """Why it has no page where neither options nor variables name a port."""
