"""Saving settings: only what was chosen changes in the user's file, whatever else stands there or happens meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config import save as saving
from gpumon.config.load import load
from gpumon.config.resources import resource
from gpumon.config.save import NotSavedError, save, snippet
from gpumon.config.schema import Config

THEME = ("general", "theme")
INTERVAL = ("general", "interval_s")


def saved(path: Path, text: str, changes: saving.Changes) -> str:
    path.write_bytes(text.encode())
    save(str(path), changes)
    return path.read_bytes().decode()


def inside(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[general]\ntheme = "light"\n'),
        ("# mine", '# mine\n\n[general]\ntheme = "light"\n'),
        (
            "# top\n[general]  # these\n# how often\ninterval_s = 1.0 # s\n\n# about\n[discovery]\nenabled = true\n",
            '# top\n[general]  # these\n# how often\ninterval_s = 1.0 # s\ntheme = "light"\n\n# about\n[discovery]\n'
            "enabled = true\n",
        ),
        ("[general]\ntheme = 'x'   # mine\nascii=true", '[general]\ntheme = "light"   # mine\nascii=true'),
        ("[general]\r\nascii = true\r\n", '[general]\r\nascii = true\r\ntheme = "light"\r\n'),
        ("[general]\nascii = true", '[general]\nascii = true\ntheme = "light"\n'),
        ("general.ascii = true\n[discovery]\n", 'general.ascii = true\ngeneral.theme = "light"\n[discovery]\n'),
        ("general = {ascii = true}  # c\n", 'general = {ascii = true,theme = "light"}  # c\n'),
        ("[general]\n#theme = 'x'\n", "[general]\ntheme = \"light\"\n#theme = 'x'\n"),
        (
            '[screen]\nhidden_columns = [ # two\n "gpus.power",\n]\n# end\n',
            '[screen]\nhidden_columns = [ # two\n "gpus.power",\n]\n# end\n\n[general]\ntheme = "light"\n',
        ),
        (
            '[[endpoint]]\nurl = "h:1"\n[general]\n[[endpoint]]\nurl = "h:2"\n',
            '[[endpoint]]\nurl = "h:1"\n[general]\ntheme = "light"\n[[endpoint]]\nurl = "h:2"\n',
        ),
        ("# \u2028 line\n[general]\nascii = true\n", '# \u2028 line\n[general]\nascii = true\ntheme = "light"\n'),
    ],
)
def test_one_setting_changes_and_all_else_stays(path: Path, before: str, after: str) -> None:
    assert saved(path, before, {THEME: "light"}) == after


def test_the_example_keeps_every_other_line(path: Path) -> None:
    example = resource("config.example.toml").read_text(encoding="utf-8")
    changes = {
        THEME: "light",
        INTERVAL: 2.5,
        ("screen", "hidden_columns"): ("gpus.power",),
        ("goals", "itl_p95_ms"): 40.0,
    }
    after = saved(path, example, changes)
    lines = example.splitlines()
    assert [line for line in after.splitlines() if line not in lines] == [
        "interval_s = 2.5",
        'theme = "light"',
        'hidden_columns = ["gpus.power"]',
        "itl_p95_ms = 40.0",
    ]
    assert len(after.splitlines()) == len(lines) + 1  # a goal has no default that could stand there
    config = load(str(path), {}).config
    assert (config.general.theme, config.general.interval_s, config.goals.itl_p95_ms) == ("light", 2.5, 40.0)


def test_a_goal_taken_back_leaves_the_file(path: Path) -> None:
    text = "[goals]\n# first\nttft_p95_ms = 500.0\n# second\nitl_p95_ms = 40.0\n"
    assert saved(path, text, {("goals", "itl_p95_ms"): None}) == "[goals]\n# first\nttft_p95_ms = 500.0\n# second\n"
    assert saved(path, "# none\n", {("goals", "itl_p95_ms"): None}) == "# none\n"


def test_a_value_that_equals_the_default_is_written(path: Path) -> None:
    assert saved(path, '[general]\ntheme = "light"\n', {THEME: "default"}) == '[general]\ntheme = "default"\n'


def test_file_and_folder_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "config.toml"
    assert save(str(path), {THEME: "light"}).general.theme == "light"
    assert path.read_text() == '[general]\ntheme = "light"\n'
    assert inside(path.parent) == ["config.toml"]


def test_a_new_file_is_one_that_gpumon_reads_whatever_the_umask_and_the_group(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    before = os.umask(0o002)
    try:
        save(str(path), {THEME: "light"})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_mode_and_link_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("")
    real.chmod(0o640)
    link = tmp_path / "config.toml"
    link.symlink_to("real.toml")
    save(str(link), {THEME: "light"})
    assert link.is_symlink()
    assert "light" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert inside(tmp_path) == ["config.toml", "real.toml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[general]\nintervall_s = 1\n", "config.toml:2: general.intervall_s: unknown key; did you mean interval_s?"),
        ("[general\n", "config.toml:1: is not TOML"),
        ("\xff", "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_not_valid_is_left_alone(path: Path, text: str, said: str) -> None:
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(NotSavedError, match=r"^[^\n]+$") as caught:
        save(str(path), {THEME: "light"})
    assert said in str(caught.value)
    assert path.read_bytes() == text.encode("latin-1")


def test_what_makes_the_file_contradict_itself_is_not_written(path: Path) -> None:
    text = "[levels]\nvram_critical = 0.96\n"
    path.write_text(text)
    with pytest.raises(NotSavedError, match="must be at least vram_warn"):
        save(str(path), {("levels", "vram_warn"): 0.98})
    assert path.read_text() == text


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user who is not root, where the tests are run by root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_file_is_not_written(tmp_path: Path, path: Path) -> None:
    path.write_text("# mine\n")
    path.chmod(0o444)
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.getuid() and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    with without_rights(), pytest.raises(NotSavedError, match="is read-only"):
        save(str(path), {THEME: "light"})
    assert path.read_text() == "# mine\n"


def test_a_folder_that_can_not_be_made_is_said(path: Path) -> None:
    path.write_text("")
    with pytest.raises(NotSavedError, match=r"cannot be (written|read): Not a directory"):
        save(str(path / "gpumon" / "config.toml"), {THEME: "light"})
    assert "light" not in path.read_text()


def test_what_someone_else_wrote_meanwhile_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("[general]\nascii = true\n")
    sync = os.fsync
    written = []

    def meanwhile(descriptor: int) -> None:
        sync(descriptor)
        if not written:
            written.append(path.write_text("[general]\nascii = true\nmouse = false\n"))

    monkeypatch.setattr(os, "fsync", meanwhile)
    save(str(path), {THEME: "light"})
    assert path.read_text() == '[general]\nascii = true\nmouse = false\ntheme = "light"\n'
    assert inside(path.parent) == ["config.toml"]


def test_a_disk_that_is_full_leaves_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("# mine\n")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotSavedError, match="cannot be written: No space left on device"):
        save(str(path), {THEME: "light"})
    assert path.read_text() == "# mine\n"
    assert inside(path.parent) == ["config.toml"]


def test_the_lines_to_paste_are_a_config(path: Path) -> None:
    changes = {THEME: "light", ("screen", "hidden_columns"): ("gpus.power",), INTERVAL: 2.0, ("keys", "pane.next"): "y"}
    assert snippet(changes) == (
        '[general]\ntheme = "light"\ninterval_s = 2.0\n[screen]\nhidden_columns = ["gpus.power"]\n'
        '[keys]\n"pane.next" = "y"\n'
    )
    path.write_text(snippet(changes))
    assert load(str(path), {}).config == save(str(path), changes)
    assert snippet({("goals", "itl_p95_ms"): None}) == "[goals]\n# take out: itl_p95_ms\n"


PIECES = [
    *(
        "# a comment",
        "",
        "[general]",
        "ascii = true",
        "mouse = false # here",
        "theme = '''a'''",
        "general.ascii = true",
    ),
    *("[screen]", "hidden_columns = [", '  "gpus.power", # why', "]", "[[endpoint]]", 'url = "h:1"', 'url = "h:2"'),
    *("[keys]", 'pane.next = "y"', 'zoom = "x"', "[goals]", "itl_p95_ms = 1_000", "general = {}", "[levels]"),
]
CHANGES = {
    THEME: st.sampled_from(["default", "light"]),
    INTERVAL: st.sampled_from([1.0, 0.25, 3600.0]),
    ("screen", "hidden_columns"): st.sampled_from([(), ("gpus.power", "gpus.mfu")]),
    ("goals", "itl_p95_ms"): st.sampled_from([None, 40.0]),
    ("levels", "kv_warn"): st.sampled_from([0.9, 0.5]),
    ("keys", "pane.next"): st.sampled_from([None, "y", "tab,y"]),
}


@given(st.lists(st.sampled_from(PIECES), max_size=14), st.data())
def test_whatever_the_file_holds_nothing_else_changes(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "saved.toml"
    path.write_text("\n".join(pieces))
    names = data.draw(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=3, unique=True))
    changes = {name: data.draw(CHANGES[name]) for name in names}
    before = path.read_text()
    config, failure = None, ""
    try:
        config = save(str(path), changes)
    except NotSavedError as refused:
        failure = str(refused)
    if config is None:
        assert failure.isprintable()
        assert path.read_text() == before
        return
    wanted = tomli.loads(before)
    now = tomli.loads(path.read_text())
    for (section, key), value in changes.items():
        plain = list(value) if isinstance(value, tuple) else value
        assert now.get(section, {}).pop(key, None) == plain or (section, key) == ("keys", "pane.next")
        wanted.get(section, {}).pop(key, None)
    assert {key: table for key, table in now.items() if table} == {key: table for key, table in wanted.items() if table}
    assert isinstance(config, Config)


def test_a_disk_that_gives_back_something_else_leaves_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("# mine\n")
    sync = os.fsync

    def loses_the_end(descriptor: int) -> None:
        os.ftruncate(descriptor, 9)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", loses_the_end)
    with pytest.raises(NotSavedError, match="could not be read back"):
        save(str(path), {THEME: "light"})
    assert path.read_text() == "# mine\n"
    assert inside(path.parent) == ["config.toml"]


def test_a_file_that_can_not_be_changed_safely_is_left_alone(path: Path) -> None:
    """A line of a long text looks like the header that the setting belongs under."""
    text = '[[endpoint]]\nurl = "http://h:1"\nname = """\n[general]\n"""\n'
    with pytest.raises(NotSavedError, match="cannot change safely"):
        saved(path, text, {INTERVAL: 2.0})
    assert path.read_text() == text
