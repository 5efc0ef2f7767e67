"""The installed command as others use it: exit codes, one line on stderr, pipes, signals, and what it imports."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from gpumon import __version__
from gpumon.commands import COMMANDS
from gpumon.commands.watch import TOO_SHORT
from gpumon.config.resources import resource
from gpumon.outputs.schema import schema
from gpumon.tui.terminal import refusal
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import wait_until
from tests.fakes.nvml.driver import FakeDriver
from tests.outputs.validator import problems
from tests.program import run_gpumon, started, user_environment

GPUMON = [sys.executable, "-m", "gpumon"]
SMALL_DEMO = ("--demo", "--scenario", "thermal")
"""A simulated server that is there in half of the time, for what any server shows."""
KNOWN = ", ".join(COMMANDS)
BAD = Path(__file__).parents[1] / "config" / "bad"
NESTED = "interval: unknown key; did you mean general.interval_s (in [general])?"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """No config of the user, no setting of the caller, no NVIDIA driver of the machine."""
    return user_environment(tmp_path, TERM="xterm-256color")


def run(
    *arguments: str, env: dict[str, str], stdout: int | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    return run_gpumon(*arguments, env={**env, **more}, stdout=stdout)


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The error, which must be alone on its line."""
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("gpumon: ")
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("gpumon: ").rstrip("\n")


def test_version(env: dict[str, str]) -> None:
    done = run("--version", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"gpumon {__version__}\n", "")


@pytest.mark.parametrize(("command", "words"), [((), "commands:"), (("watch",), "--count"), (("config",), "--example")])
def test_help(env: dict[str, str], command: Sequence[str], words: str) -> None:
    for arguments in ((*command, "--help"), ("--help", *command)):
        done = run(*arguments, env=env)
        assert done.returncode == 0
        assert words in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wathc"], "no such command: 'wathc'; did you mean watch?"),
        (["fleet"], "no such command: 'fleet'; did you mean gpumon --host NAME, or gpumon --prometheus URL?"),
        (["zzz"], f"no such command: 'zzz'; known: {KNOWN}"),
        ([""], f"no such command: ''; known: {KNOWN}"),
        (["keep"], f"no such command: 'keep'; known: {KNOWN}"),
        (["watch", "snapshot"], "unrecognized arguments: 'snapshot' (see gpumon watch --help)"),
        (["watch", "--coun", "1"], "unrecognized arguments: --coun (see gpumon watch --help)"),
        (["snapshot", "--count", "1"], "unrecognized arguments: --count (see gpumon snapshot --help)"),
        (
            ["--json"],
            "unrecognized arguments: --json; did you mean gpumon snapshot --json, or gpumon status --json? "
            "(see gpumon --help)",
        ),
        (["demo", "--list"], "unrecognized arguments: --list; did you mean --scenario list? (see gpumon demo --help)"),
        (["--count", "1"], "unrecognized arguments: --count; did you mean gpumon watch --count? (see gpumon --help)"),
        (["--once"], "unrecognized arguments: --once; did you mean gpumon snapshot? (see gpumon --help)"),
        (["snapshot", "--once"], "unrecognized arguments: --once (see gpumon snapshot --help)"),
        (["status", "--window=--"], "argument --window: expected one argument (see gpumon status --help)"),
        (["watch", "--interval"], "argument --interval: expected one argument (see gpumon watch --help)"),
        (["watch", "--interval", "0.1"], "--interval=0.1: must be a number from 0.25 to 3600"),
        (["watch", "--interval=x"], '--interval="x": must be a number from 0.25 to 3600'),
        (["--coun", "1", "watch"], "unrecognized arguments: --coun (see gpumon --help)"),
        (["watch", "--json=1"], "argument --json: takes no value (see gpumon watch --help)"),
        (
            ["watch", "--endpoint", "localhost"],
            '--endpoint="localhost": needs http:// or https:// in front (host:port alone means http://host:port)',
        ),
        (
            ["watch", "--endpoint", "http://u:hunter2@h"],
            '--endpoint="http://***@h": must hold no user or password: use api_key_env or api_key_file',
        ),
        (
            ["watch", "--count", "0"],
            "argument --count: must be a whole number from 1 to 1000000000, not '0' (see gpumon watch --help)",
        ),
        (
            ["watch", "--json", "--plain"],
            "argument --plain: not allowed with argument --json (see gpumon watch --help)",
        ),
        (
            ["snapshot", "--window", "\x1b[31m"],
            "argument --window: must be a number from 0 to 3600, not '\\x1b[31m' (see gpumon snapshot --help)",
        ),
        (["config", "--config", "/nowhere/x.toml"], "/nowhere/x.toml: there is no such file"),
        (
            ["snapshot", "--config", str(BAD / "keys_clash.toml")],
            f'{BAD / "keys_clash.toml"}:4: keys.sort = "y, x": x is a key of zoom as well',
        ),
        (
            ["--config", str(BAD / "unknown_key.toml"), "watch"],
            f"{BAD / 'unknown_key.toml'}:3: general.intervall_s: unknown key; did you mean interval_s?",
        ),
        ([], refusal({}, False)),
        (["demo", "--theme", "nosuch"], refusal({}, False, demo=True)),
        (
            ["config", "--config", str(BAD / "unknown_key_nested.toml")],
            f"{BAD / 'unknown_key_nested.toml'}:1: {NESTED}",
        ),
    ],
)
def test_bad_usage_is_one_line_and_exits_2(env: dict[str, str], arguments: list[str], message: str) -> None:
    assert one_line(run(*arguments, env=env), 2) == message


def on_a_terminal(*arguments: str, env: dict[str, str], command: Sequence[str] = GPUMON) -> tuple[int, str]:
    """Exit code and stderr of a run whose stdin and stdout are a terminal."""
    ours, theirs = pty.openpty()
    with started([*command, *arguments], env=env, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as process:
        _, stderr = process.communicate(timeout=60)
    os.close(theirs)
    os.close(ours)
    return process.returncode, stderr


SECRET = "hunter2"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--endpoin", f"http://u:{SECRET}@h:1"],
        [f"--endpoin=http://u:{SECRET}@h:1"],
        ["watch", "--endpoin", f"http://u:{SECRET}@h:1"],
        ["watch", f"--endpoin=http://h:1/?key={SECRET}"],
        ["watch", f"--http://u:{SECRET}@h:1"],
        ["watch", "--api-key", SECRET],
        ["--api-key", SECRET, "watch"],
        [f"http://u:{SECRET}@h:1"],
        [f"u:{SECRET}@h:1"],
        ["watch", f"http://h:1?key={SECRET}"],
        ["watch", f"--json=http://u:{SECRET}@h:1"],
        ["watch", "--count", f"http://u:{SECRET}@h:1"],
        ["watch", "--interval", f"http://u:{SECRET}@h:1"],
        ["watch", "--endpoint", f"http://u:{SECRET}@h:1"],
        ["watch", "--endpoint", f"u:{SECRET}@h:1"],
        ["watch", "--endpoint", f"h:1?key={SECRET}"],
        ["watch", "--endpoint", f"http://u:{SECRET}"],
        ["watch", "--config", f"http://u:{SECRET}@h:1"],
        ["watch", "--config", f"http://h:1?key={SECRET}"],
        ["demo", "--theme", f"http://u:{SECRET}@h:1"],
    ],
    ids=" ".join,
)
def test_no_message_repeats_a_password_of_the_command_line(env: dict[str, str], arguments: list[str]) -> None:
    assert SECRET not in one_line(run(*arguments, env=env), 2)


def test_an_endpoint_is_taken_as_host_and_port(env: dict[str, str]) -> None:
    done = run("config", "--endpoint", "127.0.0.1:8000", env=env)
    assert 'url = "http://127.0.0.1:8000"' in done.stdout
    assert 'url = "http://gpu-07:8000"' in run("config", env=env, GPUMON_ENDPOINTS="gpu-07:8000").stdout


@pytest.mark.parametrize("terminal", ["dumb", "", "unknown", "DUMB"])
def test_a_terminal_that_can_show_nothing_is_refused(env: dict[str, str], terminal: str) -> None:
    code, text = on_a_terminal(env={**env, "TERM": terminal})
    assert code == 2
    assert text == f"gpumon: {refusal({'TERM': terminal}, True)}\n"


def test_a_theme_that_is_not_there_is_refused_before_the_screen(env: dict[str, str]) -> None:
    code, text = on_a_terminal("demo", "--theme", "nosuch", env=env)
    assert code == 2
    assert text.startswith('gpumon: there is no theme "nosuch"; themes: default')
    assert text.count("\n") == 1


@pytest.mark.parametrize("text", [None, "accent = 7\n"])
def test_config_refuses_a_theme_as_the_screen_does(text: str | None, env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[general]\ntheme = "mine"\n')
    if text is not None:
        (tmp_path / "themes").mkdir()
        (tmp_path / "themes" / "mine.toml").write_text(text)
    code, of_the_screen = on_a_terminal("--config", str(file), env=env)
    done = run("config", "--config", str(file), env=env)
    assert (code, done.returncode, done.stdout) == (2, 2, "")
    assert done.stderr == of_the_screen
    assert ("accent = 7" if text else 'there is no theme "mine"') in one_line(done, 2)
    assert run("snapshot", *SMALL_DEMO, "--window", "0", "--config", str(file), env=env).returncode == 0


BROKEN = """
import sys
from gpumon.cli import main
from gpumon.tui import app
sys.modules["gpumon.session.host"] = None
assert main(["demo"]) == 1
del sys.modules["gpumon.session.host"]
run = app.run
del app.run
assert main(["demo"]) == 1
app.run = run
del app.Palette
assert main(["demo"]) == 1
"""


def test_a_bug_before_the_screen_is_one_line_to_report(env: dict[str, str]) -> None:
    code, text = on_a_terminal(env=env, command=(sys.executable, "-c", BROKEN))
    no_module, no_run, no_palette = text.splitlines()
    assert code == 0
    failed = "gpumon failed, please report: "
    assert no_module.startswith(f"{failed}ModuleNotFoundError: import of gpumon.session.host halted")
    assert no_run.startswith(f"{failed}ImportError: cannot import name 'run' from 'gpumon.tui.app'")
    assert no_palette.startswith(f"{failed}NameError: name 'Palette' is not defined (tui/app.py:")


def test_without_gpu_and_endpoint_there_is_nothing_to_monitor(env: dict[str, str]) -> None:
    for command in ("snapshot", "watch"):
        assert one_line(run(command, "--no-nvml", env=env), 3).startswith("nothing to monitor: ")


def test_a_snapshot_of_nothing_names_the_option_for_the_fleet_of_the_config(env: dict[str, str]) -> None:
    with_fleet = env | {"GPUMON_PROMETHEUS": "http://127.0.0.1:1"}
    line = one_line(run("snapshot", "--no-nvml", "--no-discovery", env=with_fleet), 3)
    assert line.endswith("; --prometheus URL prints the fleet of [prometheus] url")


def test_config_example_is_the_file(env: dict[str, str]) -> None:
    done = run("config", "--example", env=env)
    assert done.stdout == resource("config.example.toml").read_text(encoding="utf-8")


def test_all_that_is_wrong_in_a_config_is_said_at_once(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        "[general]\nintervall_s = 3\nengine_interval_s = 0.1\n"
        '[[endpoint]]\nname = "a"\n[[endpoint]]\nurl = "http://h"\nengine = "vlm"\n'
        '[[model]]\nmatch = "m"\nparam_b = 8\n'
    )
    done = run("config", "--config", str(file), env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.removeprefix(f"gpumon: {file}:") for line in done.stderr.splitlines()] == [
        "2: general.intervall_s: unknown key; did you mean interval_s?",
        "3: general.engine_interval_s = 0.1: must be a number from 0.25 to 3600",
        "4: endpoint[0]: needs url: text in quotes",
        '8: endpoint[1].engine = "vlm": must be "aphrodite" or "auto" or "dynamo" or "fastdeploy" or "gateway" or '
        '"litellm" or "llamacpp" or "lmdeploy" or "max" or "nim" or "ollama" or "ray" or "sglang" or '
        '"sglang_diffusion" or "smg" or "tei" or "tgi" or "tokenspeed" or "triton" or "trtllm" or "vllm" or '
        '"vllm_omni" or "vllm_router" or "vllm_stack" or "xinference"',
        "11: model[0].param_b: unknown key; did you mean params_b?",
    ]
    file.write_text("".join(f"a{number} = 1\n" for number in range(30)))
    lines = run("config", "--config", str(file), env=env).stderr.splitlines()
    assert len(lines) == 21
    assert lines[-1] == f"gpumon: {file}: more is wrong: these were the first 20"


def test_options_count_before_and_after_the_command(env: dict[str, str]) -> None:
    arguments = ("--interval", "5", "--endpoint", "http://a", "config", "--endpoint=http://b", "--no-discovery")
    text = run(*arguments, env=env, GPUMON_INTERVAL="7", GPUMON_THEME="default").stdout
    assert "interval_s = 5.0  # --interval" in text
    assert 'url = "http://a"' in text
    assert 'url = "http://b"' in text
    assert "enabled = false  # --no-discovery" in text
    assert 'theme = "default"  # GPUMON_THEME' in text


def test_a_snapshot_by_the_contract(env: dict[str, str]) -> None:
    done = run("snapshot", "--demo", "--json", "--window", "0.5", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    shot = json.loads(done.stdout)
    assert list(problems(shot, schema())) == []
    assert shot["simulated"] is True
    assert (len(shot["gpus"]), len(shot["engines"])) == (8, 3)
    assert done.stdout.count("\n") == 1


def test_a_snapshot_of_one_reading_has_gauges_and_no_rates(env: dict[str, str]) -> None:
    shot = json.loads(run("snapshot", "--demo", "--json", "--window", "0", env=env).stdout)
    assert shot["gpus"][0]["vram_used_bytes"] > 0
    assert shot["engines"][0]["decode_tokens_per_s"] is None
    assert shot["engines"][0]["missing"]["decode_tokens_per_s"] == "warming_up"


def test_a_snapshot_as_text_says_simulated(env: dict[str, str]) -> None:
    done = run("snapshot", *SMALL_DEMO, "--window", "0", env=env)
    assert done.returncode == 0
    assert "SIMULATED" in done.stdout.splitlines()[0]


def test_watch_json_is_an_object_per_line_and_ends_by_count(env: dict[str, str]) -> None:
    done = run("watch", *SMALL_DEMO, "--json", "--interval", "0.25", "--count", "3", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    shots = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(shots) == 3
    assert [list(problems(shot, schema())) for shot in shots] == [[], [], []]
    assert len({shot["time"] for shot in shots}) == 3


def test_watch_ends_by_duration_and_is_plain_unless_asked(env: dict[str, str]) -> None:
    for seconds in (4, 16, 50):  # a busy machine may take longer to start, which must be said
        done = run("watch", *SMALL_DEMO, "--interval", "1", "--duration", str(seconds), env=env)
        if done.returncode == 0:
            break
        assert one_line(done, 1) == TOO_SHORT
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert 3 <= len(lines) <= 3 * (seconds + 1)  # two GPUs and an engine
    assert all(" SIMULATED " in line for line in lines)


def test_a_gpu_of_the_driver_and_an_engine_over_http(env: dict[str, str], fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 2\nprofile h100-sxm\ngpu * busy 91\ngpu 1 fault lost\n")
    with FakeEngine("vllm-basic", start_s=60.0) as engine:
        fake = {key: value for key, value in fake_driver.env().items() if key not in os.environ or "NVML" in key}
        fake["LD_LIBRARY_PATH"] = fake_driver.env()["LD_LIBRARY_PATH"]
        done = run("snapshot", "--json", "--window", "1.2", "--endpoint", engine.url, env={**env, **fake})
    assert (done.returncode, done.stderr) == (0, "")
    shot = json.loads(done.stdout)
    assert list(problems(shot, schema())) == []
    assert shot["simulated"] is False
    assert [gpu["state"] for gpu in shot["gpus"]] == ["ok", "lost"]
    assert shot["gpus"][0]["busy_ratio"] == pytest.approx(0.91)
    assert shot["gpus"][1]["busy_ratio"] is None
    assert shot["engines"][0]["state"] == "ok"
    assert shot["engines"][0]["kind"] == "vllm"


def test_one_dead_endpoint_costs_its_row(env: dict[str, str]) -> None:
    with FakeEngine("vllm-basic", start_s=60.0) as engine:
        urls = ("--endpoint", engine.url, "--endpoint", "http://127.0.0.1:9")
        done = run("snapshot", "--json", "--no-nvml", "--window", "0", *urls, env=env)
    assert done.returncode == 0
    assert [one["state"] for one in json.loads(done.stdout)["engines"]] == ["ok", "refused"]


MODULES = """
import json, sys
from gpumon.cli import main
for arguments in json.loads(sys.argv[1]):
    code = main(arguments)
    sys.stderr.write(json.dumps([code, *sys.modules]) + "\\n")
"""
RUNS: Sequence[tuple[list[str], set[str]]] = (
    (["--version"], {"textual", "rich", "httpx", "pynvml", "psutil", "msgspec", "asyncio", "tomli"}),
    (["config", "--example"], {"textual", "rich", "httpx", "pynvml", "psutil", "asyncio"}),
    (["config"], {"textual", "rich", "httpx", "pynvml", "psutil", "asyncio"}),
    ([], {"textual", "rich", "httpx", "pynvml", "psutil", "asyncio"}),
    (["snapshot", "--json", "--no-nvml"], {"textual", "rich", "httpx", "pynvml"}),
    (["snapshot", *SMALL_DEMO, "--json", "--window", "0"], {"textual", "pynvml"}),
    (["watch", *SMALL_DEMO, "--count", "1"], {"textual", "pynvml"}),
    (["status", *SMALL_DEMO], {"textual", "pynvml"}),
)
"""Commands in the order in which they may import more, and what none of them so far may have imported."""


def test_a_command_imports_only_what_it_needs(env: dict[str, str]) -> None:
    commands = json.dumps([arguments for arguments, _ in RUNS])
    done = subprocess.run(
        [sys.executable, "-c", MODULES, commands], env=env, capture_output=True, text=True, timeout=60
    )
    told = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[")]
    assert [code for code, *_ in told] == [0, 0, 0, 2, 3, 0, 0, 0]
    for (arguments, absent), (_, *imported) in zip(RUNS, told, strict=True):
        assert "gpumon.cli" in imported
        assert set(imported) & absent == set(), arguments


@pytest.mark.parametrize("kind", ["--json", "--plain"])
def test_a_reader_that_leaves_ends_it_quietly(env: dict[str, str], kind: str) -> None:
    command = [*GPUMON, "watch", *SMALL_DEMO, kind, "--interval", "0.25"]
    with started(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("command", [["--help"], ["config", "--example"], ["snapshot", *SMALL_DEMO, "--window", "0"]])
def test_a_reader_that_never_reads_ends_it_quietly(env: dict[str, str], command: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = run(*command, env=env, stdout=theirs)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_watch_as_its_user_wants(env: dict[str, str], number: signal.Signals) -> None:
    command = [*GPUMON, "watch", *SMALL_DEMO, "--json", "--interval", "0.25"]
    with started(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""
        assert all(json.loads(line)["schema"] == 1 for line in rest.splitlines()), "no line is torn"


def test_ctrl_c_ends_a_snapshot_without_a_traceback(env: dict[str, str]) -> None:
    command = [*GPUMON, "snapshot", *SMALL_DEMO, "--window", "60"]
    with started(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: psutil.Process(process.pid).net_connections())  # its simulated engines are there
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupting:
    def find_spec(name, path=None, target=None):
        if name == os.environ["INTERRUPTED"]:
            sys.meta_path.remove(Interrupting)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting)
"""
"""A `sitecustomize.py`: Ctrl+C is pressed as a module is about to be loaded."""


@pytest.mark.parametrize(
    "module", ["gpumon.cli", "argparse", "gpumon.commands.snapshot", "datetime", "msgspec", "asyncio"]
)
def test_ctrl_c_while_it_starts_ends_it_without_a_traceback(env: dict[str, str], tmp_path: Path, module: str) -> None:
    """msgspec loses the Ctrl+C that comes as it loads `datetime`, and crashes at its first decoder."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_IMPORT)
    watched = {**env, "PYTHONPATH": str(tmp_path), "INTERRUPTED": module}
    done = subprocess.run(
        [*GPUMON, "snapshot", *SMALL_DEMO, "--window", "60"], env=watched, capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (-signal.SIGINT, 130)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_shell_that_ignores_ctrl_c_for_its_background_is_obeyed(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_IMPORT)
    words = [*GPUMON, "config", "--example"]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *words],
        env={**env, "PYTHONPATH": str(tmp_path), "INTERRUPTED": "gpumon.commands.config"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == resource("config.example.toml").read_text(encoding="utf-8")


def assert_ends_quietly(program: str, env: dict[str, str]) -> None:
    """A program that Ctrl+C interrupts ends as a shell expects, and prints nothing."""
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


INTERRUPTED_AT_THE_END = """
import asyncio, signal, sys
from asyncio.base_events import BaseEventLoop
from gpumon.cli import main

turn = BaseEventLoop._run_once
tasks = []

def interrupted_turn(loop):
    tasks.extend([] if tasks else asyncio.all_tasks(loop))
    if tasks[0].done():
        BaseEventLoop._run_once = turn
        signal.raise_signal(signal.SIGINT)
    turn(loop)

BaseEventLoop._run_once = interrupted_turn
sys.exit(main(["snapshot", "--demo", "--scenario", "thermal", "--window", "0"]))
"""
"""The signal comes after the last turn of the work, before the loop has stopped."""


def test_ctrl_c_in_the_last_moment_is_no_fault(env: dict[str, str]) -> None:
    assert_ends_quietly(INTERRUPTED_AT_THE_END, env)


INTERRUPTED_AT_THE_BEGIN = """
import asyncio, signal, sys
from asyncio.selector_events import BaseSelectorEventLoop
from gpumon.cli import main

def interrupted(loop, *words):
    signal.raise_signal(signal.SIGINT)

BaseSelectorEventLoop.__init__ = interrupted
sys.exit(main(["snapshot", "--demo", "--scenario", "thermal", "--window", "0"]))
"""
"""The signal comes as the event loop is made: asyncio has no handler yet."""


def test_ctrl_c_in_the_first_moment_leaves_no_words_of_what_is_half_made(env: dict[str, str]) -> None:
    assert_ends_quietly(INTERRUPTED_AT_THE_BEGIN, env)


def test_a_full_disk_is_named(env: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = run("snapshot", *SMALL_DEMO, "--json", "--window", "0", env=env, stdout=full.fileno())
    assert one_line(done, 1) == "cannot write the output: No space left on device"


def test_closed_stdout_and_stderr_are_survived(env: dict[str, str]) -> None:
    command = f"exec {sys.executable} -m gpumon config --example >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], env=env, timeout=60).returncode == 0


def test_an_ascii_stdout_gets_text_that_fits(env: dict[str, str]) -> None:
    done = run("config", "--endpoint", "http://müller", env=env, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert 'url = "http://m' in done.stdout


def driver_env(env: dict[str, str], driver: FakeDriver, script: str) -> dict[str, str]:
    """The environment of a command that finds the fake driver with these GPUs."""
    driver.write(script)
    fake = {key: value for key, value in driver.env().items() if key not in os.environ or "NVML" in key}
    return {**env, **fake, "LD_LIBRARY_PATH": driver.env()["LD_LIBRARY_PATH"]}


@pytest.mark.parametrize(
    ("fault", "code", "text"), [("", 0, "1 GPU 50% busy"), ("gpu 0 fault lost\n", 1, "critical: gpu 0 hardware fault")]
)
def test_status_exits_1_where_something_critical_stands(
    env: dict[str, str], fake_driver: FakeDriver, fault: str, code: int, text: str
) -> None:
    driver = driver_env(env, fake_driver, f"gpus 1\nprofile h100-sxm\ngpu * busy 50\n{fault}")
    done = run("status", "--no-discovery", env=driver)
    assert (done.returncode, done.stderr) == (code, "")
    assert text in done.stdout


def test_status_exits_3_where_there_is_nothing_to_monitor(env: dict[str, str]) -> None:
    assert "nothing to monitor" in one_line(run("status", "--no-nvml", "--no-discovery", env=env), 3)


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--endpoint", "http://127.0.0.1:9"), 1)])
def test_doctor_exits_1_where_something_fails(env: dict[str, str], options: tuple[str, ...], code: int) -> None:
    done = run("doctor", "--no-nvml", "--no-discovery", *options, env=env)
    assert (done.returncode, done.stderr) == (code, "")
    assert ("failed" in done.stdout.splitlines()[-1]) == (code == 1)
