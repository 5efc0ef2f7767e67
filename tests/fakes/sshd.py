"""A real sshd on loopback for tests: host key, login key, port and both configs are its own, in a folder."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.fakes.prometheus import free_port


class Sshd:
    """A context manager. `path`: folder of the programs that a login finds first. `hosts` are aliases of loopback."""

    def __init__(
        self,
        folder: Path,
        path: Path,
        hosts: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        *,
        system: bool = True,
    ) -> None:
        """`hosts`: alias -> further lines of its block in the client's config. `environment`: of a login.

        `system`: a login finds this machine's programs, too.
        """
        self.port = free_port()
        self._folder = folder
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        assert Path(sshd).exists(), "sshd is missing: apt-get install openssh-server"
        self._sshd = sshd
        for name in ("host_key", "login_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True, timeout=30)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where sshd drops its privileges to
        variables = {
            "PATH": f"{path}:/usr/bin:/bin" if system else str(path),
            "XDG_STATE_HOME": f"{folder}/state",  # a login knows nothing of what this user's gpumon has seen
            **(environment or {}),
        }
        user = pwd.getpwuid(os.geteuid()).pw_name
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
            f"StrictModes no\nAuthorizedKeysFile {folder}/login_key.pub\nPasswordAuthentication no\n"
            f"KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            f"SetEnv {' '.join(f'{name}={value}' for name, value in variables.items())}\n"
        )
        blocks = (
            f"Host {alias}\n{more}\n  HostName 127.0.0.1\n  Port {self.port}\n  User {user}\n  IdentitiesOnly yes\n"
            f"  IdentityFile {folder}/login_key\n  UserKnownHostsFile {folder}/known_hosts\n"
            for alias, more in hosts.items()
        )
        (folder / "ssh_config").write_text("\n".join(blocks))
        public = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}")
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        client = bin_folder / "ssh"  # OpenSSH takes the user's config from the password file, whatever HOME says
        client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        client.chmod(0o755)
        self.client_path = f"{bin_folder}:{os.environ['PATH']}"
        """PATH of who logs in."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Sshd:
        log = (self._folder / "sshd.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [self._sshd, "-D", "-e", "-f", str(self._folder / "sshd_config")], stderr=log
            )
        end_s = time.monotonic() + 30.0
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", self.port)):
                assert time.monotonic() < end_s, (self._folder / "sshd.log").read_text()
                time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10.0)
