"""Whose files gpumon reads its settings from: its user's and root's, nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gpumon.config.errors import ConfigError
from gpumon.config.load import load
from gpumon.config.scenario_file import read_scenario
from gpumon.config.themes import load_theme
from gpumon.sources.guest.archive import NoWheelsError, wheel_files

NOBODY = 65534
GPUMON = str(Path(sys.executable).with_name("gpumon"))
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
        done = subprocess.run(
            [GPUMON, *command, "--config", str(config)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert mend in done.stderr


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
