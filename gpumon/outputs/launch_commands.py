"""Command lines of the engines of a plan, with what was assumed as comments of the shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.outputs.yaml_text import yaml_text
from gpumon.readings.format import counted
from gpumon.readings.text import clean
from gpumon.sizing.launch import ENGINE_NAMES, EngineOption, Launch

FIRST_PORT: Final = 8000
"""Port of the first instance of a server; the others have those that follow."""
_HEAD: Final = "$HEAD"
"""Variable with the address of the first server of an instance."""
_RPC_PORT: Final = 13345
"""Port of vLLM's data-parallel coordinator: the first one of its documentation."""
_NIXL_PORT: Final = 5600
"""First port at which vLLM's NixlConnector tells where its KV cache is: its default."""
_MASTER_PORT: Final = 20000
"""Port at which the ranks of SGLang meet: the one of its documentation."""
_NUMBERED_ALONE: Final = (
    "# each of the groups below counts GPUs from 0 and ports from 8000: where two of them share a server (shown by\n"
    "# `gpumon size` without --commands), give the later one GPUs and ports that are free there\n"
)
"""Comment above several groups of instances."""
_LONGEST_NOTE: Final = 300
"""Characters of a note."""
_LONGEST_WORD: Final = 4096
"""Characters of a word of a command: of the longest path that Linux opens."""


def commands_text(launches: Sequence[Launch]) -> str:
    """The command lines of all instances, in the words of a shell."""
    blocks = ["\n".join(_launch_lines(launch)) for launch in launches]
    begin = _NUMBERED_ALONE if len(launches) > 1 else ""
    return begin + "\n\n".join(blocks) + "\n"


def program(launch: Launch, port: int) -> list[str]:
    """The words that start an instance on one server, its options without those of the servers."""
    everywhere = ["--host", "0.0.0.0"]  # vLLM listens so by itself, the others on this host alone
    model = model_word(launch)
    words = {
        "vllm": ["vllm", "serve", model],
        "sglang": ["python3", "-m", "sglang.launch_server", "--model-path", model, *everywhere],
        "trtllm": ["trtllm-serve", model, *everywhere],
    }[launch.engine]
    words += ["--port", str(port)]
    for option in launch.options:
        words += option_words(option)
    return words


def model_word(launch: Launch) -> str:
    """The model as a word of a command: one that begins as options do is a path."""
    return f"./{launch.model}" if launch.model.startswith("-") else launch.model


def option_words(option: EngineOption) -> list[str]:
    """An option and its value as words of a command line."""
    return [option.name, option.value] if option.value else [option.name]


def server_options(launch: Launch, rank: str, head: str, first_rank: str) -> list[str]:
    """The options of one server of an instance that stands on several, as texts of a shell.

    `rank`: number of the server, from 0; `head`: address of server 0; `first_rank`: number of its first data-parallel
    rank, for vLLM.
    """
    if launch.servers == 1 or launch.engine == "trtllm":
        return []
    if launch.engine == "sglang":
        return ["--nnodes", str(launch.servers), "--node-rank", rank, "--dist-init-addr", f"{head}:{_MASTER_PORT}"]
    if launch.dp % launch.servers == 0:
        local = str(launch.dp // launch.servers)
        return [
            *("--data-parallel-size-local", local, "--data-parallel-start-rank", first_rank),
            *("--data-parallel-address", head, "--data-parallel-rpc-port", str(_RPC_PORT)),
        ]
    return ["--nnodes", str(launch.servers), "--node-rank", rank, "--master-addr", head]


def config_name(launch: Launch) -> str:
    """File of TensorRT-LLM's further options."""
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in launch.name)
    return f"trtllm-{safe[:60]}.yaml"


def _launch_lines(launch: Launch) -> Iterator[str]:
    """A workload's instances on one type of GPU: comments, then a command for each place on a server."""
    name = clean(launch.name, 60)
    instances = counted(launch.instances, "instance")
    yield f"# {name}: {instances} of {clean(launch.model, 80)}, {launch.gpus} x {clean(launch.gpu, 60)} each"
    yield f"# options of {ENGINE_NAMES[launch.engine]}; spread requests evenly over the instances"
    for note in launch.notes:
        yield f"# assumed: {clean(note, _LONGEST_NOTE)}"
    if launch.config:
        yield f"cat > {config_name(launch)} <<'END'"
        yield from yaml_text(launch.config).splitlines()
        yield "END"
    if launch.servers > 1:
        yield from _several_servers(launch)
    else:
        yield from _one_server(launch)


def _one_server(launch: Launch) -> Iterator[str]:
    """The commands on one server, one for each instance that it holds."""
    places = min(launch.instances, launch.instances_per_server)
    if launch.instances > places:
        yield f"# the same on each server, until {counted(launch.instances, 'instance')} run"
    variable = "HIP_VISIBLE_DEVICES" if launch.is_amd else "CUDA_VISIBLE_DEVICES"
    for place in range(places):
        gpus = ",".join(str(place * launch.gpus + number) for number in range(launch.gpus))
        words = [*program(launch, FIRST_PORT + place), *_config_words(launch)]
        before = [f"{variable}={gpus}"] if launch.server_gpus > launch.gpus else []
        if launch.pool and launch.engine == "vllm":  # each GPU of an instance has a port behind it
            before.append(f"VLLM_NIXL_SIDE_CHANNEL_PORT={_NIXL_PORT + place * launch.gpus}")
        yield from _shell_lines(before, words, [])


def _several_servers(launch: Launch) -> Iterator[str]:
    """The commands of one instance on its servers."""
    if launch.engine == "trtllm":
        yield "# on one server, with the hosts of the instance in the file `hosts`"
        ranks = [*("mpirun", "-n", str(launch.gpus), "--hostfile", "hosts", "trtllm-llmapi-launch")]
        words = [*program(launch, FIRST_PORT), *_config_words(launch), "--gpus_per_node", str(launch.gpus_per_server)]
        yield from _shell_lines([], [*ranks, *words], [])
        return
    yield "HEAD=ADDRESS  # of the first server of each instance"
    for rank in range(launch.servers):
        yield f"# on server {rank} of each instance"
        first_rank = str(rank * (launch.dp // launch.servers))
        placed = server_options(launch, str(rank), _HEAD, first_rank)
        if rank and launch.engine == "vllm":
            placed.append("--headless")
        yield from _shell_lines([], program(launch, FIRST_PORT), placed)


def _config_words(launch: Launch) -> list[str]:
    """The option that names TensorRT-LLM's file."""
    return ["--extra_llm_api_options", config_name(launch)] if launch.config else []


def _shell_lines(before: Sequence[str], words: Sequence[str], placed: Sequence[str]) -> Iterator[str]:
    """One command in lines, one for each option. `before`, `placed`: texts of the shell already."""
    texts = [shlex.quote(clean(word, _LONGEST_WORD)) for word in words]
    placed_texts = [f'"{word}"' if word.startswith("$") else word for word in placed]
    line = list(before)
    lines = []
    for text in (*texts, *placed_texts):
        if text.startswith("--"):
            lines.append(" ".join(line))
            line = []
        line.append(text)
    lines.append(" ".join(line))
    yield " \\\n    ".join(lines)
