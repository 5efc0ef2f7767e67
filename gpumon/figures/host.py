"""Figures of the host, of all its GPUs together, and of gpumon itself."""

from __future__ import annotations

from typing import Final

from gpumon.figures.figure import Exported, Figure, Figures
from gpumon.figures.unit import (
    BYTES,
    BYTES_PER_S,
    JOULES,
    MONEY,
    SECONDS,
    SHARE,
)

HOST: Final = Figures(
    Figure(
        "cpu_ratio", SHARE, in_csv=True, name="CPU", exported=Exported("host_cpu_ratio", "Share of all cores' time.")
    ),
    Figure(
        "busiest_core_ratio",
        SHARE,
        in_csv=True,
        exported=Exported("host_busiest_core_ratio", "Share of the busiest core's time."),
    ),
    Figure(
        "iowait_ratio",
        SHARE,
        in_csv=True,
        exported=Exported("host_iowait_ratio", "Share of all cores' time that waited for a disk."),
    ),
    Figure(
        "memory_used_bytes",
        BYTES,
        in_csv=True,
        exported=Exported("host_memory_used_bytes", "Memory in use."),
    ),
    Figure(
        "memory_total_bytes", BYTES, in_csv=True, exported=Exported("host_memory_size_bytes", "Memory of the host.")
    ),
    Figure(
        "cpu_pressure_ratio",
        SHARE,
        in_csv=True,
        exported=Exported("host_pressure_ratio", "Linux PSI, some, mean of 10 s.", labels={"resource": "cpu"}),
    ),
    Figure(
        "io_pressure_ratio", SHARE, in_csv=True, exported=Exported("host_pressure_ratio", labels={"resource": "io"})
    ),
    Figure(
        "memory_pressure_ratio",
        SHARE,
        in_csv=True,
        exported=Exported("host_pressure_ratio", labels={"resource": "memory"}),
    ),
    Figure(
        "disk_read_bytes_per_s",
        BYTES_PER_S,
        in_csv=True,
        exported=Exported("host_disk_bytes_per_second", "Disks, by direction.", labels={"direction": "read"}),
    ),
    Figure(
        "disk_write_bytes_per_s",
        BYTES_PER_S,
        in_csv=True,
        exported=Exported("host_disk_bytes_per_second", labels={"direction": "write"}),
    ),
    Figure(
        "disk_busy_ratio",
        SHARE,
        in_csv=True,
        exported=Exported("host_disk_busy_ratio", "Share of time in which the busiest disk had a request."),
    ),
    Figure(
        "network_rx_bytes_per_s",
        BYTES_PER_S,
        in_csv=True,
        exported=Exported("host_network_bytes_per_second", "Network.", labels={"direction": "rx"}),
    ),
    Figure(
        "network_tx_bytes_per_s",
        BYTES_PER_S,
        in_csv=True,
        exported=Exported("host_network_bytes_per_second", labels={"direction": "tx"}),
    ),
)
"""Figures of the host."""
HOST_COSTS: Final = Figures(
    Figure(
        "cost_per_hour",
        MONEY,
        exported=Exported("host_cost_per_hour", "Price of an hour of all GPUs, in the currency of the config."),
    ),
    Figure(
        "cost_per_million_output_tokens",
        MONEY,
        exported=Exported("host_cost_per_million_tokens", "At the rates of now.", labels={"of": "output"}),
    ),
    Figure(
        "cost_per_million_all_tokens", MONEY, exported=Exported("host_cost_per_million_tokens", labels={"of": "all"})
    ),
    Figure(
        "unused_gpu_s",
        SECONDS,
        exported=Exported("host_unused_gpu_seconds_total", "GPU-seconds without a request, or with nobody on the GPU."),
    ),
    Figure("unused_cost", MONEY, exported=Exported("host_unused_cost_total", "Price of that time.")),
    Figure(
        "energy_j",
        JOULES,
        exported=Exported("host_gpu_energy_joules_total", "Energy of all GPUs since gpumon started."),
    ),
    Figure("energy_cost", MONEY, exported=Exported("host_gpu_energy_cost_total", "Price of that energy.")),
)
"""Costs of all GPUs together."""
SELF: Final = Figures(
    Figure(
        "cpu_ratio",
        SHARE,
        exported=Exported("self_cpu_ratio", "What gpumon costs: share of one core, its worker included."),
    ),
    Figure("pss_bytes", BYTES, exported=Exported("self_memory_bytes", "What gpumon costs: proportional memory (PSS).")),
)
"""Costs of gpumon itself."""
