"""How an engine is started: its commands, and the options and variables that say what discovery wants to know."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind

OptionNames = Mapping[str, str]
"""Setting -> the options or variables that give it, with spaces between them."""
_NO_NAMES: Final[OptionNames] = MappingProxyType({})
HOST_PORT: Final[OptionNames] = {"host": "--host", "port": "--port"}
"""The usual options of an address."""
NODE: Final = "it is one of several nodes: only the first has metrics; add that node's URL"
"""Why a process of a further node has no page."""
UNIX_SOCKET: Final = "it serves on a Unix socket only: start it with --host and --port"
"""Why a process on a Unix socket has no page."""


class Catch(NamedTuple):
    """An option that leaves a process without a page of its own, unless it has one of the `harmless` values."""

    option: str
    why: str
    """Why it has no page then, for its row."""
    harmless: tuple[str, ...] = ()


class LaunchForm(NamedTuple):
    """One way to start an engine. `options` and `variables` (of the environment) are by what they say:

    host, port, address (both in one), model, served_name, tp, pp, dp (numbers), on, off (metrics), key (an API key is
    asked for), tls, prefix (path that its pages stand below), quantization, kv_dtype, state_dtype and convolution_dtype
    (in the engine's words), gpu_layers (layers on the GPUs), experts_on_cpu (of all layers or of so many), placement
    (tensors by device), cpu_offload_gb (GiB of each GPU's weights), embeds (it generates nothing), file (options stand
    in a file too), and those of `readings.engine_options` by their names there.
    """

    kind: EngineKind
    title: str
    """Name of the engine as its makers write it."""
    commands: tuple[str, ...]
    """Program or Python module, and the words that follow it."""
    options: OptionNames = _NO_NAMES
    variables: OptionNames = _NO_NAMES
    inverse: OptionNames = _NO_NAMES
    """Setting -> the options that switch it off."""
    abbreviates: bool = False
    """It takes the beginning of an option's name for the option, as Python's argparse does."""
    positional: bool = False
    """A word that belongs to no option is the model."""
    other_commands: tuple[str, ...] = ()
    """First words after the command that make it another one, which is no server."""
    catches: tuple[Catch, ...] = ()
    why_no_page: str = ""
    """Why it has no page that gpumon can read."""
    part: bool = False
    """A process of an engine, not its server."""
    servers_below: tuple[EngineKind, ...] = ()
    """Children of these kinds are servers of their own, and this one only hands requests on to them."""
    wrapper: bool = False
    """Counts only where no process below it is known as a server."""
    takes_usual_port: bool = True
    """It takes the kind's usual port where none is said."""
    why_no_port: str = ""
    """Why it has no page where neither options nor variables name a port."""
