"""The table of keys: its defaults are in order, and the user's own take their place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.keymap import (
    COMMANDS,
    IDS,
    KEPT_IN_SCOPES,
    KEY_NAMES,
    NEEDED_COMMANDS,
    Keymap,
    find_clash,
    keys_problem,
    shown_key,
    split_keys,
)
from tests.each_row import each_row


def test_the_defaults_are_keys_and_no_two_commands_share_one() -> None:
    assert len(set(IDS)) == len(IDS)
    for command in COMMANDS:
        assert keys_problem(command.id, ",".join(command.keys)) == "", command.id
        assert command.does
    assert find_clash({}) is None, "COMMANDS of gpumon/config/keymap.py gives two commands one key"


@each_row("name", sorted(NEEDED_COMMANDS))
def test_the_way_out_keeps_a_key(name: str) -> None:
    assert keys_problem(name, " , ") == f"{name} needs at least one key"
    assert keys_problem("zoom", "") == ""


@each_row(
    "key",
    [
        "x",
        "?",
        "é",
        "€",
        *KEY_NAMES,
        "f1",
        "f24",
        "ctrl+x",
        "ctrl+f5",
        "alt+x",
        "ctrl+shift+left",
        "shift+tab",
        "alt++",
        "+",
    ],
)
def test_these_are_keys(key: str) -> None:
    assert keys_problem("zoom", key) == ""


@each_row("key", ["f0", "f25", "pgup", "xx", "ctrl+", "meta+x", "ctrl+c", "ctrl+m", "shift+a", "\x1b", "ctrl+\x01"])
def test_these_are_none(key: str) -> None:
    said = keys_problem("zoom", key)
    assert said
    assert said.isprintable()


def test_names_are_read_in_any_case_and_characters_are_not() -> None:
    assert split_keys(" PageUp ,G,g, Ctrl+L,comma,") == ("pageup", "G", "g", "ctrl+l", "comma")


def test_two_commands_may_exchange_their_keys() -> None:
    assert find_clash({"zoom": "o", "sort": "z"}) is None
    assert find_clash({"zoom": "o"}) == (
        "zoom",
        "o is a key of sort as well, by default: give that other keys here, too",
    )
    assert find_clash({"zoom": "x", "sort": "x"}) in [
        ("sort", "x is a key of zoom as well"),
        ("zoom", "x is a key of sort as well"),
    ]


def test_a_panel_has_keys_of_its_own_but_not_those_that_lead_out_of_it() -> None:
    assert find_clash({"sizing.add": "o"}) is None
    assert find_clash({"zoom": "d"}) is None
    assert find_clash({"sizing.add": "d"}) == (
        "sizing.add",
        "d is a key of sizing.double as well, by default: give that other keys here, too",
    )
    assert find_clash({"sizing.add": "q"}) == (
        "sizing.add",
        "q is a key of quit as well, by default: give that other keys here, too",
    )
    assert find_clash({"help": "a", "acknowledge": "", "sizing.add": "o"}) is None
    assert keys_problem("sizing.add", "5") == "5 begins a number there"
    assert keys_problem("zoom", "5") == ""


def test_a_digit_is_a_key_of_a_part_of_the_screen_in_which_no_number_is_typed() -> None:
    for name in ("log.follow", "log.error", "requests.errors", "fleet.models"):
        assert keys_problem(name, "8") == "", name


def test_own_keys_take_the_place_of_the_defaults() -> None:
    keymap = Keymap({"zoom": "Ctrl+F5, comma", "faster": ""})
    assert keymap.shown("zoom") == "ctrl+f5 ,"
    assert keymap.first("zoom") == "ctrl+f5"
    assert (keymap.shown("faster"), keymap.first("faster")) == ("", "")
    assert keymap.shown("help") == "? F1 h"
    assert shown_key("f12") == "F12"


@given(
    st.dictionaries(
        st.sampled_from(IDS), st.lists(st.sampled_from(["a", "b", "c", "z", "o", "f5"]), max_size=2).map(",".join)
    )
)
def test_a_clash_names_a_command_of_the_users_own_with_a_shared_key(own: dict[str, str]) -> None:
    found = find_clash(own)
    scopes = {command.id: command.scope for command in COMMANDS}
    everywhere = {"", *scopes.values()}
    taken = [
        (scope, key)
        for name, keys in Keymap(own).keys.items()
        for key in keys
        for scope in (everywhere if name in KEPT_IN_SCOPES else (scopes[name],))
    ]
    assert (found is None) == (len(taken) == len(set(taken)))
    if found is not None:
        name, said = found
        assert name in own
        key, other = said.split(" is a key of ")[0], said.split(" is a key of ")[1].split()[0]
        assert key in Keymap(own).keys[name]
        assert key in Keymap(own).keys[other]
