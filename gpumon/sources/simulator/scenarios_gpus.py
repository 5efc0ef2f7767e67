"""Scenarios of GPUs: broken, held down, or full of memory that nothing computes on; and what only looks like it."""

from __future__ import annotations

import msgspec

from gpumon.readings.frame import GpuState
from gpumon.readings.verdict import Level, Limit
from gpumon.sources.simulator.cast import H100, Leftover
from gpumon.sources.simulator.gpus import Work
from gpumon.sources.simulator.scenario import Scenario
from gpumon.sources.simulator.scenarios_engines import BUSY, CHAT, GIB, LARGE, QUIET, of, steady
from gpumon.sources.simulator.script import EngineSpell, GpuSpell, Script

SOLD_LOW = msgspec.structs.replace(H100, power_limit_w=400.0)
"""Its power limit is lowered, as data centres do."""
FULL = steady(6.1, 6000, 4)


def on(*spells: GpuSpell, engines: tuple[EngineSpell, ...] = ()) -> Script:
    """These spells, on a quiet host."""
    return Script(gpus=spells, engines=engines)


GPUS: tuple[Scenario, ...] = (
    Scenario(
        name="gpu-off-the-bus",
        about="After a minute GPU 2 falls off the bus (Xid 79), and the engine over four GPUs hangs with it.",
        scope="gpu 2",
        expected=Limit.HARDWARE,
        elsewhere=(Limit.STALLED, Limit.HARDWARE, Limit.CANNOT_TELL),
        cast=of(LARGE),
        gpus=4,
        script=on(
            GpuSpell(
                gpus=(2,), from_s=60.0, xid=79, state=GpuState.LOST, state_text="GPU is lost: it has fallen off the bus"
            ),
            engines=(EngineSpell(engine="llama-70b", from_s=60.0, spinning=True),),
        ),
        from_s=65.0,
        to_s=150.0,
    ),
    Scenario(
        name="ecc-uncorrectable",
        about="A double-bit error (Xid 48) on GPU 0: its counter rises, and a row waits to be remapped.",
        scope="gpu 0",
        expected=Limit.HARDWARE,
        elsewhere=(Limit.HARDWARE,),
        cast=BUSY,
        script=on(GpuSpell(gpus=(0,), from_s=30.0, xid=48, figures={"ecc_uncorrected": 1.0, "remap_pending": 1.0})),
    ),
    Scenario(
        name="ecc-corrected",
        about="Corrected ECC errors only: memory does what it should, and nothing is to be done.",
        scope="llama-8b",
        expected=Limit.HEALTHY,
        cast=BUSY,
        script=on(GpuSpell(gpus=(0,), from_s=30.0, figures={"ecc_corrected": 14.0})),
        from_s=180.0,
        to_s=240.0,
    ),
    Scenario(
        name="xid-application",
        about="An illegal access in somebody's kernel (Xid 13): the program is at fault, the GPU is not to be drained.",
        scope="gpu 0",
        expected=Limit.HARDWARE,
        level=Level.NOTE,
        cast=BUSY,
        script=on(GpuSpell(gpus=(0,), from_s=20.0, xid=13)),
    ),
    Scenario(
        name="reset-required",
        about="The driver advises a reset of GPU 1: nothing new starts there until it was drained and reset.",
        scope="gpu 1",
        expected=Limit.HARDWARE,
        cast=BUSY,
        script=on(
            GpuSpell(gpus=(1,), state=GpuState.RESET_REQUIRED, state_text="the driver advises a reset of this GPU")
        ),
    ),
    Scenario(
        name="thermal",
        about="After a minute the GPU slows itself down for heat, for three minutes: half the clock, half the prefill.",
        scope="gpu 0",
        expected=Limit.THROTTLED,
        elsewhere=(Limit.COMPUTE, Limit.QUEUE, Limit.THROTTLED),
        cast=of(CHAT, demand=steady(2.3, 6000, 4)),
        script=on(
            GpuSpell(
                gpus=(0,),
                from_s=60.0,
                to_s=240.0,
                throttle=("hw_slowdown", "hw_thermal_slowdown"),
                clock_share=0.5,
                figures={"temperature_c": 91.0, "memory_temperature_c": 97.0},
            )
        ),
        from_s=110.0,
        to_s=230.0,
    ),
    Scenario(
        name="power-brake",
        about="The server's power supply holds GPU 0 down (HW power brake): a quarter of the clock.",
        scope="gpu 0",
        expected=Limit.THROTTLED,
        elsewhere=(Limit.COMPUTE, Limit.QUEUE, Limit.THROTTLED, Limit.HEALTHY),
        cast=of(CHAT, demand=steady(3.0, 1800, 240)),
        script=on(
            GpuSpell(gpus=(0,), from_s=10.0, throttle=("hw_slowdown", "hw_power_brake_slowdown"), clock_share=0.28)
        ),
    ),
    Scenario(
        name="power-cap",
        about="A GPU at its power cap with the tensor cores full: that is what the cap is for, and no throttling.",
        scope="llama-8b",
        expected=Limit.COMPUTE,
        cast=of(CHAT, demand=FULL, chip=SOLD_LOW),
        chip=SOLD_LOW,
        script=QUIET,
    ),
    Scenario(
        name="one-slow-gpu",
        about="One of four tensor-parallel GPUs is slowed by heat: the other three wait for it in every all-reduce.",
        scope="gpu 3",
        expected=Limit.THROTTLED,
        elsewhere=(Limit.COMMUNICATION, Limit.COMPUTE, Limit.QUEUE, Limit.THROTTLED, Limit.HEALTHY),
        cast=of(LARGE, demand=steady(2.2, 3000, 100)),
        gpus=4,
        script=on(
            GpuSpell(
                gpus=(3,),
                from_s=10.0,
                throttle=("sw_thermal_slowdown",),
                clock_share=0.4,
                figures={"temperature_c": 88.0},
            )
        ),
    ),
    Scenario(
        name="notebook-holds-memory",
        about="A notebook holds 92 % of GPU 1 and has computed nothing for minutes: nobody else can use it.",
        scope="gpu 1",
        expected=Limit.MEMORY_IDLE,
        cast=BUSY,
        leftovers=(Leftover(1, "sim:python", 73.3 * GIB, "sim:python -m ipykernel_launcher"),),
        script=QUIET,
        from_s=100.0,
        to_s=140.0,
        idle_s=20.0,
    ),
    Scenario(
        name="notebook-at-work",
        about="A notebook holds three quarters of GPU 1 and computes: memory that is used for something.",
        scope="gpu 1",
        expected=Limit.HEALTHY,
        cast=BUSY,
        leftovers=(
            Leftover(
                1,
                "sim:python",
                59.0 * GIB,
                "sim:python -m ipykernel_launcher",
                work=Work(0.8, 0.7, 0.2, 2e14, 0.3, 0.0, 2e8),
            ),
        ),
        script=QUIET,
        from_s=180.0,
        to_s=220.0,
    ),
    Scenario(
        name="bare-context",
        about="A program has opened GPU 1 and holds next to nothing: the GPU is free, its memory too.",
        scope="gpu 1",
        expected=Limit.UNDER_USED,
        cast=BUSY,
        leftovers=(Leftover(1, "sim:python", 0.6 * GIB, "sim:python -m ipykernel_launcher"),),
        script=QUIET,
        from_s=190.0,
        to_s=220.0,
        idle_s=20.0,
    ),
    Scenario(
        name="notebook-nearly-full",
        about="A program without a pool of its own works with 95 % of the memory: the next allocation may fail.",
        scope="gpu 1",
        expected=Limit.MEMORY_FULL,
        cast=BUSY,
        leftovers=(
            Leftover(
                1, "sim:python", 75.7 * GIB, "sim:python finetune.py", work=Work(0.9, 0.7, 0.25, 2.5e14, 0.35, 0.0, 2e8)
            ),
        ),
        script=QUIET,
    ),
    Scenario(
        name="vllm-reserves-memory",
        about="vLLM holds 90 % of the memory for hardly a request: it reserved a pool, which says nothing of use.",
        scope="llama-8b",
        expected=Limit.UNDER_USED,
        cast=of(CHAT, demand=steady(0.3, 600, 250)),
        gpus=1,
        script=QUIET,
        from_s=200.0,
        to_s=260.0,
    ),
)
