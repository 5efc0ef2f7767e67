"""Every threshold of triage, with its reason: the table `[triage]` of the config."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Positive = Annotated[float, msgspec.Meta(gt=0.0)]
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From where on triage speaks up. Shares are 0..1."""

    hold_s: _Positive = 30.0
    """A verdict must hold this long to come, to change or to go: 3 windows of 10 s, so that a burst is no verdict."""
    queue_waiting: _Positive = 1.0
    """Mean requests waiting in 10 s that make a queue: now and then one waits for a step."""
    queue_ttft_ratio: _Share = 0.5
    """Share of the time to first token that is spent in the queue, from which on the queue decides it."""
    kv_full_ratio: _Share = 0.9
    """KV cache use that counts as full: admission keeps blocks for the next tokens of those that run."""
    kv_full_band_ratio: _Share = 0.05
    """How far it may fall below that while it is shown as full: it breathes as requests end and others are let in."""
    kv_preemptions_per_s: _Positive = 0.05
    """Requests thrown out of a full KV cache, one in 20 s: each computes its prompt anew."""
    late_ttft_s: _Positive = 2.0
    """TTFT p95 beyond which users wait, where no goal is set: MLPerf Inference's limit for a server of Llama 2 70B."""
    late_itl_s: _Positive = 0.2
    """ITL p95 beyond which answers are slower than people read, where no goal is set: from the same."""
    late_queue_s: _Positive = 2.0
    """Mean time in the queue beyond which users wait: the whole of the TTFT above."""
    bandwidth_dram_ratio: _Share = 0.75
    """Measured DRAM activity at its limit: tuned kernels reach 80% to 90%."""
    bandwidth_mbu_ratio: _Share = 0.6
    """MBU at its limit: tuned stacks reach 60% to 85% at decode, what is left are gaps between kernels."""
    compute_tensor_ratio: _Share = 0.6
    """Tensor cores active: dense matrix products of full size keep the pipe at 70% to 90%."""
    compute_mfu_ratio: _Share = 0.5
    """MFU at its limit: prefill reaches 50% to 70% of the dense peak."""
    compute_queued_mfu_ratio: _Share = 0.3
    """The same while requests wait that no limit of the scheduler holds back: smaller models and MoE reach less."""
    communication_busy_ratio: _Share = 0.8
    """GPUs of one instance at work, from which on it is worth asking what they wait for."""
    communication_tensor_ratio: _Share = 0.25
    """Tensor activity (or MFU) below which busy GPUs do not compute."""
    communication_dram_ratio: _Share = 0.4
    """DRAM activity (or MBU) below which busy GPUs do not read memory either."""
    communication_link_ratio: _Share = 0.25
    """Share of the NVLink or PCIe peak in use: an all-reduce moves its bytes in bursts between the layers' work."""
    communication_spread_ratio: _Share = 0.2
    """How far the GPUs of one instance may lie apart, as a share of the busiest: they do the same work within 5%."""
    stalled_s: _Positive = 30.0
    """Seconds without a token while requests run, from which on it is a warning; 3 x the time to first token where that
    is longer."""
    hung_s: _Positive = 150.0
    """Seconds without a token from which on an engine counts as hung: kernel compiles, weight updates and KV transfers
    in the middle of serving take up to two minutes. Before that it does where nothing of it has moved for a minute."""
    stalled_busy_ratio: _Share = 0.05
    """Busy share up to which a GPU is idle."""
    stalled_tensor_ratio: _Share = 0.03
    """Tensor activity up to which a GPU does no arithmetic: a long prefill keeps it at 60% and more."""
    stalled_dram_ratio: _Share = 0.03
    """DRAM activity up to which a busy GPU only waits: a step of any model reads its weights."""
    compile_s: _Positive = 900.0
    """Seconds in which an engine that never gave a token may compile: kernels and graphs of a large model take long."""
    stalled_training_s: _Positive = 600.0
    """Seconds without a step of a training run: validation and a checkpoint take minutes."""
    silent_s: _Positive = 30.0
    """Seconds without an answer, after which an engine whose processes still hold their GPU counts as unresponsive."""
    restart_s: _Positive = 600.0
    """An engine that began anew is marked so for 10 minutes: its caches are cold, and whoever looks wants to know."""
    restarts: _Positive = 3.0
    """So many new processes of an engine within `restart_s` are a loop: a deployment is one, a mended one two."""
    under_used_s: _Positive = 120.0
    """Seconds over which use is judged: a quiet minute is no waste. At most 180."""
    under_used_slots_ratio: _Share = 0.25
    """Share of the requests that fit, below which an engine runs few."""
    under_used_mfu_ratio: _Share = 0.2
    """MFU (or tensor activity) below which arithmetic lies idle."""
    under_used_mbu_ratio: _Share = 0.35
    """MBU (or DRAM activity) below which memory lies idle."""
    under_used_training_mfu_ratio: _Share = 0.2
    """MFU of a training run that leaves speed on the table: tuned runs of dense models reach 35% to 55%."""
    idle_s: _Positive = 300.0
    """Seconds without a request, after which an engine counts as idle."""
    planning_ratio: _Share = 0.8
    """Share of its slots that an instance is planned with, when traffic is put on fewer."""
    xid_s: _Positive = 3600.0
    """A hardware Xid is reported for an hour: the driver says no more of it, and the one on duty comes back to it."""
    xid_application_s: _Positive = 300.0
    """An Xid that a program caused is reported for 5 minutes: the GPU is fine, its program has ended or goes on."""
    throttled_ratio: _Share = 0.1
    """A clock slowdown is reported once it took this much of the last minute: a spike of heat of 2 s costs nothing."""
    clock_low_ratio: _Share = 0.5
    """SM clock under load, of the highest, below which it is reported: at its power limit an H100 runs at 0.7."""
    clock_locked_ratio: _Share = 0.8
    """SM clock under load, of the highest, below which one that stands still at no power cap counts as locked: default
    application clocks of data-centre cards are 0.85 and more of it."""
    loaded_ratio: _Share = 0.8
    """Busy share from which on a GPU's clock is held against the highest: an idle one clocks down by itself."""
    gpu_idle_s: _Positive = 600.0
    """A GPU that holds memory and does nothing for 10 minutes is reported: a pause to think is shorter."""
    held_ratio: _Share = 0.05
    """Share of the VRAM that a process must hold to be told as a left-over: a bare CUDA context takes 1% or less."""
    vram_note_ratio: _Share = 0.8
    """VRAM in use by programs that reserve no pool, from which on it is noted."""
    vram_warn_ratio: _Share = 0.9
    """The same, from which on a longer batch may end in out of memory: fragments take 5% to 10%."""
    busy_low_ratio: _Share = 0.2
    """Mean busy share of 3 minutes below which a GPU without an engine counts as under-used."""
    starved_busy_ratio: _Share = 0.6
    """Mean busy share with requests pending below which a GPU waits for something, also where it shows no rhythm."""
    starved_upper_ratio: _Share = 0.3
    """Busy share that a GPU must reach between its drops: below it there is no work to be starved of."""
    starved_regular_ratio: _Share = 0.35
    """Most that the gaps between drops may vary (deviation / mean): 1 s of sampling is 0.25 of a period of 4 s."""
    starved_drops: _Positive = 4.0
    """Drops in 2 minutes that make a rhythm."""
    cpu_high_ratio: _Share = 0.85
    """All cores together: above it threads wait for each other."""
    core_high_ratio: _Share = 0.9
    """The busiest core, mean of a minute: one thread at its limit. A thread that moves between cores reads less."""
    cpu_pressure_ratio: _Share = 0.3
    """Share of time in which tasks wait for a core, from which on the CPU holds work back."""
    iowait_high_ratio: _Share = 0.1
    """Share of all cores' time in wait for a disk: one data loader of 16 cores that only waits is 6%."""
    io_pressure_ratio: _Share = 0.2
    """Share of time in which tasks wait for a disk."""
    disk_busy_ratio: _Share = 0.8
    """Share of time with a request in flight: a disk is near its limit; an NVMe may take more beside them."""
    network_bytes_per_s: _Positive = 1e8
    """Bytes/s received above which a data set over the network may be the limit: 1 Gbit/s at 80%."""
    host_memory_ratio: _Share = 0.95
    """Host memory in use (not counting caches) above which the kernel may soon kill a process."""
    host_memory_tight_ratio: _Share = 0.8
    """Host memory in use below which tasks that wait for memory are those of a cgroup with a limit of its own."""
    memory_pressure_ratio: _Share = 0.1
    """Share of time in which tasks wait for memory: the host swaps, or writes out caches to find pages."""
