"""The archive that is sent to a host without gpumon: what is in it, and what is said where none can be made."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from gpumon.sources.guest.archive import Archives, NoWheelsError, installed_files, wheel_files
from gpumon.sources.guest.wheels import PythonThere, python_here

OTHER = msgspec.structs.replace(python_here(), version=(3, 10 if python_here().version != (3, 10) else 12))
"""A Python that nothing compiled here is for."""
TAG = f"cp3{OTHER.version[1]}-cp3{OTHER.version[1]}-manylinux2014_{OTHER.machine}"
PROBE = """
import json, runpy, sys
sys.argv = ["gpumon", "watch", "--json", "--fleet", "--no-nvml", "--endpoint", "127.0.0.1:9", "--count", "3"]
try:
    runpy.run_module("gpumon", run_name="__main__")
except SystemExit as end:
    print(end.code, file=sys.stderr)
print(json.dumps(sorted({getattr(module, "__file__", None) or "" for module in sys.modules.values()})), file=sys.stderr)
"""


def put_wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return folder / name


def needed_by_other(folder: Path, version: str = "1.0", mark: str = "") -> None:
    """Wheels of what this machine has for its own Python only, and of what only an older one needs."""
    for project in ("msgspec", "psutil", "tomli"):
        put_wheel(folder, f"{project}-{version}-{TAG}.whl", {f"{project}/there.py": f"{project}{mark}"})
    put_wheel(folder, f"exceptiongroup-{version}-py3-none-any.whl", {"exceptiongroup.py": mark})
    put_wheel(folder, f"typing_extensions-{version}-py3-none-any.whl", {"typing_extensions.py": mark})
    put_wheel(folder, f"async_timeout-{version}-py3-none-any.whl", {"async_timeout/__init__.py": mark})


def names_in(archive: bytes) -> set[str]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return set(opened.namelist())


def test_gpumon_runs_from_it_without_anything_that_is_installed(tmp_path: Path) -> None:
    chosen = Archives(str(tmp_path / "none")).choose([("python3", python_here())])
    there = tmp_path / "there"
    with zipfile.ZipFile(io.BytesIO(chosen.archive)) as archive:
        archive.extractall(there)
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROBE],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=there,
        env={"PYTHONPATH": str(there), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        check=True,
    )
    code, modules = done.stderr.splitlines()[-2:]
    assert code == "0", done.stderr
    assert [line[:10] for line in done.stdout.splitlines()[1:]] == ['{"schema":', '{"differen', '{"differen']
    paths = json.loads(modules)
    foreign = [path for path in paths if "site-packages" in path]
    assert not foreign
    assert any(path.endswith("/there/httpx/__init__.py") for path in paths), "its engines were polled"
    assert not any("textual" in path for path in (*paths, *names_in(chosen.archive)))


def test_wheels_of_the_users_folder_are_taken_for_another_python(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    needed_by_other(folder, "1.9")
    needed_by_other(folder, "1.10", " newest")
    put_wheel(folder, "msgspec-2.0-cp39-cp39-manylinux2014_x86_64.whl", {"msgspec/there.py": "too old"})
    (folder / "notes.txt").write_text("not a wheel")
    chosen = Archives(str(folder)).choose([("python3.9", too_old()), ("python3", OTHER)])
    assert chosen.program == "python3"
    with zipfile.ZipFile(io.BytesIO(chosen.archive)) as archive:
        assert archive.read("msgspec/there.py") == b"msgspec newest"
        assert "gpumon/cli.py" in archive.namelist()
        assert not any(name.startswith(("gpumon/tui/", "gpumon/web/")) for name in archive.namelist())
        assert not any(name.endswith(".pyc") for name in archive.namelist())


def test_a_python_without_asyncio_timeout_is_sent_the_backport(tmp_path: Path) -> None:
    needed_by_other(tmp_path)
    for project in ("msgspec", "psutil", "tomli"):
        put_wheel(tmp_path, f"{project}-1.0-cp310-cp310-manylinux2014_{OTHER.machine}.whl", {f"{project}/there.py": ""})
    python = msgspec.structs.replace(OTHER, version=(3, 10))
    assert "async_timeout/__init__.py" in names_in(Archives(str(tmp_path)).choose([("python3", python)]).archive)


def too_old() -> PythonThere:
    return msgspec.structs.replace(OTHER, version=(3, 9))


def test_where_wheels_are_missing_it_says_which_and_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(NoWheelsError) as lacking:
        Archives(str(tmp_path / "my wheels")).choose([("python3", OTHER)])
    text = str(lacking.value)
    assert re.match(r"no wheels of msgspec\b", text)
    assert f"--python-version 3.{OTHER.version[1]} --platform manylinux2014_{OTHER.machine} msgspec" in text
    assert f"pip download -d '{tmp_path}/my wheels' --no-deps --only-binary=:all: " in text


def test_the_second_python_of_a_host_serves_where_the_first_does_not(tmp_path: Path) -> None:
    chosen = Archives(str(tmp_path)).choose([("python3", OTHER), ("python3.11", python_here())])
    assert chosen.program == "python3.11"


def test_no_python_or_an_old_one_is_said(tmp_path: Path) -> None:
    for pythons, told in ([], "(none)"), ([("python3", too_old())], "(Python 3.9, "):
        with pytest.raises(NoWheelsError, match=r"no Python 3\.10 or newer there ") as lacking:
            Archives(str(tmp_path)).choose(pythons)
        assert told in str(lacking.value)


def test_files_of_a_wheel_lie_as_pip_would_put_them(tmp_path: Path) -> None:
    path = put_wheel(
        tmp_path,
        "a-1-py3-none-any.whl",
        {
            "a/__init__.py": "",
            "a-1.data/purelib/b.py": "",
            "a-1.data/platlib/c.py": "",
            "a-1.data/scripts/d": "",
            "../e.py": "",
            "/f.py": "",
        },
    )
    assert sorted(wheel_files(path)) == ["a/__init__.py", "b.py", "c.py"]


def test_a_file_that_is_no_wheel_is_named(tmp_path: Path) -> None:
    needed_by_other(tmp_path)
    broken = tmp_path / f"msgspec-9.0-{TAG}.whl"
    broken.write_bytes(b"no zip")
    with pytest.raises(NoWheelsError, match=r"msgspec-9\.0-.* is no readable wheel"):
        Archives(str(tmp_path)).choose([("python3", OTHER)])


def test_a_project_whose_files_are_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of distributions leave files out that their RECORD has."""
    folder = tmp_path / "half_there-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: half-there\nVersion: 1.0\n")
    (folder / "WHEEL").write_text("Tag: py3-none-any\n")
    (folder / "RECORD").write_text("half_there.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed_files("half-there", python_here()) == {}
    (tmp_path / "half_there.py").write_text("")
    assert installed_files("half-there", python_here()) == {"half_there.py": b""}
