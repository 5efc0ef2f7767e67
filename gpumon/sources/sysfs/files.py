"""Files of the kernel as the calls of a driver: reading one, and the meaning of its error numbers.

A file of sysfs answers a read with a number or a line of text, or with an errno. The numbers are those of amdgpu
(amdgpu_pm.c: EPERM while a GPU is reset or asleep, EINVAL and EOPNOTSUPP for a sensor that it lacks, ENODATA and ETIME
from the firmware) and of the kernel's file layer (ENOENT, ENODEV after an unplug, EACCES).
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpumon.readings.frame import GpuState
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.text import clean
from gpumon.sources.driver.calls import NEVER, UNKNOWN_CODE, Api, CallPause, CallRule

MOST_BYTES: Final = 1 << 16
"""Bytes that are read of one file; sysfs gives a page at most."""
NO_TEXT: Final = -1
"""Stands for an answer that cannot be read. Error numbers begin at 1."""
UNKNOWN_WORDS: Final = frozenset(("", "N/A", "n/a", str(0xFFFFFFFF), str(0xFFFFFFFFFFFFFFFF)))
"""Texts of figures that a driver or a firmware does not know: nothing, or the largest number of 32 or 64 bits."""

_NO_VALUE: Final = CallRule(Reason.ERROR, CallPause.TICK, "the kernel has no value right now", usual=True)
_ASLEEP: Final = CallRule(
    Reason.OFF, CallPause.TICK, "the GPU is asleep or being reset: the kernel gives no value", usual=True
)
_FAILED: Final = CallRule(Reason.ERROR, CallPause.BACK_OFF, "the kernel cannot read it from the hardware: see dmesg")
_REFUSED: Final = CallRule(
    Reason.NO_PERMISSION, CallPause.PERMISSION, "the kernel does not let your user read this file"
)
_LACKING: Final = (
    *(errno.ENOENT, errno.ENXIO, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS),
    *(errno.ENOTTY, errno.EISDIR, errno.ENOTDIR, errno.ELOOP),
)
"""Errors of a file or a sensor that this GPU, kernel or driver does not have."""
RULES: Final[dict[int, CallRule]] = {
    **dict.fromkeys(_LACKING, NEVER),
    **dict.fromkeys((errno.EBUSY, errno.EAGAIN, errno.EINTR, errno.ENODATA, errno.ETIME, errno.ETIMEDOUT), _NO_VALUE),
    **dict.fromkeys((errno.EIO, errno.EREMOTEIO, errno.EPROTO, errno.EFAULT, errno.ENOMEM), _FAILED),
    errno.EPERM: _ASLEEP,
    errno.EACCES: _REFUSED,
    errno.EMFILE: UNKNOWN_CODE,
    NO_TEXT: CallRule(Reason.INVALID, CallPause.TICK, "the kernel sent what cannot be read", usual=True),
}
"""By errno."""
_NOT_LISTED: Final = (GpuState.LOST, "the kernel does not list it any more: unplugged or removed")


def read_text(path: Path) -> str:
    """Text of a file, without blanks around it. Raises OSError.

    It does not wait, should the path lead to a pipe.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        raw = os.read(descriptor, MOST_BYTES)
    finally:
        os.close(descriptor)
    return raw.decode("utf-8", "replace").strip()


def text_or(path: Path, default: str = "") -> str:
    """Text of a file, `default` where it cannot be read."""
    try:
        return read_text(path)
    except OSError:
        return default


class SysfsFiles:
    """Every file is a function of the folder that it is in: `getattr(files, "hwmon/temp1_input")(folder)` reads it."""

    def __getattr__(self, name: str) -> Callable[[Path], str]:
        """The function that reads the file of this name; it raises OSError."""
        return lambda folder: read_text(folder / name)


def code_of(error: Exception) -> int | None:
    """Error number that an exception of a read stands for."""
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    if isinstance(error, ValueError):  # a path with a zero byte
        return NO_TEXT
    return None


def number_of(text: str, scale: float = 1.0) -> Reading:
    """The number that a file has, in the unit that `scale` leads to; Missing for `N/A`, a sentinel or garbage."""
    if text in UNKNOWN_WORDS:
        return NOT_SUPPORTED
    try:
        value = float(text)
    except ValueError:
        return Missing(Reason.INVALID, f"the kernel says {clean(text, 40)!r}, which is no number")
    if not math.isfinite(value):
        return Missing(Reason.INVALID, f"the kernel says {clean(text, 40)}")
    return value * scale


API: Final = Api(
    functions=SysfsFiles(),
    code_of=code_of,
    rules=RULES,
    down={},
    refused={errno.ENODEV: _NOT_LISTED},
    driver_down=frozenset(),
    stale=frozenset((errno.ENODEV,)),
    stale_if_worked=frozenset((errno.ENOENT,)),
)
"""The kernel as a driver. A file that is gone may have moved: a driver that is reloaded gets new hwmon folders."""
