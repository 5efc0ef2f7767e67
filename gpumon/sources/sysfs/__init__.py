"""GPUs by the files of the kernel alone, without a library of their vendor: sysfs, and fdinfo of processes."""

from pathlib import Path
from typing import Final

SYS: Final = Path("/sys")
INTEGRATED_VARIABLE: Final = "GPUMON_INTEGRATED_GPUS"
"""Environment variable: `1` shows the GPU in an Intel CPU, too."""
