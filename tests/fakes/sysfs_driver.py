"""The driver of a worker that reads a folder of files in place of those of the kernel."""

from __future__ import annotations

import os
from pathlib import Path

from gpumon.sources.sysfs.amdgpu import amdgpu

DRIVER = amdgpu(Path(os.environ["GPUMON_FAKE_SYSFS"]))
