"""The recording file as SQLite sees it: where it lies, made, checked, and held by one writer at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import re
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from enum import IntEnum
from pathlib import Path
from typing import Final

from gpumon import __version__
from gpumon.config.errors import ConfigError
from gpumon.config.load import file_name
from gpumon.config.ownership import check_made, open_lock, owner_fault, user_name
from gpumon.readings.text import clean

RECORDING: Final = "recording.gpumon"
"""Name of the recording in the folder of an incident bundle."""
RECORDING_SCHEMA: Final = 1
"""Version of the files: it goes up when an older gpumon could not read what is written."""
APPLICATION: Final = 0x67707566
"""SQLite's `application_id` of a recording."""
BUSY_S: Final = 5.0
"""Longest time that SQLite waits for another process's lock."""
_MOST_PID_BYTES: Final = 32
"""Bytes that are read of the file with the PID of the writer."""
_MOST_FACTS: Final = 100
"""Most facts that are read of a file."""
_LEAST_BYTES: Final = 512
"""Least size of a page: SQLite takes a smaller file for a new one."""
_JOURNALS: Final = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite lays beside a database."""
_GROWTH_BYTES: Final = 65536
"""Bytes that a file may have been about to grow by when it could not."""
TOO_LARGE: Final = "this process may write no larger file: raise `ulimit -f`"
"""Text of an error where the limit is not that of the disk."""
_REMOTE_FILE_SYSTEMS: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "afs", "ceph", "lustre", "gpfs", "beegfs", "wekafs")
) | {"glusterfs", "ocfs2", "gfs2"}
"""File systems of other machines; what FUSE mounts is taken for one, too."""
_MOST_SCHEMA_ROWS: Final = 1000
"""Most tables, indexes and the like of a file that are looked at."""
_COLUMNS: Final = {"facts": ("name", "value"), "pieces": ("id", "kind", "run", "first_s", "last_s", "data")}
"""Table -> the columns that a recording has to have, as `_TABLES` makes them."""
_TABLES: Final = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE pieces (
  id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, run INTEGER NOT NULL,
  first_s REAL NOT NULL, last_s REAL NOT NULL, data BLOB NOT NULL
);
CREATE INDEX pieces_by_time ON pieces (kind, run, first_s, last_s);
"""
"""Statements that make the tables of an empty file."""


class PieceKind(IntEnum):
    """Kind of a row of `pieces`. Rows are in the order of their ids; `run` counts how often the clock went back."""

    FRAMES = 1
    """A block of the codec: one frame, or those of a finished minute."""
    POINTS = 2
    EVENTS = 4
    VERDICTS = 6
    """An entry of the log of verdicts."""
    # 3 and 5 are in files of gpumon 0.1: state of its own that nothing reads.


def open_connection(path: Path, mode: str) -> sqlite3.Connection:
    """A connection to a file in SQLite's `mode` (`ro`, `rw`); transactions are begun by hand. Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)


def make_recording(path: Path, facts: Mapping[str, str]) -> None:
    """Make a new, empty recording; the file appears whole or not at all.

    Only its user can read it: it tells what runs on this machine. Raises FileExistsError, OSError, sqlite3.Error.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        check_made(descriptor, temporary)
    finally:
        os.close(descriptor)
    try:
        with contextlib.closing(open_connection(temporary, "rw")) as connection:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {RECORDING_SCHEMA}")
            connection.executescript(f"BEGIN; {_TABLES}")
            connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            connection.execute("COMMIT")
        if not path.exists():
            for ending in _JOURNALS:  # of a file that was taken away: SQLite would lay it over the new one
                Path(f"{path}{ending}").unlink(missing_ok=True)
        try:
            os.link(temporary, path)
        except FileExistsError:  # an OSError, too
            raise
        except OSError:  # a file system without hard links
            if path.exists():
                raise FileExistsError(f"{path} is there") from None
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_file(path: Path) -> None:
    """Refuse what can be no recording: ConfigError in one line that names the file and the fix.

    The file is not opened: to close any handle on it would take SQLite's locks from this process (fcntl(2)).
    """
    where = file_name(path)
    try:
        status = path.stat()
    except FileNotFoundError:
        raise ConfigError(f"{where}: there is no such file") from None
    except OSError as failure:
        raise ConfigError(f"{where}: cannot be read: {failure.strerror}") from None
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{where}: is a folder: name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{where}: is no file")
    for ending in _JOURNALS:
        journal = Path(f"{path}{ending}")
        if journal.exists() and not journal.is_file():
            raise ConfigError(f"{file_name(journal)}: is no file, and would be opened with the recording: remove it")
    if not status.st_size:
        raise ConfigError(f"{where}: is empty: no recording was ever in it; remove it or name another file")
    if status.st_size < _LEAST_BYTES:
        raise ConfigError(f"{where}: is no recording of gpumon; name one that `gpumon record` wrote, or a new file")


def check_own(path: Path) -> None:
    """Refuse to write a recording that somebody else made or can write, or whose journal is. Raises ConfigError."""
    fault = owner_fault(path.stat(), str(path), "choose what {} finds in it")
    if fault:
        raise ConfigError(f"{file_name(path)}: {fault}")
    check_journal(path)


def check_journal(path: Path) -> None:
    """Refuse a rollback journal that somebody else made or can write. Raises ConfigError.

    SQLite plays it back as it opens the recording to write, and deletes the file that the journal names as its "super-
    journal": whoever makes one has any file of this user deleted.
    """
    journal = Path(f"{path}-journal")
    try:
        status = journal.lstat()
        is_own = stat.S_ISREG(status.st_mode) and not owner_fault(status, str(journal))
    except FileNotFoundError:  # or it has gone meanwhile, as after each commit of who writes the recording
        return
    if not is_own:
        whose = f"a journal of {user_name(status.st_uid)}'s"
        raise ConfigError(
            f"{file_name(journal)}: is {whose}, who could have files of yours deleted by it: remove it, or have "
            f"{user_name(path.stat().st_uid)} read the recording once"
        )


def check_single_name(path: Path) -> None:
    """Refuse a file that has another name, as another process could write it under that one. Raises ConfigError.

    The name under which `make_recording` made it is removed: a process that is killed just then leaves it.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.new"):
        with contextlib.suppress(FileNotFoundError):
            if leftover.samefile(path):
                leftover.unlink()
    if path.stat().st_nlink > 1:
        raise ConfigError(
            f"{file_name(path)}: has more than one name (hard links): remove the others, or record elsewhere"
        )


def read_facts(connection: sqlite3.Connection, path: Path) -> dict[str, str]:
    """Metadata of a recording. Raises ConfigError if it is none that can be read."""
    where = file_name(path)
    try:
        _check_versions(connection, where)
        connection.execute("PRAGMA trusted_schema = OFF")
        _check_tables(connection, where)
        _check_columns(connection, where)
        texts = "typeof(name) = 'text' AND typeof(value) = 'text'"
        return dict(connection.execute(f"SELECT name, value FROM facts WHERE {texts} LIMIT {_MOST_FACTS}"))
    except sqlite3.Error as error:
        raise unreadable_error(path, error) from None


def _check_versions(connection: sqlite3.Connection, where: str) -> None:
    """Refuse a database of another program, and a recording of a newer gpumon. Raises ConfigError."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise ConfigError(f"{where}: is a database of another program; name a recording, or a new file")
    if schema > RECORDING_SCHEMA:
        newer = f"was written by a newer gpumon (schema {schema}; this one reads {RECORDING_SCHEMA})"
        raise ConfigError(f"{where}: {newer}: update gpumon")


def _check_tables(connection: sqlite3.Connection, where: str) -> None:
    """Refuse triggers, views and missing tables. Raises ConfigError.

    A trigger undoes what is written, a view of a table's name could be anything, and without an end.
    """
    parts = connection.execute("SELECT type, name, sql FROM sqlite_schema LIMIT ?", (_MOST_SCHEMA_ROWS,)).fetchall()
    tables = set()
    for kind, name, sql in parts:
        if kind in ("trigger", "view"):
            raise ConfigError(
                f"{where}: has a {clean(f'{kind} {name}', 60)}, which no recording has; name another file"
            )
        if kind == "table" and "VIRTUAL" not in str(sql).upper():
            tables.add(name)
    if not tables >= {"facts", "pieces"}:
        raise ConfigError(f"{where}: is damaged: a table of a recording is not there; take another copy of it")


def _check_columns(connection: sqlite3.Connection, where: str) -> None:
    """Refuse tables without the columns of a recording, or where these are computed. Raises ConfigError."""
    for table, columns in _COLUMNS.items():
        stored = {name for _, name, *_, hidden in connection.execute(f"PRAGMA table_xinfo({table})") if hidden == 0}
        if not stored.issuperset(columns):
            raise ConfigError(f"{where}: is damaged: the table {table} has other columns; take another copy of it")


def unreadable_error(path: Path, error: sqlite3.Error) -> ConfigError:
    """The error to raise where SQLite cannot read a file (sqlite.org/rescode.html: NOTADB, CORRUPT)."""
    text = clean(str(error), 200)
    if "not a database" in text:
        text = "is no recording of gpumon; name one that `gpumon record` wrote, or a new file"
    elif "malformed" in text:
        text = "is damaged or cut off; take another copy of it"
    else:
        text = f"cannot be read: {text}"
    return ConfigError(f"{file_name(path)}: {text}")


def unwritable_error(path: Path, error: sqlite3.Error) -> OSError:
    """The error to raise where SQLite cannot write a file. Where it only says that I/O failed, the same is tried with a
    file beside it, whose error says why."""
    text = clean(str(error), 120)
    if "disk I/O error" in text:
        try:
            files = (path, Path(f"{path}-wal"))
            largest = max((file.stat().st_size for file in files if file.exists()), default=0)
            with tempfile.TemporaryFile(dir=path.parent) as probe:
                os.pwrite(probe.fileno(), b"\0", largest + _GROWTH_BYTES)
        except OSError as failure:
            return OSError(errno.EFBIG, TOO_LARGE) if failure.errno == errno.EFBIG else failure
    return OSError(errno.EIO, text)


def choose_journal(connection: sqlite3.Connection, path: Path) -> None:
    """Choose the journal: WAL, which readers do not wait for; on network file systems, where it fails, a rollback one.

    sqlite.org/wal.html: "All processes using a database must be on the same host computer". Raises sqlite3.Error.
    """
    if not is_remote_path(path):
        with contextlib.suppress(sqlite3.OperationalError):
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal":
                # A commit then waits for no disk: kill -9 loses nothing of it, a power cut the last seconds.
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("PRAGMA journal_size_limit = 4194304")  # bytes; a longer one is cut off
                return
    connection.execute("PRAGMA journal_mode = TRUNCATE")
    connection.execute("PRAGMA synchronous = NORMAL")


def leave_single_file(connection: sqlite3.Connection) -> None:
    """Leave a single file, to copy and to read where nothing can be written. Raises sqlite3.Error while it is read."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute("PRAGMA busy_timeout = 200")  # ms: the program ends, and a reader may stay for hours
    connection.execute("PRAGMA journal_mode = DELETE")


def is_remote_path(path: Path, mounts: Path = Path("/proc/mounts")) -> bool:
    """Whether a path lies on a file system of another machine."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    folder = os.path.realpath(path.parent)
    kind = ""
    longest = -1
    for line in lines:
        words = line.split()
        if len(words) < 3:
            continue
        _, escaped, file_system, *_ = words  # proc_mounts(5)
        mount_point = escaped.encode().decode("unicode_escape", "replace").rstrip("/")
        # Of several that hold the folder the innermost counts; of two at one place the later, which hides the other.
        if (folder == mount_point or folder.startswith(f"{mount_point}/")) and len(mount_point) >= longest:
            kind = file_system
            longest = len(mount_point)
    return kind in _REMOTE_FILE_SYSTEMS or (kind.startswith("fuse.") and kind != "fuse.overlayfs") or kind == "fuseblk"


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Be the only writer of a file; the kernel lets go when the process ends, however it does.

    The lock stands on a file beside: SQLite's own locks on the recording would be lost with any other handle on it.
    Raises ConfigError where another process writes, OSError.
    """
    lock_path = Path(f"{os.path.realpath(path)}.lock")
    descriptor = _lock(lock_path, path)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        lock_path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(lock_path: Path, path: Path) -> int:
    """Make and lock the file beside a recording; returns its descriptor. Raises ConfigError, OSError."""
    while True:
        try:
            descriptor = open_lock(lock_path)
        except OSError as failure:
            if failure.errno != errno.ELOOP:
                raise
            raise ConfigError(f"{file_name(lock_path)}: is a link, not the lock of a recording: remove it") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder may have removed the file between the two calls: then this is no longer the lock.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), lock_path.stat()):
                    return descriptor
        except BlockingIOError:
            pid = os.read(descriptor, _MOST_PID_BYTES).decode(errors="replace").strip()
            who = f"process {pid}" if pid.isdigit() else "another process"
            os.close(descriptor)
            raise ConfigError(f"{file_name(path)}: {who} records into it: end that one, or name another file") from None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def own_file(environ: Mapping[str, str], host: str, *, simulated: bool) -> Path:
    """`gpumon/recordings/HOST.sqlite` in the user's XDG data folder. Raises ConfigError where there is no such."""
    data_folder = environ.get("XDG_DATA_HOME", "")
    home = environ.get("HOME", "")
    if not data_folder.startswith("/"):  # the XDG specification: a relative one is ignored
        if not home.startswith("/"):
            raise ConfigError("no folder for recordings: name a file, or set XDG_DATA_HOME or HOME")
        data_folder = f"{home}/.local/share"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", host).strip("-.")[:64] or "host"
    suffix = "-simulated" if simulated else ""
    return Path(data_folder, "gpumon", "recordings", f"{name}{suffix}.sqlite")


def recording_to_read(file: str, environ: Mapping[str, str], host: str) -> Path:
    """The recording that a user means: of a folder the one in it, and without a name the host's own.

    Raises ConfigError.
    """
    path = Path(file) if file else own_file(environ, host, simulated=False)
    if not file and not os.path.exists(path):  # noqa: PTH110 - `Path.exists` raises in a folder that may not be read
        raise ConfigError(
            f"{file_name(path)}: this host has none of its own yet: name a file, or begin it: gpumon record"
        )
    inside = path / RECORDING
    if os.path.isfile(inside):  # noqa: PTH113 - likewise
        return inside
    if os.path.isdir(path):  # noqa: PTH112 - likewise
        raise ConfigError(
            f"{file_name(path)}: is a folder without {RECORDING}: name a recording, or the bundle of one host, "
            "which has one; that of a fleet has none"
        )
    return path


def recording_facts(host: str, *, simulated: bool) -> dict[str, str]:
    """The facts of a recording that is made now: its host, the version of gpumon, the time, and `simulated`.

    That is `yes` or empty: facts are texts in the file.
    """
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    facts = {"host": host, "gpumon": __version__, "made": created, "simulated": ""}
    if simulated:
        facts["simulated"] = "yes"
    return facts
