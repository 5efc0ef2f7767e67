"""Commands and settings of each action, for the clipboard: data beside the sentences of `render`.

A template is a command with parameters and their types: `py-spy dump --pid {pid:pid}`. It is offered only where each of
its parameters is there and has the form of its type, so that nothing another host says reaches a shell unchecked.
Every value is quoted for a shell. `{log=journal}` stands for nothing, and asks that the parameter has this value.
A setting is offered only whole: an option that wants a value and has none helps nobody who pastes it. A command may
have a blank, which is told as one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.untrusted import Untrusted
from gpumon.readings.verdict import Action, Parameters
from gpumon.triage.advice import SWITCHES


class Copyable(NamedTuple):
    """One text for the clipboard."""

    text: str
    does: str
    """Effect of the command, for a list to choose from."""
    runs: bool
    """Whether it is a command that a shell runs; else a setting of the engine."""
    blank: str = ""
    """Word in it that whoever pastes it has to replace; empty: it is whole."""


class _Template(NamedTuple):
    """A command or setting of an action."""

    text: str
    does: str
    """Effect of the command, for a list to choose from."""
    unless: str = ""
    """Name of a parameter that makes this one needless."""
    runs: bool = True
    """Whether it is a command that a shell runs; else a setting of the engine."""


def _setting(option: str) -> _Template:
    """A setting of the engine."""
    return _Template(option, "setting of the engine", runs=False)


_WHOLE_SETTING: Final = (_setting("{flag:setting}"),)
"""An option that says all by itself."""


_JOURNAL: Final = _Template("{log=journal}journalctl _PID={pid:pid}", "its log, if systemd keeps it")
_RUNTIME_LOG: Final = _Template("{log:runtime} logs {container:container}", "its log")
_STACKS: Final = _Template("py-spy dump --pid {pid:pid}", "stacks of its threads")
_XID_LINES: Final = _Template("sudo dmesg -T | grep Xid", "the driver's messages, with the pid")
_SPARE_ROWS: Final = _Template("nvidia-smi -q -d ROW_REMAPPER -i {index:gpus}", "remapped and spare memory rows")
_RESET: Final = _Template("sudo nvidia-smi --gpu-reset -i {index:gpus}", "resets it: drain it before")
_HOLDERS: Final = _Template("sudo fuser -v /dev/nvidia{index:count}", "every process that has it open, on the host")
_DIAGNOSE: Final = _Template("dcgmi diag -r 3", "diagnosis of minutes, on free GPUs")
_CLOCKS: Final = _Template("nvidia-smi -q -d CLOCK,PERFORMANCE -i {index:gpus}", "its clocks, and what holds them")
_READERS: Final = _Template("sudo iotop -o", "who reads and writes")
_DOCTOR: Final = _Template("gpumon doctor", "names what is missing")
_REPORT: Final = _Template("gpumon report", "peaks of the recording")

_CAP_AMD: Final = "sudo amd-smi set --gpu {index:count} --power-cap"
_RESET_AMD: Final = _Template("sudo amd-smi reset --gpureset --gpu {index:count}", "resets it: drain it before")
_METRIC_AMD: Final = _Template("amd-smi metric --gpu {index:count}", "its clocks, temperatures and limits")

_TEMPLATES: Final[Mapping[str, tuple[_Template, ...]]] = {
    "save_stacks_and_restart": (_JOURNAL, _RUNTIME_LOG, _STACKS),
    "read_error_log": (_JOURNAL, _RUNTIME_LOG),
    "wait_or_check": (
        _STACKS,
        _Template("{log=journal}journalctl -f _PID={pid:pid}", "its log as it grows, if systemd keeps it"),
        _RUNTIME_LOG,
    ),
    "look_at_time": (_Template("sudo journalctl -k --since @{began:count}", "the kernel's log since then"),),
    "raise_lora_slots": (_setting("{flag:option} {wanted:count}"),),
    "start_again": (
        _Template("{start:start_command}", "starts it again"),
        _Template("{command:struck_relaunch}", "its own folder, variables and command line", unless="start"),
    ),
    "restart_whole": (
        _Template("{restart:restart_command}", "starts it anew"),
        _Template("kill {kill:pids}", "ends what is left of it", unless="restart"),
        _Template("{command:struck_relaunch}", "its own folder, variables and command line", unless="restart"),
    ),
    "mend_part_stopped": (_Template("kill -CONT {pids:pids}", "lets it go on"),),
    "mend_part_frozen": (_Template("{unfreeze:unfreeze_command}", "lets it go on"),),
    "mend_part_traced": (_Template("grep TracerPid /proc/{pid:pid}/status", "pid of the debugger"),),
    "mend_part_uninterruptible": (
        _Template("sudo cat /proc/{pid:pid}/stack", "where in the kernel it waits"),
        _Template("sudo dmesg -T", "what the kernel says of it"),
    ),
    "mend_part_thread_uninterruptible": (
        _Template("ps -L -o tid,stat,wchan:40,comm -p {pid:pid}", "which thread waits, and where in the kernel"),
        _Template("sudo dmesg -T", "what the kernel says of it"),
    ),
    "check_url": (_Template("curl -sS {url:url}/metrics", "whether a server is there"),),
    "check_host": (
        _Template("ping -c 3 {host:host}", "whether its host answers"),
        _Template("curl -sS -m 5 {url:url}/health", "whether it answers"),
    ),
    "read_last_log": (
        _Template("{log:log_command}", "its log"),
        _Template("tail -n 100 {file:path}", "its log"),
        _Template("sudo dmesg -T", "whether the kernel ended it"),
    ),
    "add_model": (_DOCTOR,),
    "doctor": (_DOCTOR,),
    "fp8_kv": _WHOLE_SETTING,
    "more_kv_memory": (_setting("{flag:option} {wanted:share}"),),
    "raise_slots": (_setting("{flag:option} {wanted:count}"),),
    "narrow_dtype": _WHOLE_SETTING,
    "chunk_prompts": _WHOLE_SETTING,
    "expert_parallel": _WHOLE_SETTING,
    "quantise_weights": _WHOLE_SETTING,
    "prefix_caching": _WHOLE_SETTING,
    "smaller_chunks": (_setting("{chunked:setting}"),),
    "more_front_ends": _WHOLE_SETTING,
    "halve_tp": (_setting("{tp_flag:option} {half:count}"),),
    "pipeline_instead": (_setting("{pp_flag:option} {pp:count}"), _setting("{tp_flag:option} {tp:count}")),
    "fewer_gpus": (_setting("{pp_flag:option} {pp_to:count}"), _setting("{tp_flag:option} {tp_to:count}"), _REPORT),
    "stop_instances": (_REPORT,),
    "inspect_gpu": (_CLOCKS,),
    "nvlink_gpus": (_Template("nvidia-smi topo -m", "which GPUs NVLink joins"),),
    "profile_process": (_STACKS,),
    "dump_ranks": (_Template("py-spy dump --pid PID", "stacks of its threads, once for the pid of each rank"),),
    "dump_rank": (_Template("py-spy dump --pid {pids:pid}", "stacks of its threads"),),
    "serving_disk": (_READERS,),
    "find_reader": (_READERS,),
    "find_cpu_user": (_Template("top -o %CPU", "who uses the cores"),),
    "find_memory_user": (_Template("ps aux --sort=-rss | head", "who holds the memory"),),
    "find_receiver": (_Template("sudo ss -tinp state established", "connections with their traffic and programs"),),
    "serving_network": (_Template("sudo nethogs", "who receives"),),
    "reset_gpu": (_RESET,),
    "end_holders": (_HOLDERS,),
    "reset_mute_gpu": (_Template("sudo nvidia-smi --gpu-reset -i {index:gpus}", "resets it: once nothing holds it"),),
    "reset_when_free": (_RESET,),
    "reset_span": (_RESET,),
    "count_nvlink_errors": (_Template("nvidia-smi nvlink -e -i {index:gpus}", "errors of each link"),),
    "replace_if_remap_failed": (_SPARE_ROWS,),
    "count_spare_rows": (_SPARE_ROWS,),
    "diagnose_if_again": (_DIAGNOSE,),
    "diagnose_when_free": (_DIAGNOSE,),
    "restart_hit_program": (_XID_LINES,),
    "look_up_xid": (_XID_LINES,),
    "read_program_log": (_XID_LINES,),
    "find_killer": (_Template("sudo dmesg -T | grep -iE 'xid|oom|kill'", "what came before, and who killed it"),),
    "ask_recovery": (_Template("nvidia-smi -q -i {index:gpus} | grep -i recovery", "which reset the driver asks for"),),
    "check_cooling": (
        _Template("nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i {index:gpus}", "its temperatures and their limits"),
    ),
    "check_cooling_and_power": (
        _Template("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {index:gpus}", "what slows it down"),
    ),
    "lower_power_limit": (
        _Template("sudo nvidia-smi -i {index:gpus} -pl {watts:count}", "the lower power limit"),
        _Template("sudo nvidia-smi -i {index:gpus} -pl {limit_w:count}", "takes it back"),
    ),
    "restore_power_limit": (
        _Template("sudo nvidia-smi -i {index:gpus} -pl {watts:count}", "the default power limit"),
        _Template("nvidia-smi -q -d POWER -i {index:gpus}", "its power limits", unless="watts"),
    ),
    "reset_locked_clocks": (_Template("sudo nvidia-smi -rgc -i {index:gpus}", "unlocks its clock"), _CLOCKS),
    "reset_application_clocks": (
        _Template("sudo nvidia-smi -rac -i {index:gpus}", "takes its application clocks back"),
    ),
    "find_hidden_process": (_Template("nvidia-smi", "processes on the GPUs, as the host sees them"),),
    "find_holder": (
        _HOLDERS,
        _Template(
            "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv", "processes that the driver lists"
        ),
    ),
    "find_leak": (
        _Template("pgrep -a nvidia-cuda-mps", "MPS servers, which hold memory for their clients"),
        _Template("sudo nvidia-smi --gpu-reset -i {index:gpus}", "resets it: while nothing runs on it"),
    ),
    "show_pcie_link": (_Template("sudo lspci -vv -s {bus:bus}", "what slot and card can, and what they do"),),
    "show_nvlinks": (_Template("nvidia-smi nvlink -s -i {index:gpus}", "state of each of its NVLinks"),),
    "reseat_nvlink": (_RESET,),
    "read_driver_log": (_Template("sudo dmesg -T | grep -iE 'xid|gsp'", "what the driver says of it"),),
    "check_cooling_amd": (_METRIC_AMD,),
    "inspect_gpu_amd": (_METRIC_AMD,),
    "find_hidden_process_amd": (_Template("amd-smi process", "processes on the GPUs, as the host sees them"),),
    "lower_power_limit_amd": (
        _Template(f"{_CAP_AMD} {{watts:count}}", "the lower power limit"),
        _Template(f"{_CAP_AMD} {{limit_w:count}}", "takes it back"),
    ),
    "reset_gpu_amd": (_RESET_AMD,),
    "reset_when_free_amd": (_RESET_AMD,),
    "end_holders_amd": (_Template("sudo fuser -v /dev/kfd", "every process that has a GPU open, on the host"),),
    "reset_mute_gpu_amd": (_RESET_AMD,),
    "restore_power_limit_amd": (
        _Template(f"{_CAP_AMD} {{watts:count}}", "the default power limit"),
        _Template("amd-smi static --gpu {index:count}", "its power limits", unless="watts"),
    ),
    "xgmi_gpus": (_Template("gpumon topo", "which GPUs XGMI links join"),),
    "less_host_memory": (_Template("ps aux --sort=-rss | head", "who holds the memory"),),
    "raise_cgroup_limit": (_Template("systemd-cgtop -m", "which group is at its limit"),),
}
"""Code of the action -> its commands and settings, the most useful first. Other actions have nothing to copy."""

_NUMBERS: Final = frozenset({"count", "gpus"})
"""Types of numbers; `gpus` is the number of one GPU, or those of several parted by commas."""
_LARGEST_COUNT: Final = 10_000_000.0
"""Largest number in a command."""
_BLANKS: Final = re.compile(r"\b(?:PID|SECRET)\b", re.ASCII)
"""Words of a command in the place of what is not known here: of a pid, and of a secret, which nobody is shown."""
_STRUCK: Final = "***"
"""Stands for a secret in a command line: a shell would look for files with it."""
_PLACEHOLDER: Final = re.compile(r"\{(?P<name>\w+)(?P<sign>[:=])(?P<spec>\w+)\}")
"""A parameter in a command: with its type (`{pid:pid}`), or with the value that it must have (`{log=journal}`)."""
_VALUE_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"([A-Z][A-Z0-9_]+) ([\d.]+)"), lambda setting: f"{setting[1]}={setting[2]}"),
    (re.compile(r"([a-z][a-z0-9_.]+) ([\d.]+)"), lambda setting: f"{setting[1]}: {setting[2]}"),
)
"""Settings that are no options of a command line, and how those are given a value."""


def to_copy(actions: Sequence[Action]) -> list[Copyable]:
    """All commands and settings of some actions, in their order, each once; none of another host's own words."""
    offered: dict[str, Copyable] = {}
    for action in actions:
        for copyable in _copyables_of(action):
            offered.setdefault(copyable.text, copyable)
    return list(offered.values())


def _copyables_of(action: Action) -> Iterator[Copyable]:
    """The commands and settings of one action whose parameters are all there."""
    for template in _TEMPLATES.get(action.code, ()):
        if template.unless and template.unless in action.parameters:
            continue
        text = _fill_template(template.text, action.parameters)
        if not text:
            continue
        if not template.runs:
            text = _join_value(text)
        text = text.replace(_STRUCK, "SECRET")
        blank = _BLANKS.search(text) if template.runs else None
        does = f"put in {blank[0]}: {template.does}" if blank else template.does
        yield Copyable(text, does, template.runs, blank[0] if blank else "")


def _fill_template(template: str, parameters: Parameters) -> str:
    """The text of a template; empty where one of its parameters is not there, or not of its form."""
    pieces: list[str] = []
    end = 0
    for placeholder in _PLACEHOLDER.finditer(template):
        pieces.append(template[end : placeholder.start()])
        end = placeholder.end()
        value = parameters.get(placeholder["name"])
        if placeholder["sign"] == "=":
            if value != placeholder["spec"]:
                return ""
            continue
        written = _quoted_value(value, placeholder["spec"])
        if not written:
            return ""
        pieces.append(written)
    pieces.append(template[end:])
    return "".join(pieces)


def _quoted_value(value: float | str | None, form: str) -> str:
    """A parameter as a shell reads it; empty where it has not the form of its type."""
    if form in _NUMBERS and isinstance(value, float | int):
        return f"{value:.0f}" if 0.0 <= value <= _LARGEST_COUNT else ""
    if form == "count":
        return ""
    if not isinstance(value, str):
        return ""
    if form == "pid" and _BLANKS.fullmatch(value):
        return value
    text = Untrusted(value)
    if form == "setting":
        return text.one_of(SWITCHES) or text.of_form(form)
    return text.of_form(form)


def _join_value(setting: str) -> str:
    """A setting with its value as its kind is written: `--max-num-seqs 256`, `OLLAMA_NUM_PARALLEL=8`."""
    for pattern, join in _VALUE_FORMS:
        match = pattern.fullmatch(setting)
        if match is not None:
            return join(match)
    return setting
