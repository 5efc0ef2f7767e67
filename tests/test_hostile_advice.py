"""Names that others chose stand in no command and in no line of a config that gpumon advises, unless through a gate."""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import tomli

import gpumon
from gpumon.config.ownership import UNTYPEABLE, writable_fault
from gpumon.config.schema import Host, Webhook
from gpumon.efficiency.faults import lacks
from gpumon.push.checks import webhook_checks
from gpumon.push.records import KeptState
from gpumon.push.store import WebhookStore, webhook_file
from gpumon.push.webhooks import webhook_names
from gpumon.readings import quantities as q
from gpumon.readings.check import Check
from gpumon.readings.frame import Departure, EndpointState, EngineKind, RankReading
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Backend
from gpumon.readings.untrusted import Untrusted
from gpumon.readings.verdict import Acknowledged
from gpumon.session.fleet_host import HostOfFleet
from gpumon.sources.diagnosis import CONFIG_LINES, engine_checks
from gpumon.sources.discovery.chain import DISCOVERY_SOURCE
from gpumon.sources.engine_log.places import _pod_log, _tail_command, _unit_journal
from gpumon.sources.gpu_checks import gpu_checks
from gpumon.sources.guest.archive import Archives, NoWheelsError
from gpumon.sources.guest.wheels import python_here
from gpumon.sources.last_seen.records import EngineOrigin
from gpumon.sources.model_facts import look_up
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.remote import _HINTS, Remote
from gpumon.sources.state_checks import state_checks
from gpumon.specs.llms import LlmCatalogue
from gpumon.tui.detail.backends import _config_lines
from gpumon.tui.detail.blocks import Sentence
from gpumon.tui.detail.why import Subject, make_explainer
from tests.efficiency import polls
from tests.hostile_text import ATTACKS, EVIL, operators_of, without_quoted
from tests.outputs import shots
from tests.records import replace

TOML_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
COMMANDS = re.compile(
    r"\b(?:sudo|ssh|kill|pip|curl|docker|podman|kubectl|systemctl|journalctl|chmod|chown|rm|tail|scp"
    r"|gpumon (?:ack|webhook|models))\s|\b(?:url|match|name) = |\Arm\Z"
)
"""Words of a command, and keys of a config, that stand before a name in advice."""
FORMS_OF_COMMANDS = "gpumon/readings/untrusted.py"
WALKED = {
    "add [[endpoint]] url = {} with that to the config",
    "[[endpoint]] with url = {}",
    "[[endpoint]] url = {}",
    "add to the config:\n[[endpoint]]\nurl = {}\n{}",
    "add to its [[endpoint]] in the config (url = {url}): context_tokens = 2000",
    "add to its [[endpoint]] in the config (url = {url}): gpus = [0, 1]; for an engine on another host: "
    'gpu_type = "H100 SXM 80GB" and gpu_count = 2',
    "add to the config: [[model]] match = {name} with params_b, layers, hidden, heads from the model's config.json "
    "(gpumon config --example)",
    "unknown model ({}). Add to the config, with the figures of its config.json, then start gpumon again",
    "if you know its peaks, dense, add to the config:\n[[gpu]]\nname = {}\n{}",
    "gpumon webhook --test{} sends a message and shows the answer",
    "sudo chown {}",
    "gpumon ack --remove {}",
    "{}: ssh {} {}",
    "the log of {} is on another host: ssh {} {}",
    "the log of {} is on another host: ssh -t {} gpumon, then its log there",
    "no answer for {:.0f} s: ssh connects, or its gpumon hangs (see `ssh {} true`)",
    *(text for _, text in _HINTS),
    "{}: pip download -d {} --no-deps --only-binary=:all: --python-version {} --platform {}_{} {}",
    "kubectl logs{} {} --tail={}",
    "kubectl logs{} {} --previous --tail=100",
    "kubectl delete pod{} {}",
    "tail -n {} {}",
    "docker logs --tail {} {}",
    "docker logs --tail 100 {}",
    "docker start {}",
    "docker restart {}",
    "docker unpause {}",
}
"""Templates of commands and of lines of a config outside of triage, each of which a test below or beside the rules of
triage fills with attacks."""
WITHOUT_NAMES = {
    "--listen: {} is no loopback address, and the screen would be open to the network without TLS: use 127.0.0.1 and "
    "ssh -L or a reverse proxy (docs/web.md), or add --allow-remote",
    "GET /containers/json?all=1&filters={} HTTP/1.0\r\nHost: docker\r\n\r\n",
    "ssh does not start: {}",
    "install {} with pip in gpumon's own environment, and ROCm's amd-smi-lib on the host",
    "{} cannot be used: as that user, gpumon models show says why",
    "{} -m pip install {}, and ROCm's amd-smi-lib if the host lacks it",
}
"""Templates whose parameters are gpumon's own."""


def templates() -> Iterator[tuple[str, str]]:
    """File and text of each template in gpumon that has words of a command, with `{}` for its parameters."""
    root = Path(gpumon.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name = f"gpumon/{path.relative_to(root)}"
        if name.startswith("gpumon/triage/") or name == FORMS_OF_COMMANDS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            text = template_of(node)
            if re.search(r"\{[^}]*\}", text) and COMMANDS.search(text):
                yield name, text


def template_of(node: ast.AST) -> str:
    """The text of an f-string or of a string that is to be formatted; empty for other nodes and for patterns."""
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
        return "".join(parts)
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and "(?:" not in node.value:
        return node.value
    return ""


def test_every_template_of_a_command_is_walked() -> None:
    texts = {text.partition(":\n[[model]]")[0] for _, text in templates()}
    known = WALKED | WITHOUT_NAMES
    assert texts - known == set(), "new templates: fill them with attacks below"
    assert known - texts == set(), "templates that are gone"


def assert_harmless(text: str) -> None:
    """No command and no line of a config in a text runs what an attack says."""
    assert "sudo sh" not in without_strings(text), text
    assert EVIL not in without_strings(text), text
    for line in text.split("\n"):
        assert line.isprintable(), text
        for key, value in re.findall(rf"\b(url|match|name) = ({TOML_STRING.pattern})", line):
            assert set(tomli.loads(f"{key} = {value}")) == {key}


def without_strings(text: str) -> str:
    return TOML_STRING.sub("", without_quoted(text))


def fixes(checks: Sequence[Check]) -> list[str]:
    return [check.fix for check in checks if check.fix]


@pytest.mark.parametrize("attack", ATTACKS)
def test_fixes_of_engines(attack: str) -> None:
    front_end = replace(
        polls.engine(0.0, {}), kind=EngineKind.LITELLM, backends=(RankReading(f"http://h:8000/{attack}", {}, {}, {}),)
    )
    nameless = replace(polls.engine(0.0, {}), llm=None, name=attack, model=attack, url=attack)
    unknown = replace(nameless, info={"model_missing": look_up(attack, attack, (), LlmCatalogue((), {}, {}), ()).why})
    readings = [front_end, nameless, unknown]
    for words in CONFIG_LINES:
        refused = replace(nameless, state=EndpointState.UNAUTHORIZED, fault=words)
        readings += [refused, replace(refused, found_by=DISCOVERY_SOURCE), replace(refused, kind=EngineKind.GENERIC)]
    checks = engine_checks(readings, (), ())
    lines = [len(fix.splitlines()) for fix in fixes(checks)]
    harmless = [replace(reading, url="http://h", model="m") for reading in readings]
    assert lines == [len(fix.splitlines()) for fix in fixes(engine_checks(harmless, (), ()))]
    for fix in fixes(checks):
        assert_harmless(fix)
    added = re.findall(r"\[\[endpoint\]\] adds ([^)]*)", checks[1].text)
    assert operators_of("".join(added)) == []


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_lines_of_an_unknown_model_are_those_of_a_config(attack: str) -> None:
    why = look_up(attack, "", (), LlmCatalogue((), {}, {}), ()).why
    first, _, lines = why.partition("\n")
    (model,) = tomli.loads(lines)["model"]
    assert first.startswith("unknown model (")
    assert model["layers"] == 0
    assert_harmless(lines)


@pytest.mark.parametrize("attack", ATTACKS)
def test_fixes_of_gpus(attack: str) -> None:
    (fix,) = [fix for fix in fixes(gpu_checks([polls.gpu(name=attack)], gpu_catalogue(()))) if "[[gpu]]" in fix]
    text, _, lines = fix.partition("\n")
    assert text == "if you know its peaks, dense, add to the config:"
    (gpu,) = tomli.loads(re.sub(r"(?m)^#.*$", "", lines))["gpu"]
    assert set(gpu) == {"name"}
    assert_harmless(lines)


@pytest.mark.parametrize("attack", ATTACKS)
def test_actions_for_missing_figures(attack: str) -> None:
    reading = replace(polls.engine(0.0, {}), url=attack, live={q.DECODE_TOKENS: "x"})
    todos = [lack.todo for _, lack in lacks(reading)]
    explain = make_explainer(Subject(url=attack))
    todos += [explain(Missing(reason), "mfu").todo for reason in (Reason.NO_CONTEXT, Reason.NO_GPU)]
    for todo in todos:
        assert_harmless(todo)
    assert [todo for todo in todos if "url = " in todo]
    entries = _config_lines([Backend(f"http://h:8000/{attack}"), Backend(attack)])
    for entry in entries:
        assert isinstance(entry, Sentence)
        assert_harmless(entry.text)


def file_names() -> list[str]:
    """The attacks as names of files, as far as a file system takes them."""
    names = {attack.replace("/", "_")[-200:] for attack in ATTACKS}
    return sorted(name for name in names if len(name.encode()) < 255)


@pytest.mark.parametrize("name", file_names())
def test_fixes_of_files_of_others_name_one_file_or_none(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "gpumon"
    folder.mkdir()
    (folder / name).symlink_to("/etc/passwd")
    (folder / "x").mkdir()
    path = folder / "x" / name
    path.touch()
    path.chmod(0o666)
    removed, locked = fixes(state_checks({"XDG_STATE_HOME": str(tmp_path)}))
    status = path.stat()
    for text, words in (
        (removed, ["rm", str(folder / name)]),
        (locked, ["chmod", "o-w", str(path)]),
        (writable_fault(status, str(path)).partition(": ")[2], ["chmod", "o-w", str(path)]),
        (writable_fault(status, name).partition(": ")[2], ["chmod", "o-w", name]),
    ):
        assert text.splitlines() == [text]
        assert_harmless(text)
        if text == UNTYPEABLE:
            assert name.startswith("-") or not name.isprintable()
        else:
            assert shlex.split(text) == words
            assert not words[-1].startswith("-"), "it would be an option"
            assert operators_of(text) == []


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_test_of_a_webhook_is_typed_with_its_name(
    attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    named = Webhook(name=attack, url="http://127.0.0.1:1/hook")
    store = WebhookStore(webhook_file(os.environ, *webhook_names([named]), named))
    assert store.take()
    store.write(msgspec.json.encode(KeptState(failing_since_s=1.0, failure="refused")))
    store.release()
    (fix,) = fixes(webhook_checks([named]))
    assert_harmless(fix)
    assert operators_of(fix) == []
    assert shlex.split(fix)[:3] == ["gpumon", "webhook", "--test"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_hosts_of_a_fleet(attack: str) -> None:
    host = object.__new__(HostOfFleet)
    host._fleet = SimpleNamespace(is_acknowledged_here=lambda *_: False)  # type: ignore[assignment]
    verdict = replace(shots.judged().verdicts[0], acknowledged=Acknowledged("anna", "", "2026-12-01T03:10:00Z", ""))
    ended = replace(shots.engine(), departure=(Departure(1.0, log="tail -n 100 /var/log/v.log"),))
    texts = []
    for name, identity in ((attack, "a"), ("gpu-07", attack), (attack, attack)):
        host._name = name
        texts.append(host.why_no_acknowledging(replace(verdict, key=identity)))
        texts += [str(host.engine_log(ended)), str(host.engine_log(shots.engine()))]
    for text in texts:
        assert_harmless(text)
        assert text.splitlines() == [text]
        assert not re.search(r"ssh (?:-t '?-|(?!-t )'?-)", text)
        command = re.search(r"ssh .*", text)
        if command is not None:
            assert operators_of(command[0]) == []
    remote = Remote(Host("gpu-07"), 1.0, lambda: 0.0)
    remote.host = Host(attack)
    for mark, _ in _HINTS:
        assert_harmless(remote._end_reason(255, mark))
        commands = re.findall(r"`([^`]*)`", remote._end_reason(255, mark))
        assert commands
        assert operators_of(" ".join(commands)) == []


@pytest.mark.parametrize("attack", ATTACKS)
def test_wheels_for_a_host_that_lies(attack: str, tmp_path: Path) -> None:
    other = replace(python_here(), version=(3, 10 if python_here().version != (3, 10) else 12))
    for python, folder in (
        (replace(other, machine=attack), str(tmp_path)),
        (other, f"{tmp_path}/{attack[:40]}"),
        (replace(other, libc=attack), str(tmp_path)),
    ):
        with pytest.raises(NoWheelsError) as refused:
            Archives(folder).choose([("python3", python)])
        command = re.search(r"pip download .*", str(refused.value))
        if command is not None:
            assert EVIL not in without_quoted(command[0])
            assert operators_of(command[0]) == []
            words = shlex.split(command[0])
            assert words[3] == str(Path(folder))
            assert words[words.index("--platform") + 1].endswith(f"_{python_here().machine}")


@pytest.mark.parametrize("attack", ATTACKS)
def test_commands_that_show_a_log(attack: str, tmp_path: Path) -> None:
    commands = [
        _pod_log(EngineOrigin(pod=attack), tmp_path, is_live=False).command,
        _pod_log(EngineOrigin(pod=f"{attack}/x"), tmp_path, is_live=True).command,
        _unit_journal(EngineOrigin(unit=attack)).command,
        _tail_command(f"/{attack}"),
        _tail_command(attack),
    ]
    for command in commands:
        assert EVIL not in without_quoted(command)
        assert operators_of(command) == []


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_string_of_a_config_is_the_text_and_shows_no_sign_that_acts(attack: str) -> None:
    line = f"x = {Untrusted(attack).in_config(300)}"
    assert line.isprintable()
    assert tomli.loads(line) == {"x": attack[:300]}
