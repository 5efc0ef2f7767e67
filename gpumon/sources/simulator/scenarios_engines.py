"""Scenarios of serving engines: what holds them back, hangs, and traffic that only looks like it."""

from __future__ import annotations

import msgspec

from gpumon.readings.verdict import Limit
from gpumon.sources.simulator.cast import CAST, H100_PCIE, LLAMA_8B, Actor, Leftover
from gpumon.sources.simulator.engine_model import Held
from gpumon.sources.simulator.gpus import Work
from gpumon.sources.simulator.physics import Speed
from gpumon.sources.simulator.scenario import Scenario
from gpumon.sources.simulator.script import EngineSpell, GpuSpell, Script, host
from gpumon.sources.simulator.traffic import Demand, Lengths, Surge

GIB = float(1 << 30)


QUIET = Script()


def fixed(tokens: int) -> Lengths:
    """All of about one length."""
    return Lengths(float(tokens), 0.1, max(1, tokens // 2), tokens * 2)


def steady(requests_per_s: float, prompt: int, output: int, *surges: Surge) -> Demand:
    """Traffic without waves."""
    return Demand(requests_per_s, fixed(prompt), fixed(output), swing=0.0, surges=surges)


CHAT = Actor(
    name="llama-8b",
    model="meta-llama/Llama-3.1-8B-Instruct",
    shape=LLAMA_8B,
    speed=Speed(0.62, 0.80, 0.7e-3, 20e-6),
    ranks=((0,),),
    demand=steady(5.0, 600, 250),
    activation_gib=4.76,
    other_gib=0.13,
    max_model_len=32768,
)
"""A chat model on one GPU that has enough to do and room for more."""
LARGE = msgspec.structs.replace(CAST[0], demand=steady(5.0, 1200, 400), ranks=((0, 1, 2, 3),), max_batched_tokens=8192)
"""The 70B in FP8 on four GPUs."""


def of(actor: Actor, **changes: object) -> tuple[Actor, ...]:
    """A cast of one, with changes."""
    return (msgspec.structs.replace(actor, **changes),)


BUSY = of(CHAT, demand=steady(6.0, 1800, 240))

ENGINES: tuple[Scenario, ...] = (
    Scenario(
        name="healthy-chat",
        about="A chat model with enough to do: nothing holds it back, and the headroom says how much more fits.",
        scope="llama-8b",
        expected=Limit.HEALTHY,
        cast=BUSY,
        script=QUIET,
        from_s=180.0,
        to_s=240.0,
    ),
    Scenario(
        name="kv-cache-full",
        about="Long conversations fill the KV pool: requests wait and are preempted while slots are free.",
        scope="llama-8b",
        expected=Limit.KV_CACHE,
        cast=of(CHAT, demand=steady(5.0, 3000, 700), gpu_memory_utilization=0.45, most_waiting=60),
        script=QUIET,
    ),
    Scenario(
        name="queue-at-the-limit",
        about="max_num_seqs 12 keeps requests waiting before a GPU with room: the pool is nearly empty.",
        scope="llama-8b",
        expected=Limit.QUEUE,
        cast=of(CHAT, demand=steady(8.0, 1800, 240), max_num_seqs=12, most_waiting=60),
        script=QUIET,
    ),
    Scenario(
        name="burst",
        about="A few seconds of rush a minute queue at the same kind of limit: over before it would be a verdict.",
        scope="llama-8b",
        expected=Limit.HEALTHY,
        cast=of(CHAT, demand=steady(4.2, 1800, 240, Surge(20.0, 26.0, 3.5, 60.0)), max_num_seqs=24),
        script=QUIET,
        from_s=60.0,
        to_s=240.0,
    ),
    Scenario(
        name="prefill-bound",
        about="Classification over long texts: nearly all work is prefill, and the tensor cores are the limit.",
        scope="llama-8b",
        expected=Limit.COMPUTE,
        cast=of(CHAT, demand=steady(6.1, 6000, 4)),
        script=QUIET,
    ),
    Scenario(
        name="long-prefill",
        about="One prompt of 330,000 tokens: no token for a minute, but its GPU works. That is no hang.",
        scope="llama-8b",
        expected=Limit.COMPUTE,
        cast=of(
            CHAT,
            demand=steady(0.03, 330_000, 200),
            most_waiting=1,
            max_model_len=700_000,
            gpu_memory_utilization=0.92,
        ),
        script=QUIET,
    ),
    Scenario(
        name="decode-bound",
        about="Long answers at a moderate batch: every step reads all weights, and HBM is the limit.",
        scope="llama-8b",
        expected=Limit.BANDWIDTH,
        cast=of(CHAT, demand=steady(4.0, 200, 1000), speed=Speed(0.62, 0.92, 0.4e-3, 5e-6)),
        script=QUIET,
    ),
    Scenario(
        name="decode-bound-long-context",
        about="The KV pool is two thirds full and nobody waits: HBM is the limit, not the pool.",
        scope="llama-8b",
        expected=Limit.BANDWIDTH,
        cast=of(CHAT, demand=steady(1.1, 7000, 1500), speed=Speed(0.62, 0.92, 0.4e-3, 5e-6)),
        script=QUIET,
    ),
    Scenario(
        name="tp-over-pcie",
        about="Tensor parallelism over PCIe: all four GPUs are busy, and mostly wait for each other's all-reduces.",
        scope="llama-70b",
        expected=Limit.COMMUNICATION,
        cast=of(LARGE, chip=H100_PCIE, speed=Speed(0.52, 0.78, 14e-3, 30e-6, 0.2e-3), demand=steady(2.2, 1200, 400)),
        chip=H100_PCIE,
        gpus=4,
        script=QUIET,
    ),
    Scenario(
        name="tp-over-nvlink",
        about="The same model and traffic over NVLink: the all-reduces are short, and HBM is what it reads from.",
        scope="llama-70b",
        expected=Limit.BANDWIDTH,
        cast=of(LARGE, demand=steady(5.0, 300, 700), speed=Speed(0.52, 0.92, 0.9e-3, 5e-6)),
        gpus=4,
        script=QUIET,
    ),
    Scenario(
        name="locked-clock",
        about="Somebody locked the clock of one of four GPUs: the other three wait for it, and no driver complains.",
        scope="llama-70b",
        expected=Limit.COMMUNICATION,
        cast=of(LARGE, demand=steady(2.4, 3000, 100)),
        gpus=4,
        script=Script(gpus=(GpuSpell(gpus=(1,), clock_share=0.52),)),
    ),
    Scenario(
        name="engine-hang",
        about="Requests run and no token comes: the kernels wait for each other for good. Busy 100 %, no DRAM traffic.",
        scope="llama-70b",
        expected=Limit.STALLED,
        cast=of(LARGE),
        gpus=4,
        script=Script(engines=(EngineSpell(engine="llama-70b", from_s=5.0, spinning=True),)),
        from_s=100.0,
        to_s=150.0,
    ),
    Scenario(
        name="engine-hang-idle",
        about="Requests run and no token comes, and the GPU does nothing: the engine's own process hangs.",
        scope="llama-8b",
        expected=Limit.STALLED,
        cast=of(CHAT),
        script=Script(engines=(EngineSpell(engine="llama-8b", from_s=5.0),)),
        from_s=100.0,
        to_s=150.0,
    ),
    Scenario(
        name="engine-mute",
        about="The API server takes connections and answers none, and the workers hold their GPU: nobody is served.",
        scope="llama-8b",
        expected=Limit.STALLED,
        cast=BUSY,
        script=Script(engines=(EngineSpell(engine="llama-8b", from_s=5.0, mute=True),)),
    ),
    Scenario(
        name="quiet-night",
        about="Nobody asks anything: no token either, but nothing runs. The GPU is free to use, not hung.",
        scope="llama-8b",
        expected=Limit.UNDER_USED,
        cast=of(CHAT, demand=steady(0.0, 600, 250)),
        script=QUIET,
        from_s=100.0,
        to_s=140.0,
        idle_s=20.0,
    ),
    Scenario(
        name="replicas-half-asleep",
        about="Three replicas share the traffic that one of them could take: what consolidation would save.",
        scope="llama-8b-a",
        expected=Limit.UNDER_USED,
        elsewhere=(Limit.UNDER_USED,),
        cast=tuple(
            msgspec.structs.replace(CHAT, name=f"llama-8b-{letter}", ranks=((at,),), demand=steady(0.5, 400, 150))
            for at, letter in enumerate("abc")
        ),
        gpus=3,
        script=QUIET,
        from_s=200.0,
        to_s=260.0,
    ),
    Scenario(
        name="cpu-bound-server",
        about="The server's one Python process is at its limit: the GPU falls idle every few seconds, requests wait.",
        scope="llama-8b",
        expected=Limit.INPUT_STARVED,
        cast=of(CHAT, demand=steady(7.0, 600, 250), held=Held(6.0, 3.0)),
        script=Script(host=(host(cpu_ratio=0.09, busiest_core_ratio=1.0, cpu_pressure_ratio=0.12),)),
    ),
    Scenario(
        name="batch-client",
        about="A client sends in bursts and pauses between: the GPU falls idle in the same rhythm with nothing to do.",
        scope="llama-8b",
        expected=Limit.UNDER_USED,
        cast=of(CHAT, demand=steady(3.0, 600, 60, Surge(0.0, 4.0, 5.0, 10.0), Surge(4.0, 10.0, 0.0, 10.0))),
        script=QUIET,
        from_s=180.0,
        to_s=240.0,
    ),
    Scenario(
        name="no-gpm",
        about="A GPU without activity counters at work for nobody known: busy, and nothing tells what limits it.",
        scope="gpu 0",
        expected=Limit.CANNOT_TELL,
        leftovers=(Leftover(0, "sim:python", 40 * GIB, "sim:python simulate.py", work=Work(1.0, 0.9, 0.2, 0.0, 0.3)),),
        gpus=1,
        script=Script(
            unmeasured=("sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio"),
        ),
    ),
    Scenario(
        name="metrics-without-kv",
        about="A page without KV usage and queue, and GPUs without activity counters: what limits it is not told.",
        scope="llama-8b",
        expected=Limit.CANNOT_TELL,
        cast=of(
            CHAT,
            demand=steady(5.0, 3000, 700),
            gpu_memory_utilization=0.45,
            most_waiting=60,
            hidden=("kv_cache_usage_perc", "num_requests_waiting", "request_queue_time", "num_preemptions"),
        ),
        script=Script(
            unmeasured=("sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio"),
        ),
    ),
    Scenario(
        name="engine-restart",
        about="After a minute the engine's process ends, and another answers on the same port half a minute later.",
        scope="llama-8b",
        expected=Limit.HEALTHY,
        cast=BUSY,
        script=Script(engines=(EngineSpell(engine="llama-8b", from_s=60.0, to_s=90.0, down=True),)),
        from_s=180.0,
        to_s=220.0,
    ),
)
