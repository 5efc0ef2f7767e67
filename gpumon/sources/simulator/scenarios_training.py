"""Scenarios of training runs: a loader that keeps up, and loaders that do not."""

from __future__ import annotations

import msgspec

from gpumon.readings.verdict import Limit
from gpumon.sources.simulator.cast import GIB, H100, LLAMA_8B
from gpumon.sources.simulator.scenario import Scenario
from gpumon.sources.simulator.script import Script, host
from gpumon.sources.simulator.training import Loader, Run

PRETRAIN = Run(
    name="pretrain-8b",
    shape=LLAMA_8B,
    chip=H100,
    gpus=(0, 1, 2, 3),
    tokens_per_step=32768.0,
    flops_share=0.44,
    vram_bytes=58 * GIB,
    loader=Loader(batches=8, every_s=4.0),
    command="sim:torchrun --nproc-per-node 4 train.py --data /mnt/corpus",
)
"""A step takes 0.9 s; the loader brings eight batches in four seconds: it keeps up."""


def _slow(every_s: float) -> tuple[Run, ...]:
    return (msgspec.structs.replace(PRETRAIN, loader=Loader(batches=4, every_s=every_s)),)


TRAINING: tuple[Scenario, ...] = (
    Scenario(
        name="training",
        about="A training run whose loader keeps up: MFU 44 %, and the GPUs never wait.",
        scope="pretrain-8b",
        expected=Limit.HEALTHY,
        elsewhere=(Limit.COMPUTE, Limit.HEALTHY),
        runs=(PRETRAIN,),
        gpus=4,
        from_s=180.0,
        to_s=240.0,
        script=Script(
            host=(host(cpu_ratio=0.3, busiest_core_ratio=0.8, disk_read_bytes_per_s=4e8, disk_busy_ratio=0.3),)
        ),
    ),
    Scenario(
        name="data-loader",
        about="The loader reads from a slow disk: every few seconds four GPUs wait for the next shard.",
        scope="pretrain-8b",
        expected=Limit.INPUT_STARVED,
        elsewhere=(Limit.INPUT_STARVED,),
        runs=_slow(6.5),
        gpus=4,
        script=Script(
            host=(
                host(
                    cpu_ratio=0.12,
                    busiest_core_ratio=0.7,
                    iowait_ratio=0.22,
                    io_pressure_ratio=0.71,
                    disk_read_bytes_per_s=4.9e8,
                    disk_busy_ratio=0.99,
                ),
            )
        ),
    ),
    Scenario(
        name="data-loader-cpu",
        about="The loader decodes images on every core: the GPUs wait for the CPU, and the disk has time.",
        scope="pretrain-8b",
        expected=Limit.INPUT_STARVED,
        elsewhere=(Limit.INPUT_STARVED, Limit.COMPUTE),
        runs=_slow(6.5),
        gpus=4,
        script=Script(
            host=(host(cpu_ratio=0.97, busiest_core_ratio=1.0, cpu_pressure_ratio=0.78, disk_busy_ratio=0.1),)
        ),
    ),
    Scenario(
        name="data-loader-network",
        about="The data comes over the network at its full rate: the GPUs wait, CPU and disk have time.",
        scope="pretrain-8b",
        expected=Limit.INPUT_STARVED,
        elsewhere=(Limit.INPUT_STARVED,),
        runs=_slow(6.5),
        gpus=4,
        script=Script(host=(host(cpu_ratio=0.1, network_rx_bytes_per_s=1.17e9),)),
    ),
    Scenario(
        name="training-waits",
        about="The same gaps, with cores, disk and network of this host at rest: nothing tells what the run waits for.",
        scope="pretrain-8b",
        expected=Limit.CANNOT_TELL,
        runs=_slow(6.5),
        gpus=4,
        script=Script(),
    ),
    Scenario(
        name="training-low-mfu",
        about="Micro-batches of one: the GPUs are busy all the time and reach an eighth of what they could.",
        scope="pretrain-8b",
        expected=Limit.UNDER_USED,
        runs=(msgspec.structs.replace(PRETRAIN, flops_share=0.12),),
        gpus=4,
        script=Script(),
        from_s=200.0,
        to_s=260.0,
    ),
    Scenario(
        name="host-memory-full",
        about="The host's own memory runs out beside a run that goes well: the kernel may soon kill it.",
        scope="host",
        expected=Limit.MEMORY_FULL,
        elsewhere=(Limit.COMPUTE,),
        runs=(PRETRAIN,),
        gpus=4,
        script=Script(host=(host(memory_used_bytes=1004 * GIB, memory_pressure_ratio=0.25),)),
    ),
    Scenario(
        name="busy-host",
        about="Somebody compiles on every core beside a run whose loader keeps up: the GPUs do not notice.",
        scope="pretrain-8b",
        expected=Limit.HEALTHY,
        elsewhere=(Limit.COMPUTE, Limit.HEALTHY),
        runs=(PRETRAIN,),
        gpus=4,
        from_s=180.0,
        to_s=240.0,
        script=Script(
            host=(host(cpu_ratio=0.97, busiest_core_ratio=1.0, cpu_pressure_ratio=0.78, disk_busy_ratio=0.1),)
        ),
    ),
)
