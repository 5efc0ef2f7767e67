"""Open files of graphics cards, read from a tree that stands for /proc."""

from __future__ import annotations

from pathlib import Path

from gpumon.sources.sysfs.fdinfo import FdinfoClients

PID = 77
SLOT = "0000:03:00.0"


def open_files(proc: Path, busy_ns: int) -> None:
    """A process with two clients on one card, each of which kept the same engine busy for so long."""
    for folder in ("fd", "fdinfo"):
        (proc / str(PID) / folder).mkdir(parents=True, exist_ok=True)
    for number in (3, 4):
        link = proc / str(PID) / "fd" / str(number)
        if not link.is_symlink():
            link.symlink_to("/dev/dri/renderD128")
        client = f"drm-pdev:\t{SLOT}\ndrm-client-id:\t{number}\ndrm-memory-vram:\t1024 KiB\n"
        info = proc / str(PID) / "fdinfo" / str(number)
        info.write_text(f"{client}drm-engine-gfx:\t{busy_ns} ns\n", encoding="ascii")


def test_clients_that_are_read_one_after_the_other_do_not_keep_an_engine_busy_for_more_than_all_the_time(
    tmp_path: Path,
) -> None:
    clients = FdinfoClients(tmp_path, is_root=True)
    open_files(tmp_path, 0)
    clients.look(0.0, 0.0)
    open_files(tmp_path, 10**12)
    (usage,) = clients.look(1.0, 0.0).usage[SLOT].values()
    assert usage.engine_ratio == 1.0
    assert usage.vram_bytes == 2 * 1024 * 1024
