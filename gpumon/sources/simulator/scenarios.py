"""Every scenario of the demo as data: who is there, what happens, and what is true of each thing at each time."""

from __future__ import annotations

import difflib
import math
from typing import Final

import msgspec

from gpumon.readings.frame import GpuState, HostReading
from gpumon.readings.verdict import Level
from gpumon.sources.simulator.engine_model import Held
from gpumon.sources.simulator.gpus import Work
from gpumon.sources.simulator.physics import GIB, H100, H100_PCIE, LLAMA_8B, LLAMA_70B, QWEN_30B_A3B, Speed
from gpumon.sources.simulator.scenario import (
    Actor,
    EngineEffect,
    GpuEffect,
    HostEffect,
    Leftover,
    Scenario,
    Truth,
)
from gpumon.sources.simulator.traffic import Demand, Lengths, Surge
from gpumon.sources.simulator.training import Loader, Run

LEVELS: Final = {"C": Level.CRITICAL, "W": Level.WARN, "N": Level.NOTE, "O": Level.OK}


def must(
    thing: str,
    code: str,
    levels: str,
    from_s: float = 0.0,
    to_s: float = math.inf,
    *,
    within_s: float = 60.0,
    actions: str = "",
) -> Truth:
    """What has to be named within a time: at levels by their letters, with actions by their codes."""
    return Truth(thing, code, tuple(map(LEVELS.__getitem__, levels)), tuple(actions.split()), from_s, to_s, within_s)


def may(thing: str, code: str, levels: str, from_s: float = 0.0, to_s: float = math.inf, *, actions: str = "") -> Truth:
    """What is true, or at least harmless, and need not be said."""
    return must(thing, code, levels, from_s, to_s, within_s=math.inf, actions=actions)


def host(from_s: float = -math.inf, to_s: float = math.inf, **figures: float) -> HostEffect:
    """Figures of the host for a while."""
    return HostEffect(reading=msgspec.structs.replace(HostReading(), **figures), from_s=from_s, to_s=to_s)


QUIET_HOST: Final = host(
    cpu_ratio=0.06,
    busiest_core_ratio=0.45,
    iowait_ratio=0.0,
    cpu_pressure_ratio=0.0,
    io_pressure_ratio=0.0,
    memory_pressure_ratio=0.0,
    memory_used_bytes=96 * GIB,
    memory_total_bytes=1024 * GIB,
    disk_read_bytes_per_s=2e5,
    disk_write_bytes_per_s=4e5,
    disk_busy_ratio=0.01,
    network_rx_bytes_per_s=3e5,
    network_tx_bytes_per_s=9e5,
)
"""64 cores that have little to do."""


def steady(requests_per_s: float, prompt: int, output: int, *surges: Surge, **more: object) -> Demand:
    """Traffic without waves, all requests of about one length."""
    prompts, outputs = (Lengths(float(each), 0.1, max(1, each // 2), each * 2) for each in (prompt, output))
    return msgspec.structs.replace(Demand(requests_per_s, prompts, outputs, 0.0, surges=surges), **more)


def engine(actor: Actor, demand: Demand | None = None, **changes: object) -> Actor:
    """An engine with changes."""
    return msgspec.structs.replace(actor, **({"demand": demand} if demand else {}), **changes)


def replicas(*demands: Demand, **changes: object) -> tuple[Actor, ...]:
    """The chat model, once on each GPU."""
    return tuple(
        engine(CHAT, demand, name=f"llama-8b-{'abcdefgh'[at]}", ranks=((at,),), **changes)
        for at, demand in enumerate(demands)
    )


CHAT: Final = Actor(
    name="llama-8b",
    model="meta-llama/Llama-3.1-8B-Instruct",
    shape=LLAMA_8B,
    speed=Speed(0.62, 0.80, 0.7e-3, 20e-6),
    ranks=((0,),),
    demand=steady(6.0, 1800, 240),
    activation_gib=4.76,
    other_gib=0.13,
)
"""A chat model on one GPU that has enough to do and room for more."""
LARGE: Final = Actor(
    # A TP4 step costs about 2 ms in launches and all-reduces.
    name="llama-70b",
    model="RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic",
    shape=LLAMA_70B,
    speed=Speed(0.52, 0.78, 2.2e-3, 30e-6),
    ranks=((0, 1, 2, 3),),
    demand=steady(5.0, 1200, 400),
    activation_gib=4.84,
    other_gib=0.55,
)
"""The 70B in FP8 on four GPUs."""
PRETRAIN: Final = Run(
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
SLOW_LOADER: Final = msgspec.structs.replace(PRETRAIN, loader=Loader(batches=4, every_s=6.5))

CAST: Final = (
    # Chat and retrieval, healthy load.
    engine(
        LARGE,
        Demand(
            requests_per_s=4.0,
            prompt=Lengths(1900.0, 0.8, 64, 12000),
            output=Lengths(400.0, 0.7, 16, 2048),
            swing=0.25,
            period_s=900.0,
            returning=0.6,
            hit_share=0.6,
        ),
        max_batched_tokens=2048,
    ),
    # An agent's model with few users at a time: memory bound at almost no arithmetic.
    Actor(
        name="qwen-moe",
        model="Qwen/Qwen3-30B-A3B",
        shape=QWEN_30B_A3B,
        speed=Speed(0.40, 0.78, 2.4e-3, 40e-6),
        ranks=((4,),),
        demand=Demand(
            requests_per_s=0.45,
            prompt=Lengths(700.0, 0.8, 32, 8000),
            output=Lengths(520.0, 0.7, 32, 4096),
            swing=0.5,
            period_s=700.0,
            phase=0.4,
            returning=0.3,
            hit_share=0.5,
        ),
        container="51b1a7ed0c0d",
        activation_gib=7.38,
        other_gib=0.13,
    ),
    # Classification and extraction over long texts: two replicas that mostly read prompts.
    engine(
        CHAT,
        Demand(
            requests_per_s=4.6,
            prompt=Lengths(3000.0, 0.7, 128, 16000),
            output=Lengths(120.0, 0.6, 8, 1024),
            swing=0.3,
            period_s=1100.0,
            phase=0.7,
            returning=0.2,
            hit_share=0.4,
        ),
        ranks=((5,), (6,)),
        container="51b1a7ed0b0b",
        pod="51b1a7ed-0000-4000-8000-00000000d1ce",
    ),
)

LEFTOVERS: Final = (
    # Memory of GPU 7 is taken, nothing runs there.
    Leftover(7, 38.4 * GIB, "sim:python train_lora.py --base Llama-3.1-8B --epochs 3 --rank 16"),
)

DEMO: Final = Scenario(
    "demo", "Eight GPUs, three engines and a leftover process.", (), CAST, (), LEFTOVERS, gpus=8, warm_s=600.0
)

NOTEBOOK: Final = "sim:python -m ipykernel_launcher"
FAST: Final = Speed(0.62, 0.92, 0.4e-3, 5e-6)
"""Kernels and a scheduler that leave little between two steps: memory is what a decode step waits for."""
WITHOUT_GPM: Final = ("sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio")
CORES: Final = host(cpu_ratio=0.97, busiest_core_ratio=1.0, cpu_pressure_ratio=0.78, disk_busy_ratio=0.1)
"""Somebody computes on all cores."""
PREFILL: Final = steady(6.1, 6000, 4)
"""As many long prompts as the GPU can read."""
COMPUTE: Final = "smaller_chunks quantise_weights split_prefill more_*"
KV: Final = "more_* fp8_kv lower_context own_instance_for_long"
DECODE: Final = "bigger_batch quantise_weights more_gpus"
RESTART: Final = "save_stacks_and_restart"
"""What mends the usual limits, by codes of actions."""
SPARE: Final = may("gpu 1", "idle", "N")
"""Nothing runs on it."""

SCENARIOS: Final = (
    Scenario(
        "gpu-off-the-bus",
        "After a minute GPU 2 falls off the bus (Xid 79), and the engine over four GPUs hangs with it.",
        (
            must("gpu 2", "hardware_fault", "C", 60.0, within_s=5.0, actions="power_cycle reseat_if_again reset_gpu"),
            must("llama-70b", "hung", "C", 60.0, within_s=45.0, actions="mend_gpu_first"),
            may("llama-70b", "hardware_fault", "CW", 60.0),
            may("llama-70b", "healthy", "O", to_s=60.0),
        ),
        (LARGE,),
        gpus=4,
        gpu_effects=(
            GpuEffect(
                gpus=(2,), from_s=60.0, xid=79, state=GpuState.LOST, state_text="GPU is lost: it has fallen off the bus"
            ),
        ),
        engine_effects=(EngineEffect(engine="llama-70b", from_s=60.0, spinning=True),),
        length_s=150.0,
    ),
    Scenario(
        "ecc-uncorrectable",
        "A double-bit error (Xid 48) on GPU 0: its counter rises, and a row waits to be remapped.",
        (
            must("gpu 0", "hardware_fault", "CW", 30.0, within_s=5.0, actions="reset_gpu *_if_* count_spare_rows"),
            must("llama-8b", "hardware_fault", "WC", 30.0),
            may("llama-8b", "healthy", "O", to_s=30.0),
            SPARE,
        ),
        (CHAT,),
        gpu_effects=(
            GpuEffect(gpus=(0,), from_s=30.0, xid=48, figures={"ecc_uncorrected": 1.0, "remap_pending": 1.0}),
        ),
    ),
    Scenario(
        "ecc-corrected",
        "Corrected ECC errors only: memory does what it should, and nothing is to be done.",
        (must("llama-8b", "healthy", "O", within_s=180.0), SPARE),
        (CHAT,),
        gpu_effects=(GpuEffect(gpus=(0,), from_s=30.0, figures={"ecc_corrected": 14.0}),),
    ),
    Scenario(
        "xid-application",
        "An illegal access in somebody's kernel (Xid 13): the program is at fault, the GPU is not to be drained.",
        (
            must("gpu 0", "hardware_fault", "N", 20.0, within_s=5.0, actions="read_program_log"),
            may("llama-8b", "healthy", "O"),
            SPARE,
        ),
        (CHAT,),
        gpu_effects=(GpuEffect(gpus=(0,), from_s=20.0, xid=13),),
    ),
    Scenario(
        "reset-required",
        "The driver advises a reset of GPU 1: nothing new starts there until it was drained and reset.",
        (must("gpu 1", "hardware_fault", "CW", within_s=5.0, actions="reset_*"), may("llama-8b", "healthy", "O")),
        (CHAT,),
        gpu_effects=(
            GpuEffect(gpus=(1,), state=GpuState.RESET_REQUIRED, state_text="the driver advises a reset of this GPU"),
        ),
    ),
    Scenario(
        "thermal",
        "After a minute the GPU slows itself down for heat, for three minutes: half the clock, half the prefill.",
        (
            must(
                "gpu 0", "throttled/thermal", "C", 60.0, 240.0, within_s=75.0, actions="check_cooling lower_power_limit"
            ),
            may("gpu 0", "throttled/thermal", "W", 60.0, 120.0),
            must("llama-8b", "throttled", "WC", 60.0, 240.0),
            may("llama-8b", "compute_bound", "WNC", 60.0, 270.0),
            may("llama-8b", "queue_limit", "W", 60.0, 270.0),
            may("llama-8b", "healthy", "O", to_s=60.0),
            may("llama-8b", "healthy", "O", 240.0),
            SPARE,
        ),
        (engine(CHAT, steady(2.9, 6000, 4)),),
        gpu_effects=(
            GpuEffect(
                gpus=(0,),
                from_s=60.0,
                to_s=240.0,
                throttle=("hw_slowdown", "hw_thermal_slowdown"),
                clock_share=0.5,
                figures={"temperature_c": 91.0, "memory_temperature_c": 97.0},
            ),
        ),
        length_s=330.0,
    ),
    Scenario(
        "power-brake",
        "The server's power supply holds GPU 0 down (HW power brake): a quarter of the clock.",
        (
            must("gpu 0", "throttled/power_brake", "CW", 10.0, actions="check_power_supply"),
            must("llama-8b", "throttled", "WC", 10.0),
            may("llama-8b", "compute_bound", "WN", 10.0),
            may("llama-8b", "healthy", "O", to_s=10.0),
            SPARE,
        ),
        (engine(CHAT, steady(3.0, 1800, 240)),),
        gpu_effects=(
            GpuEffect(gpus=(0,), from_s=10.0, throttle=("hw_slowdown", "hw_power_brake_slowdown"), clock_share=0.28),
        ),
    ),
    Scenario(
        "power-cap",
        "A GPU at the power limit it was sold with, and the tensor cores full: what the limit is for, no throttling.",
        (must("llama-8b", "compute_bound", "WC", actions=COMPUTE), SPARE),
        (engine(CHAT, steady(3.6, 6000, 4), chip=H100_PCIE),),
        chip=H100_PCIE,
    ),
    Scenario(
        "low-power-limit",
        "Somebody left GPU 0 at 300 W of its 700: its clock sinks under the prompts, and users wait.",
        (
            must("gpu 0", "throttled/power_cap", "WC", actions="restore_power_limit"),
            may("llama-8b", "throttled", "WC"),
            may("llama-8b", "compute_bound", "WC"),
            SPARE,
        ),
        (engine(CHAT, steady(4.4, 6000, 4)),),
        gpu_effects=(GpuEffect(gpus=(0,), power_limit_w=300.0),),
    ),
    Scenario(
        "one-slow-gpu",
        "One of four tensor-parallel GPUs is slowed by heat: the other three wait for it in every all-reduce.",
        (
            must("gpu 3", "throttled", "WC", 10.0, actions="check_cooling lower_power_limit"),
            may("llama-70b", "straggler", "WN", 10.0),
            may("llama-70b", "throttled", "WC", 10.0),
            may("llama-70b", "compute_bound", "WN", 10.0),
            may("llama-70b", "healthy", "O", to_s=10.0),
        ),
        (engine(LARGE, steady(2.2, 3000, 100)),),
        gpus=4,
        gpu_effects=(
            GpuEffect(
                gpus=(3,),
                from_s=10.0,
                throttle=("sw_thermal_slowdown",),
                clock_share=0.4,
                figures={"temperature_c": 88.0},
            ),
        ),
    ),
    Scenario(
        "locked-clock",
        "Somebody locked the clock of one of four GPUs: the other three wait for it, and no driver complains.",
        (
            must("gpu 1", "throttled/locked_clock", "WC", within_s=90.0, actions="reset_locked_clocks"),
            may("llama-70b", "throttled", "WC"),
            may("llama-70b", "straggler", "WN"),
        ),
        (engine(LARGE, steady(2.4, 3000, 100)),),
        gpus=4,
        gpu_effects=(GpuEffect(gpus=(1,), clock_share=0.52),),
    ),
    Scenario(
        "notebook-holds-memory",
        "A notebook holds 92 % of GPU 1 and has computed nothing for minutes: nobody else can use it.",
        (must("gpu 1", "idle_vram_held", "NW", actions="end_program ask_owner"), may("llama-8b", "healthy", "O")),
        (CHAT,),
        leftovers=(Leftover(1, 73.3 * GIB, NOTEBOOK),),
        idle_s=20.0,
    ),
    Scenario(
        "notebook-at-work",
        "A notebook holds three quarters of GPU 1 and computes: memory that is used for something.",
        (must("gpu 1", "healthy", "O", within_s=200.0), may("llama-8b", "healthy", "O")),
        (CHAT,),
        leftovers=(Leftover(1, 59.0 * GIB, NOTEBOOK, Work(0.8, 0.7, 0.2, 2e14, 0.3, 0.0, 2e8)),),
    ),
    Scenario(
        "bare-context",
        "A program has opened GPU 1 and holds next to nothing: the GPU is free, its memory too.",
        (must("gpu 1", "idle", "N", within_s=210.0), may("llama-8b", "healthy", "O")),
        (CHAT,),
        leftovers=(Leftover(1, 0.6 * GIB, NOTEBOOK),),
        idle_s=20.0,
    ),
    Scenario(
        "notebook-nearly-full",
        "A program without a pool of its own works with 95 % of the memory: the next allocation may fail.",
        (must("gpu 1", "memory_full", "WN"), may("llama-8b", "healthy", "O")),
        (CHAT,),
        leftovers=(Leftover(1, 75.7 * GIB, "sim:python finetune.py", Work(0.9, 0.7, 0.25, 2.5e14, 0.35, 0.0, 2e8)),),
    ),
    Scenario(
        "vllm-reserves-memory",
        "vLLM holds 90 % of the memory for hardly a request: it reserved a pool, which says nothing of use.",
        (must("llama-8b", "low_efficiency", "N", within_s=200.0), may("llama-8b", "healthy", "O", to_s=120.0)),
        (engine(CHAT, steady(0.3, 600, 250)),),
        gpus=1,
        length_s=260.0,
    ),
    Scenario(
        "healthy-chat",
        "A chat model with enough to do: nothing holds it back, and the headroom says how much more fits.",
        (must("llama-8b", "healthy", "O", within_s=180.0), SPARE),
        (CHAT,),
    ),
    Scenario(
        "kv-cache-full",
        "Long conversations fill the KV pool: requests wait and are preempted while slots are free.",
        (must("llama-8b", "kv_cache_full", "CW", actions=KV), SPARE),
        (engine(CHAT, steady(5.0, 3000, 700), gpu_memory_utilization=0.45, most_waiting=60),),
    ),
    Scenario(
        "giant-prompt",
        "Every 45 s a prompt as large as the KV pool: it waits for an empty pool, all others for it.",
        (
            must("llama-8b", "kv_cache_full", "CW", 20.0, within_s=90.0, actions=KV),
            may("llama-8b", "compute_bound", "W", 20.0),
            may("llama-8b", "memory_bandwidth_bound", "N"),
            may("llama-8b", "healthy", "O", to_s=20.0),
            SPARE,
        ),
        (
            engine(
                CHAT,
                steady(3.0, 1500, 300, singles=tuple((20.0 + 45.0 * at, 118_000, 800) for at in range(8))),
                gpu_memory_utilization=0.46,
                max_model_len=131072,
            ),
        ),
        length_s=330.0,
    ),
    Scenario(
        "queue-at-the-limit",
        "max_num_seqs 12 keeps requests waiting before a GPU with room: the pool is nearly empty.",
        (must("llama-8b", "queue_limit", "CW", actions="raise_slots more_instances*"), SPARE),
        (engine(CHAT, steady(8.0, 1800, 240), max_num_seqs=12, most_waiting=60),),
    ),
    Scenario(
        "spare-gpu",
        "One engine is at the end of its arithmetic, and a second GPU has nothing to do: start another there.",
        (must("llama-8b", "compute_bound", "CW", actions=COMPUTE), SPARE),
        (engine(CHAT, steady(7.9, 5000, 16)),),
    ),
    Scenario(
        "burst",
        "A few seconds of rush a minute queue at max_num_seqs: users wait for seconds each time.",
        (
            must(
                "llama-8b",
                "queue_limit",
                "W",
                20.0,
                within_s=130.0,
                actions="smooth_bursts raise_slots more_instances*",
            ),
            may("llama-8b", "healthy", "O", to_s=20.0),
            SPARE,
        ),
        (engine(CHAT, steady(4.2, 1800, 240, Surge(20.0, 26.0, 3.5, 60.0)), max_num_seqs=24),),
    ),
    Scenario(
        "prefill-bound",
        "Classification over long texts: nearly all work is prefill, and the tensor cores are the limit.",
        (must("llama-8b", "compute_bound", "WC", actions=COMPUTE), SPARE),
        (engine(CHAT, PREFILL),),
    ),
    Scenario(
        "long-prefill",
        "One prompt of 330,000 tokens: no token for a minute, but its GPU works. That is no hang.",
        (
            must("llama-8b", "compute_bound", "WC", actions=f"wait_for_prefill {COMPUTE}"),
            may("llama-8b", "compute_bound", "N"),
            may("llama-8b", "kv_cache_full", "W", actions=KV),
            SPARE,
        ),
        (engine(CHAT, steady(0.03, 330_000, 200), most_waiting=1, max_model_len=700_000, gpu_memory_utilization=0.92),),
    ),
    Scenario(
        "long-prefill-replica",
        "One of three replicas reads a prompt of 330,000 tokens for a minute, the others go on: no hang, no straggler.",
        (
            must(
                "llama-8b-a", "compute_bound", "WC", 30.0, 150.0, within_s=90.0, actions=f"wait_for_prefill {COMPUTE}"
            ),
            may("llama-8b-?", "healthy", "O", to_s=30.0),
            may("llama-8b-a", "compute_bound", "N", 30.0, 90.0),
            may("llama-8b-a", "low_efficiency", "N"),
            may("llama-8b-[bc]", "healthy", "O"),
            may("llama-8b-?", "memory_bandwidth_bound", "N"),
            may("llama-8b-a", "idle_vram_held", "N", 150.0),
            may("llama-8b-a", "healthy", "ON", 150.0),
            may("llama-8b-[bc]", "low_efficiency", "N"),
        ),
        replicas(
            steady(2.0, 900, 200, Surge(30.0, math.inf, 0.0), singles=((30.0, 330_000, 200), (100.0, 330_000, 200))),
            *(steady(2.0, 900, 200, Surge(30.0, math.inf, 1.5)),) * 2,
            max_model_len=700_000,
            gpu_memory_utilization=0.92,
        ),
        gpus=3,
        length_s=300.0,
    ),
    Scenario(
        "decode-bound",
        "Long answers at a moderate batch: every step reads all weights, and HBM is the limit.",
        (must("llama-8b", "memory_bandwidth_bound", "NW", actions=DECODE), SPARE),
        (engine(CHAT, steady(4.0, 200, 1000), speed=FAST),),
    ),
    Scenario(
        "decode-bound-long-context",
        "The KV pool is two thirds full and nobody waits: HBM is the limit, not the pool.",
        (must("llama-8b", "memory_bandwidth_bound", "NW", actions=DECODE), SPARE),
        (engine(CHAT, steady(1.0, 7000, 1500), speed=FAST),),
    ),
    Scenario(
        "tp-over-pcie",
        "Tensor parallelism over PCIe: all four GPUs are busy, and mostly wait for each other's all-reduces.",
        (
            must(
                "llama-70b",
                "interconnect_bound",
                "WC",
                actions="halve_tp pipeline_instead nvlink_gpus data_parallel smaller_tp",
            ),
        ),
        (engine(LARGE, steady(2.2, 1200, 400), chip=H100_PCIE, speed=Speed(0.52, 0.78, 14e-3, 30e-6, 0.2e-3)),),
        chip=H100_PCIE,
        gpus=4,
    ),
    Scenario(
        "tp-over-nvlink",
        "The same model and traffic over NVLink: the all-reduces are short, and HBM is what it reads from.",
        (must("llama-70b", "memory_bandwidth_bound", "NW", actions=DECODE),),
        (engine(LARGE, steady(5.0, 300, 700), speed=Speed(0.52, 0.92, 0.9e-3, 5e-6)),),
        gpus=4,
    ),
    Scenario(
        "engine-hang",
        "Requests run and no token comes: the kernels wait for each other for good. Busy 100 %, no DRAM traffic.",
        (must("llama-70b", "hung", "C", 5.0, actions=RESTART), may("llama-70b", "healthy", "O", to_s=5.0)),
        (LARGE,),
        gpus=4,
        engine_effects=(EngineEffect(engine="llama-70b", from_s=5.0, spinning=True),),
    ),
    Scenario(
        "engine-hang-idle",
        "Requests run and no token comes, and the GPU does nothing: the engine's own process hangs.",
        (must("llama-8b", "hung", "C", 5.0, actions=RESTART), may("llama-8b", "healthy", "O", to_s=5.0), SPARE),
        (engine(CHAT, steady(5.0, 600, 250)),),
        engine_effects=(EngineEffect(engine="llama-8b", from_s=5.0),),
    ),
    Scenario(
        "engine-mute",
        "The API server takes connections and answers none, and the workers hold their GPU: nobody is served.",
        (
            must("llama-8b", "unresponsive", "C", 5.0, actions=RESTART),
            may("llama-8b", "healthy", "O", to_s=5.0),
            SPARE,
        ),
        (CHAT,),
        engine_effects=(EngineEffect(engine="llama-8b", from_s=5.0, mute=True),),
    ),
    Scenario(
        "engine-restart",
        "After a minute the engine's process ends, and another answers on the same port half a minute later.",
        (
            must("llama-8b", "healthy", "ON", 90.0, within_s=180.0),
            may("llama-8b", "healthy", "O", to_s=60.0),
            may("gpu ?", "idle*", "N"),
        ),
        (CHAT,),
        engine_effects=(EngineEffect(engine="llama-8b", from_s=60.0, to_s=90.0, down=True),),
        length_s=300.0,
    ),
    Scenario(
        "restart-loop",
        "One of three replicas dies half a minute after each start; its pod is started again every time.",
        (
            must("llama-8b-b", "unresponsive", "CW", 20.0, within_s=250.0),
            may("llama-8b-?", "healthy", "O", to_s=20.0),
            may("llama-8b-b", "healthy", "ON", to_s=260.0),
            may("llama-8b-[ac]", "healthy", "O"),
            may("llama-8b-?", "memory_bandwidth_bound", "N"),
            may("gpu 1", "unknown", "N", 20.0),
            may("llama-8b-[ac]", "low_efficiency", "N"),
            may("gpu 1", "idle", "N", 20.0),
        ),
        replicas(*(steady(3.0, 1800, 240),) * 3),
        gpus=3,
        engine_effects=tuple(
            EngineEffect(engine="llama-8b-b", from_s=from_s, to_s=to_s, down=not loading, loading=loading)
            for at in range(5)
            for loading, from_s, to_s in (
                (False, 20.0 + 90.0 * at, 25.0 + 90.0 * at),
                (True, 25.0 + 90.0 * at, 80.0 + 90.0 * at),
            )
        ),
        length_s=400.0,
    ),
    Scenario(
        "slow-weights",
        "A new process reads 16 GB of weights over a network file system at 1 Gbit/s: minutes until it answers.",
        (
            may("llama-8b", "healthy", "O", to_s=20.0),
            may("host", "host_network_saturated", "N", 30.0, 200.0),
            must("llama-8b", "healthy", "ON", 230.0, within_s=200.0),
            may("gpu ?", "idle*", "N"),
            may("gpu 0", "unknown", "N", 20.0, 230.0),
            may("llama-8b", "memory_bandwidth_bound", "N"),
        ),
        (CHAT,),
        engine_effects=(
            EngineEffect(engine="llama-8b", from_s=20.0, to_s=40.0, down=True),
            EngineEffect(engine="llama-8b", from_s=40.0, to_s=230.0, loading=True),
        ),
        host_effects=(
            # The process that reads waits in the kernel nearly all of the time: one core of 64.
            host(50.0, 190.0, network_rx_bytes_per_s=1.16e8, iowait_ratio=0.015, io_pressure_ratio=0.88),
        ),
        length_s=420.0,
    ),
    Scenario(
        "cold-prefix-cache",
        "A restart empties a prefix cache that saved four fifths of the prompts: for minutes prefill is the limit.",
        (
            must("llama-8b", "compute_bound", "WC", 90.0, 170.0, actions=COMPUTE),
            may("llama-8b", "healthy", "O", to_s=60.0),
            must("llama-8b", "healthy", "ON", 200.0, within_s=150.0),
            may("llama-8b", "compute_bound", "WNC", 170.0, 300.0),
            may("llama-8b", "memory_bandwidth_bound", "N"),
            may("gpu ?", "idle*", "N"),
        ),
        (engine(CHAT, steady(10.5, 4500, 20, returning=1.0, hit_share=0.82, relearn_s=120.0)),),
        engine_effects=(EngineEffect(engine="llama-8b", from_s=60.0, to_s=90.0, down=True),),
        warm_s=400.0,
        length_s=420.0,
    ),
    Scenario(
        "engine-asleep",
        "After a minute of nothing somebody puts the engine to sleep: its memory is free, and nothing is wrong.",
        (
            must("llama-8b", "asleep", "NO", 60.0),
            may("llama-8b", "healthy", "O", to_s=60.0),
            may("gpu ?", "idle*", "N", 60.0),
        ),
        (engine(CHAT, steady(6.0, 1800, 240, Surge(40.0, math.inf, 0.0))),),
        engine_effects=(EngineEffect(engine="llama-8b", from_s=60.0, asleep=True),),
        length_s=300.0,
    ),
    Scenario(
        "quiet-night",
        "Nobody asks anything: no token either, but nothing runs. The GPU is free to use, not hung.",
        (must("llama-8b", "idle_vram_held", "N", within_s=100.0), SPARE),
        (engine(CHAT, steady(0.0, 600, 250)),),
        idle_s=20.0,
    ),
    Scenario(
        "replicas-half-asleep",
        "Three replicas share the traffic that one of them could take: what consolidation would save.",
        (
            must("llama-8b-?", "low_efficiency", "N", within_s=200.0, actions="stop_instances see_replica"),
            may("llama-8b-?", "healthy", "O", to_s=120.0),
        ),
        replicas(*(steady(0.5, 400, 150),) * 3),
        gpus=3,
        length_s=260.0,
    ),
    Scenario(
        "cpu-bound-server",
        "The server's one Python process is at its limit: the GPU falls idle every few seconds, requests wait.",
        (
            must(
                "llama-8b",
                "host_cpu_saturated",
                "WC",
                within_s=90.0,
                actions="more_front_ends serving_c* profile_process",
            ),
            may("host", "host_cpu_saturated", "N"),
            SPARE,
        ),
        (engine(CHAT, steady(7.0, 600, 250), held=Held(6.0, 3.0)),),
        host_effects=(host(cpu_ratio=0.09, busiest_core_ratio=1.0, cpu_pressure_ratio=0.12),),
    ),
    Scenario(
        "batch-client",
        "A client sends in bursts and pauses between: the GPU falls idle in the same rhythm with nothing to do.",
        (
            must("llama-8b", "low_efficiency", "N", within_s=200.0, actions="send_earlier share_gpu more_requests"),
            may("llama-8b", "healthy", "O", to_s=120.0),
            SPARE,
        ),
        (engine(CHAT, steady(3.0, 600, 60, Surge(0.0, 4.0, 5.0, 10.0), Surge(4.0, 10.0, 0.0, 10.0))),),
    ),
    Scenario(
        "client-stops-reading",
        "A batch client stops to read its answers: the engine ends them all the same, and then nobody asks any more.",
        (
            may("llama-8b", "healthy", "O"),
            may("llama-8b", "low_efficiency", "N", 60.0),
            may("llama-8b", "idle_vram_held", "N", 60.0),
            SPARE,
        ),
        # vLLM's engine goes on whoever reads; a client with so many requests open sends no new ones.
        (engine(CHAT, steady(6.0, 1800, 240, Surge(60.0, 200.0, 0.0), Surge(200.0, 206.0, 3.0))),),
        length_s=300.0,
    ),
    Scenario(
        "shared-with-training",
        "A training job runs on the engine's GPU: kernels take turns, and the GPU's figures are those of both.",
        (
            may("llama-8b", "healthy", "ON"),
            may("llama-8b", "unknown", "N"),
            may("gpu 0", "healthy", "O"),
            SPARE,
        ),
        (engine(CHAT, steady(4.0, 1800, 240), gpu_memory_utilization=0.45),),
        leftovers=(
            Leftover(
                0,
                41.0 * GIB,
                "sim:python train_lora.py --base Llama-3.1-8B",
                Work(0.97, 0.9, 0.35, 3.5e14, 0.3, 0.0, 2e8),
            ),
        ),
    ),
    Scenario(
        "no-gpm",
        "A GPU without activity counters at work for nobody known: busy, and nothing tells what limits it.",
        (must("gpu 0", "unknown", "N", within_s=120.0),),
        leftovers=(Leftover(0, 40 * GIB, "sim:python simulate.py", Work(1.0, 0.9, 0.2, 0.0, 0.3)),),
        gpus=1,
        unmeasured=WITHOUT_GPM,
    ),
    Scenario(
        "metrics-without-kv",
        "A page without KV usage and queue, and GPUs without activity counters: users wait, why is not told.",
        (must("llama-8b", "unknown", "WC"), SPARE),
        (
            engine(
                CHAT,
                steady(5.0, 3000, 700),
                gpu_memory_utilization=0.45,
                most_waiting=60,
                hidden=("kv_cache_usage_perc", "num_requests_waiting", "request_queue_time", "num_preemptions"),
            ),
        ),
        unmeasured=WITHOUT_GPM,
    ),
    Scenario(
        "training",
        "A training run whose loader keeps up: MFU 44 %, and the GPUs never wait.",
        (must("pretrain-8b", "healthy", "O", within_s=180.0), may("pretrain-8b", "compute_bound", "N")),
        runs=(PRETRAIN,),
        gpus=4,
        host_effects=(host(cpu_ratio=0.3, busiest_core_ratio=0.8, disk_read_bytes_per_s=4e8, disk_busy_ratio=0.3),),
    ),
    Scenario(
        "data-loader",
        "The loader reads from a slow disk: every few seconds four GPUs wait for the next shard.",
        (
            must("pretrain-8b", "host_disk_saturated", "W", within_s=100.0, actions="training_disk"),
            may("host", "host_disk_saturated", "NW"),
        ),
        runs=(SLOW_LOADER,),
        gpus=4,
        host_effects=(
            host(
                cpu_ratio=0.12,
                busiest_core_ratio=0.7,
                iowait_ratio=0.22,
                io_pressure_ratio=0.71,
                disk_read_bytes_per_s=4.9e8,
                disk_busy_ratio=0.99,
            ),
        ),
    ),
    Scenario(
        "data-loader-cpu",
        "The loader decodes images on every core: the GPUs wait for the CPU, and the disk has time.",
        (
            must("pretrain-8b", "host_cpu_saturated", "W", within_s=100.0, actions="training_cpu"),
            may("host", "host_cpu_saturated", "NW"),
        ),
        runs=(SLOW_LOADER,),
        gpus=4,
        host_effects=(CORES,),
    ),
    Scenario(
        "data-loader-network",
        "The data comes over the network at its full rate: the GPUs wait, CPU and disk have time.",
        (must("pretrain-8b", "host_network_saturated", "W", within_s=100.0, actions="training_network"),),
        runs=(SLOW_LOADER,),
        gpus=4,
        host_effects=(host(cpu_ratio=0.1, network_rx_bytes_per_s=1.17e9),),
    ),
    Scenario(
        "training-waits",
        "The same gaps, with cores, disk and network of this host at rest: nothing tells what the run waits for.",
        (must("pretrain-8b", "unknown", "NW", within_s=100.0),),
        runs=(SLOW_LOADER,),
        gpus=4,
    ),
    Scenario(
        "training-low-mfu",
        "Micro-batches of one: the GPUs are busy all the time and reach an eighth of what they could.",
        (
            must("pretrain-8b", "low_efficiency", "N", within_s=200.0, actions="larger_micro_batch"),
            may("pretrain-8b", "healthy", "O", to_s=120.0),
        ),
        runs=(msgspec.structs.replace(PRETRAIN, flops_share=0.12),),
        gpus=4,
        length_s=260.0,
    ),
    Scenario(
        "host-memory-full",
        "The host's own memory runs out beside a run that goes well: the kernel may soon kill it.",
        (
            must("host", "memory_full", "WC"),
            may("pretrain-8b", "healthy", "O"),
            may("pretrain-8b", "compute_bound", "N"),
        ),
        runs=(PRETRAIN,),
        gpus=4,
        host_effects=(host(memory_used_bytes=1004 * GIB, memory_pressure_ratio=0.25),),
    ),
    Scenario(
        "busy-host",
        "Somebody compiles on every core beside a run whose loader keeps up: the GPUs do not notice.",
        (
            must("pretrain-8b", "healthy", "O", within_s=180.0),
            may("pretrain-8b", "compute_bound", "N"),
            may("host", "host_cpu_saturated", "N"),
        ),
        runs=(PRETRAIN,),
        gpus=4,
        host_effects=(CORES,),
    ),
)


def scenario(name: str) -> Scenario:
    """The scenario of a name. Raises LookupError where there is none."""
    for each in SCENARIOS:
        if each.name == name:
            return each
    raise LookupError(name)


def near(name: str) -> list[str]:
    """Names like this one, the most alike first; where none is, those that have it in them."""
    names, name = [each.name for each in SCENARIOS], name.lower()
    return difflib.get_close_matches(name, names, n=3) or [each for each in names if name in each][:3]
