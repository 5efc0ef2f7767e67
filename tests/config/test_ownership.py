"""Whose files gpumon reads its settings from: its user's and root's, nobody else's."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gpumon.config.errors import ConfigError
from gpumon.config.load import load
from gpumon.config.ownership import open_lock
from gpumon.config.profile_store import profile_folder, stored_profiles
from gpumon.config.save import NotSavedError, save
from gpumon.config.scenario_file import read_scenario, save_text
from gpumon.config.schema import Endpoint, Webhook
from gpumon.config.themes import load_theme
from gpumon.push.store import WebhookStore
from gpumon.push.target import UnreadableSecretError, target_of
from gpumon.sources.acknowledged import AcknowledgementStore
from gpumon.sources.api_key import read_key
from gpumon.sources.guest.archive import NoWheelsError, wheel_files
from gpumon.sources.own_files import read_own
from gpumon.sources.state_checks import state_checks
from tests.program import run_gpumon

NOBODY = 65534
RECORDING = Path(__file__).parents[1] / "data" / "recordings" / "first-edition.gpumon"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('[[alert]]\nwhen = "critical"\ncommand = ["/bin/true"]\n')
    path.chmod(0o644)
    return path


def refusal(config: Path) -> str:
    """Why a config is refused; empty where it is read."""
    try:
        load(str(config), {})
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o755, 0o400])
def test_ones_own_file_is_read(config: Path, mode: int) -> None:
    config.chmod(mode)
    assert refusal(config) == ""


def test_a_file_that_everybody_writes_is_refused_with_what_mends_it(config: Path) -> None:
    config.chmod(0o646)
    assert refusal(config) == f"{config}: can be written by everybody: chmod o-w {config}"
    subprocess.run(["chmod", "o-w", str(config)], check=True)
    assert refusal(config) == ""


@as_root
def test_a_file_of_a_group_of_others_is_refused_and_of_ones_own_group_read(config: Path) -> None:
    config.chmod(0o664)
    os.chown(config, 0, 0)
    assert refusal(config) == ""
    os.chown(config, 0, NOBODY)
    assert refusal(config) == f"{config}: can be written by its group: chmod g-w {config}"


@as_root
def test_root_takes_no_commands_of_another_user(config: Path) -> None:
    os.chown(config, NOBODY, NOBODY)
    mend = f"sudo chown root {config}"
    assert refusal(config) == f"{config}: belongs to nobody, who could have root run commands: {mend}"
    for command in (["watch", "--json", "--count", "1"], ["doctor"], ["config"]):
        done = run_gpumon(*command, "--config", str(config))
        assert (done.returncode, done.stdout) == (2, "")
        assert mend in done.stderr


@as_root
def test_a_pipe_that_another_user_has_put_there_is_no_config(tmp_path: Path) -> None:
    """Who may write a folder puts a pipe in the place of a config; one of a shell has no name in any folder."""
    pipe = tmp_path / "config.toml"
    os.mkfifo(pipe, 0o600)
    text = b'[[alert]]\nwhen = "critical"\ncommand = ["/bin/true"]\n'
    end = os.open(pipe, os.O_RDWR)
    os.write(end, text)
    os.chown(pipe, NOBODY, NOBODY)
    assert refusal(pipe).startswith(f"{pipe}: belongs to nobody, who could have root run commands: ")
    os.chown(pipe, 0, 0)
    pipe.chmod(0o622)
    assert refusal(pipe) == f"{pipe}: can be written by everybody: chmod o-w {pipe}"
    os.close(end)
    ours, theirs = os.pipe()
    os.write(theirs, text)
    os.close(theirs)
    os.fchown(ours, NOBODY, NOBODY)  # as a shell makes it, before sudo
    assert refusal(Path(f"/dev/fd/{ours}")) == ""
    os.close(ours)


@as_root
def test_a_link_of_another_user_to_ones_own_file_is_no_config(config: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(config)
    assert refusal(link) == ""
    os.lchown(link, NOBODY, NOBODY)
    assert refusal(link) == f"{link}: is a link of nobody's to a file of root's: name the file itself"


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """An access-control list as Linux keeps it in an attribute of a file: tag, permissions and id of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NO_ID = 0xFFFFFFFF


@as_root
def test_a_file_that_an_access_list_lets_another_user_write_is_refused(config: Path) -> None:
    """Its mode has the list's mask in the place of the group's rights: it looks as if its own group writes it."""
    user = os.geteuid()
    for named, fault in (
        ((2, 6, NOBODY), f"can be written by others by its access-control list: setfacl -b {config}"),
        ((8, 6, NOBODY), f"can be written by others by its access-control list: setfacl -b {config}"),
        ((2, 4, NOBODY), ""),
        ((2, 6, user), ""),
    ):
        entries = ((1, 6, NO_ID), named, (4, 4, NO_ID), (16, 6, NO_ID), (32, 4, NO_ID))
        os.setxattr(config, "system.posix_acl_access", access_list(*sorted(entries)))
        assert config.stat().st_mode & 0o777 == 0o664
        assert refusal(config) == (f"{config}: {fault}" if fault else ""), named


@as_root
def test_a_theme_and_a_wheel_of_another_user_are_refused_and_a_scenario_is_data(tmp_path: Path) -> None:
    theme = tmp_path / "mine.toml"
    theme.write_text('base = "dark"\n')
    wheel = tmp_path / "idna-3.10-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("idna/__init__.py", "")
    scenario = tmp_path / "plan.toml"
    scenario.write_text('[[workload]]\nmodel = "meta-llama/Llama-3.1-8B"\ntarget = 4\n')
    assert wheel_files(wheel) == {"idna/__init__.py": b""}
    for path in (theme, wheel, scenario):
        os.chown(path, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match="belongs to nobody"):
        load_theme("mine", tmp_path)
    with pytest.raises(NoWheelsError, match="belongs to nobody"):
        wheel_files(wheel)
    assert read_scenario(scenario).workload


def page_of_a_journal(recording: Path, named: Path) -> bytes:
    """A rollback journal of no page, as SQLite plays it back: it ends with the name of a file, which SQLite deletes."""
    page_size = int.from_bytes(recording.read_bytes()[16:18], "big")
    pages = recording.stat().st_size // page_size
    magic = bytes.fromhex("d9d505f920a163d7")
    header = (magic + struct.pack(">IIIII", 0, 1, pages, 512, page_size)).ljust(512, b"\0")
    name = str(named).encode()
    lock_page = 0x40000000 // page_size + 1
    return header + struct.pack(">I", lock_page) + name + struct.pack(">II", len(name), sum(name)) + magic


@as_root
@pytest.mark.parametrize("command", [["report"], ["export"], ["record", "--demo"]])
def test_a_journal_of_another_user_deletes_nothing(command: list[str], tmp_path: Path) -> None:
    recording = tmp_path / "theirs.sqlite"
    shutil.copy(RECORDING, recording)
    precious = tmp_path / "precious.conf"
    precious.write_text("of root")
    journal = tmp_path / "theirs.sqlite-journal"
    journal.write_bytes(page_of_a_journal(recording, precious))
    for path in (recording, journal):
        os.chown(path, NOBODY, NOBODY)
    done = run_gpumon(*command, str(recording), env=at_home(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert precious.read_text() == "of root"
    if command == ["record", "--demo"]:
        assert f"belongs to nobody, who could choose what root finds in it: sudo chown root {recording}" in done.stderr
        os.chown(recording, 0, 0)
        done = run_gpumon(*command, str(recording))
        assert precious.read_text() == "of root"
    assert "is a journal of nobody's, who could have files of yours deleted by it: remove it" in done.stderr


def test_a_journal_of_ones_own_is_played_back(tmp_path: Path) -> None:
    recording = tmp_path / "own.sqlite"
    shutil.copy(RECORDING, recording)
    journal = tmp_path / "own.sqlite-journal"
    named = tmp_path / "of-a-second-database"
    named.write_text("")
    journal.write_bytes(page_of_a_journal(recording, named))
    done = run_gpumon("report", str(recording), env=at_home(tmp_path))
    assert done.returncode == 0, done.stderr
    assert not journal.exists()


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_a_pipe_beside_a_recording_is_not_waited_for(ending: str, tmp_path: Path) -> None:
    recording = tmp_path / "theirs.sqlite"
    shutil.copy(RECORDING, recording)
    os.mkfifo(f"{recording}{ending}")
    done = run_gpumon("report", str(recording), env=at_home(tmp_path))
    assert done.returncode == 2
    assert f"theirs.sqlite{ending}: is no file" in done.stderr


@pytest.mark.parametrize("kind", ["hard link", "pipe", "link", "file of another user"])
def test_a_lock_that_somebody_else_made_is_not_written_to(kind: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of root")
    lock = tmp_path / "state.lock"
    if kind == "hard link":
        lock.hardlink_to(other)
    elif kind == "pipe":
        os.mkfifo(lock)
    elif kind == "link":
        lock.symlink_to(other)
    else:
        lock.write_text("")
        if os.geteuid() == 0:
            os.chown(lock, NOBODY, NOBODY)
        else:
            lock.hardlink_to(tmp_path / "second")
    for make in (open_lock, lambda path: WebhookStore(path.with_suffix(".json")).take()):
        with pytest.raises(OSError, match=r"state\.lock"):
            make(lock)
    with pytest.raises(OSError, match=r"state\.lock"):
        AcknowledgementStore(lock.with_suffix(".json")).change(lambda kept: kept)
    assert other.read_text() == "of root"


def test_a_file_of_the_state_is_read_if_it_is_ones_own_and_no_link(tmp_path: Path) -> None:
    own = tmp_path / "seen.json"
    own.write_text("{}")
    assert read_own(own, 100) == b"{}"
    assert read_own(own, 1) is None
    link = tmp_path / "link.json"
    link.symlink_to(own)
    assert read_own(link, 100) is None
    os.mkfifo(tmp_path / "pipe.json")
    assert read_own(tmp_path / "pipe.json", 100) is None
    assert read_own(Path("/proc/1/environ") if os.geteuid() else Path("/nowhere"), 100) is None


@as_root
def test_a_file_of_the_state_of_another_user_is_not_read(tmp_path: Path) -> None:
    own = tmp_path / "seen.json"
    own.write_text("{}")
    os.chown(own, NOBODY, NOBODY)
    assert read_own(own, 100) is None


def test_folders_of_the_state_are_for_their_user_alone(tmp_path: Path) -> None:
    """Whatever the umask is: the names of webhooks and hosts stand in the names of files."""
    before = os.umask(0)
    try:
        assert WebhookStore(tmp_path / "push" / "ops.json").take()
        AcknowledgementStore(tmp_path / "acknowledged" / "here.json").change(lambda kept: kept)
    finally:
        os.umask(before)
    for name in ("push", "acknowledged"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
        for path in (tmp_path / name).iterdir():
            assert path.stat().st_mode & 0o777 == 0o600


@as_root
def test_profiles_passwords_and_certificates_of_another_user_are_refused(tmp_path: Path) -> None:
    place = profile_folder(at_home(tmp_path))
    assert place is not None
    place.mkdir(parents=True)
    profile = place / "mine.json"
    profile.write_text("{}")
    password = tmp_path / "password"
    password.write_text("secret")
    os.chown(profile, NOBODY, NOBODY)
    os.chown(password, NOBODY, NOBODY)
    (fault,) = stored_profiles(at_home(tmp_path)).broken.values()
    assert f"belongs to nobody, who could choose what root plans with: sudo chown root {profile}" in fault
    for settings in (
        f'user = "prometheus"\npassword_file = "{password}"\n',
        f'tls_cert = "{password}"\ntls_key = "{password}"\n',
    ):
        config = tmp_path / "exporter.toml"
        config.write_text(f"[exporter]\n{settings}")
        done = run_gpumon("serve-metrics", "--demo", "--listen", "127.0.0.1:0", "--config", str(config))
        assert done.returncode == 2
        assert f"sudo chown root {password}" in done.stderr, done.stderr


def test_a_pipe_in_the_place_of_a_lock_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hook.lock")
    assert WebhookStore(tmp_path / "hook.json").holder() == 0


def test_a_pipe_in_the_place_of_a_password_or_a_certificate_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    config = tmp_path / "exporter.toml"
    for settings in (f'user = "p"\npassword_file = "{pipe}"\n', f'tls_cert = "{pipe}"\ntls_key = "{pipe}"\n'):
        config.write_text(f"[exporter]\n{settings}")
        done = run_gpumon("serve-metrics", "--demo", "--listen", "127.0.0.1:0", "--config", str(config))
        assert done.returncode == 2
        assert "is no file: put the path of the file" in done.stderr


@as_root
def test_a_key_is_not_read_through_a_link_of_another_user(tmp_path: Path) -> None:
    """Who owns the folder of a key could have any file of root's sent to an engine of his own."""
    secret = tmp_path / "secret"
    secret.write_text("of-root\n")
    secret.chmod(0o600)
    link = tmp_path / "key"
    link.symlink_to(secret)
    endpoint = Endpoint(url="http://127.0.0.1:1", api_key_file=str(link))
    assert read_key(endpoint) == ("of-root", "")
    os.lchown(link, NOBODY, NOBODY)
    key, fault = read_key(endpoint)
    assert key == ""
    assert "is a link of nobody's to a file of root's: name the file itself" in fault
    own = tmp_path / ("d" * 200) / "own"  # a command that is cut does not mend it
    own.parent.mkdir()
    own.write_text("of-nobody\n")
    os.chown(own, NOBODY, NOBODY)
    assert read_key(Endpoint(url="http://127.0.0.1:1", api_key_file=str(own))) == ("of-nobody", "")
    own.chmod(0o666)
    key, fault = read_key(Endpoint(url="http://127.0.0.1:1", api_key_file=str(own)))
    assert (key, f"chmod o-w {own}" in fault) == ("", True)


@as_root
def test_the_url_of_a_webhook_is_not_chosen_by_another_user(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("https://evil.example/hook\n")
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(UnreadableSecretError, match=r"belongs to nobody, who could choose where root sends messages"):
        target_of(Webhook(name="ops", url_file=str(path)))


@as_root
def test_the_doctor_names_files_of_the_state_folder_that_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "gpumon"
    folder.mkdir(0o700)
    (folder / "seen.json").write_text("{}")
    (folder / "own.json").write_text("{}")
    (folder / "open.json").write_text("{}")
    (folder / "open.json").chmod(0o666)
    (folder / "link.json").symlink_to("/etc/hostname")
    os.chown(folder / "seen.json", NOBODY, NOBODY)
    checks = state_checks({"XDG_STATE_HOME": str(tmp_path)})
    assert sorted((check.text, check.fix) for check in checks) == [
        (f"{folder}/link.json is a link: it is not read", f"rm {folder}/link.json"),
        (f"{folder}/open.json can be written by everybody", f"chmod o-w {folder}/open.json"),
        (f"{folder}/seen.json belongs to nobody: it is not read", f"sudo chown root {folder}/seen.json"),
    ]
    done = run_gpumon("doctor", "--no-nvml", env={**at_home(tmp_path), "COLUMNS": "250"})
    assert f"sudo chown root {folder}/seen.json" in done.stdout


def test_the_doctor_leaves_a_state_folder_alone_that_is_a_link(tmp_path: Path) -> None:
    """As people lay it on a larger disk: the files behind it are read."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "seen.json").write_text("{}")
    (tmp_path / "disk" / "other").symlink_to(tmp_path)
    (tmp_path / "gpumon").symlink_to(tmp_path / "disk")
    assert read_own(tmp_path / "gpumon" / "seen.json", 10) == b"{}"
    assert state_checks({"XDG_STATE_HOME": str(tmp_path)}) == []


@as_root
def test_no_chown_is_advised_for_a_link_to_a_folder(tmp_path: Path) -> None:
    """It would give away what the link leads to."""
    folder = tmp_path / "gpumon"
    folder.mkdir()
    (folder / "link").symlink_to("/etc")
    (folder / "own").mkdir()
    program = (
        "import json, sys\nfrom gpumon.sources.state_checks import state_checks\n"
        "print(json.dumps([check.fix for check in state_checks({'XDG_STATE_HOME': sys.argv[1]})]))"
    )
    user = [
        "setpriv",
        "--reuid",
        str(NOBODY),
        "--inh-caps",
        "-all,+dac_read_search",
        "--ambient-caps",
        "+dac_read_search",
    ]
    done = subprocess.run(
        [*user, sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    fixes = json.loads(done.stdout)
    assert f"sudo chown nobody {folder}/own" in fixes
    assert "it is a link: remove it, or let it lead to a folder of nobody's" in fixes
    assert not [fix for fix in fixes if "chown" in fix and "link" in fix]


def at_home(folder: Path) -> dict[str, str]:
    """The environment of a user whose settings and state are in this folder."""
    return {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


GIVES_AWAY = """
import ctypes, sys
from pathlib import Path
from gpumon.config.ownership import open_lock
from gpumon.config.save import save
from gpumon.history.file import make_recording
from gpumon.sources.own_files import replace_own

folder = Path(sys.argv[1])
libc = ctypes.CDLL(None)
assert libc.prctl(28, 4, 0, 0, 0) == 0  # SECBIT_NO_SETUID_FIXUP: root stays root
libc.setfsuid(65534)
for make in (
    lambda: open_lock(folder / "x.lock"),
    lambda: replace_own(folder / "x.json", b"{}"),
    lambda: make_recording(folder / "x.gpumon", {}),
    lambda: save(str(folder / "x.toml"), {("screen", "glyphs"): "ascii"}),
):
    try:
        make()
    except OSError as error:
        print(error.strerror)
    except Exception as error:
        print(error)
"""
"""Makes each kind of file where new ones get another owner, as on an EFS access point."""


@as_root
def test_a_file_system_that_gives_new_files_away_is_named_and_left_as_it_was(tmp_path: Path) -> None:
    made = subprocess.run([sys.executable, "-c", GIVES_AWAY, tmp_path], capture_output=True, text=True, check=True)
    lines = made.stdout.splitlines()
    reason = "its file system gives new files to nobody, as EFS, CIFS and NFS with root_squash do: choose a folder"
    assert [reason in line for line in lines] == [True] * 4, made.stdout
    assert list(tmp_path.iterdir()) == []


@as_root
def test_what_is_written_goes_by_no_link_that_another_user_put_where_all_may_write(tmp_path: Path) -> None:
    """Linux itself refuses these where a file is opened for writing."""
    target = tmp_path / "made" / "where only this user can"
    target.parent.mkdir()
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    file, folder = shared / "plan.toml", shared / "plans"
    file.symlink_to(target)
    folder.symlink_to(target.parent)
    for link, named in ((file, file), (folder, folder / "plan.toml")):
        os.lchown(link, NOBODY, NOBODY)
        for write in (lambda path: save_text(path, "x", replace=True), lambda path: save(str(path), {})):
            with pytest.raises(NotSavedError, match=f"{link.name} is a link of nobody's"):
                write(named)
    assert list(target.parent.iterdir()) == []
    os.lchown(file, 0, 0)
    save_text(file, "x", replace=False)
    shared.chmod(0o755)  # of a folder that is not for all, who may write there says where its names lead
    save_text(folder / "plan.toml", "x", replace=False)
    assert sorted(path.name for path in target.parent.iterdir()) == ["plan.toml", target.name]
