"""Which sockets a process holds, where Linux shows that there are open files and not which."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from gpumon.sources.sockets import sockets_of

ASK = "import sys; from gpumon.sources.sockets import sockets_of; print(sockets_of(int(sys.argv[1])))"
WITHOUT_PTRACE = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
"""Root in a container: it lists the open files of any process, and may read none of the links."""


def test_sockets_that_linux_hides_are_not_none_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        inode = os.fstat(listening.fileno()).st_ino
        assert inode in (sockets_of(os.getpid()) or ())
        pid, lowered = (os.getpid(), WITHOUT_PTRACE) if os.geteuid() == 0 else (1, [])
        asked = subprocess.run(
            [*lowered, sys.executable, "-c", ASK, str(pid)], capture_output=True, text=True, check=True
        )
    assert asked.stdout.strip() == "None"
