"""`timeout`, a bound of time on a block that waits: that of asyncio, and on Python 3.10 its backport.

`asyncio.wait_for` is not used: before Python 3.12 it loses a cancellation that comes just as its call ends (CPython
issue 86296), so that a poll which was stopped went on for ever.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["timeout"]
