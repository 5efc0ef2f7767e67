"""What hosts, engines and other users say gets into no command: every template is filled with shell text."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.frame import FILE_LOG
from gpumon.readings.untrusted import FORMS, Untrusted, log_command
from gpumon.readings.verdict import Action
from gpumon.sources.last_seen.causes import log_command as log_of_origin
from gpumon.sources.last_seen.causes import restart_command, start_command, unfreeze_command
from gpumon.sources.last_seen.processes.origin import EngineOrigin
from gpumon.triage.copyable import _TEMPLATES, to_copy
from gpumon.triage.render import ACTION_WORDS, action_text
from gpumon.triage.rules import REMEDIES
from gpumon.triage.sentences import PEER_WORDS
from tests.hostile_text import ATTACKS, EVIL, operators_of, without_quoted

NAMES = {
    *("name", "model", "models", "owner", "program", "engines", "engine", "replica", "peer", "peers", "processes"),
    "process",
    *("shared", "now", "gpus", "text", "what", "free", "partly", "gpu", "backend", "replicas", "user", "where"),
    *("signals", "setting", "was", "to"),
}
"""Parameters that are names in a sentence: none of its commands has one."""


@pytest.mark.parametrize("code", sorted(set(REMEDIES) - {PEER_WORDS.code}))
def test_no_sentence_of_an_action_has_shell_text_in_a_command(code: str) -> None:
    names = set(re.findall(r"\{(\w+)", ACTION_WORDS[code])) - NAMES
    for attack in ATTACKS:
        shown = action_text(Action(code, dict.fromkeys(names, attack)))
        bare = without_quoted(shown)
        assert EVIL not in bare, shown
        assert "sudo sh" not in bare, shown


@pytest.mark.parametrize("code", sorted(_TEMPLATES))
def test_nothing_that_is_copied_has_shell_text_outside_of_quotes(code: str) -> None:
    names = {name for template in _TEMPLATES[code] for name in re.findall(r"\{(\w+)", template.text)}
    own = [
        operator for template in _TEMPLATES[code] for operator in operators_of(re.sub(r"\{[^}]*\}", "x", template.text))
    ]
    for attack in ATTACKS:
        for copyable in to_copy([Action(code, dict.fromkeys(names, attack))]):
            assert EVIL not in without_quoted(copyable.text)
            assert set(operators_of(copyable.text)) <= {*own, "&&"}
            assert "\n" not in copyable.text


@pytest.mark.parametrize("attack", ATTACKS)
def test_commands_of_an_origin_have_no_shell_text(attack: str) -> None:
    origins = (
        EngineOrigin(unit=attack),
        EngineOrigin(container=attack),
        EngineOrigin(pod=attack),
        EngineOrigin(pod=f"{attack}/{attack}"),
        EngineOrigin(output=f"/{attack}"),
    )
    for origin in origins:
        commands = [make(origin) for make in (start_command, restart_command, unfreeze_command)]
        commands.append(log_command(log_of_origin(origin)))
        for command in commands:
            assert EVIL not in without_quoted(command)
            assert operators_of(command) == []


def test_the_command_of_an_origin_stays_where_its_names_are_names() -> None:
    assert log_of_origin(EngineOrigin(unit="vllm@8000.service")) == "journalctl -u vllm@8000.service -n 100"
    assert restart_command(EngineOrigin(pod="serving/vllm-0")) == "kubectl delete pod -n serving vllm-0"
    assert log_command(f"{FILE_LOG}/var/log/my engine.log") == f"{FILE_LOG}'/var/log/my engine.log'"
    assert action_text(Action("read_last_log", {"ended": "yes", "file": "/a b"})).startswith("tail -n 100 '/a b' shows")


@pytest.mark.parametrize("sign", ["\x9b2J", "\u202e", "\u200b", "\u00a0"])
def test_what_a_terminal_interprets_passes_no_gate_in_quotes_either(sign: str) -> None:
    assert log_command(f"{FILE_LOG}/var/log/a{sign}.log") == ""
    assert Untrusted(f"python -m vllm '{sign}'").of_form("relaunch") == ""
    assert log_command(f"{FILE_LOG}/var/log/Ä b.log") == f"{FILE_LOG}'/var/log/Ä b.log'"


def test_text_of_others_is_no_text() -> None:
    text = Untrusted("x")
    for use in (str, "{}".format, lambda one: f"{one:>3}", lambda one: f"{one!s}", "%s".__mod__, "".join):
        with pytest.raises(TypeError):
            use(text)  # type: ignore[operator]
    assert "x" not in repr(text)
    assert text.one_of(("x", "y")) == "x"
    assert text.one_of(("y",)) == ""
    assert text.shown(10) == "x"


@given(st.sampled_from(sorted(FORMS)), st.text())
def test_what_passes_a_gate_is_read_by_a_shell_as_it_is(form: str, text: str) -> None:
    passed = Untrusted(text).of_form(form)
    if passed:
        assert set(operators_of(passed)) <= {"&&"}
        assert shlex.split(passed) == shlex.split(text) or shlex.split(passed) == [text]
