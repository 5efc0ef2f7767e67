# ruff: noqa: E501 - a table of sentences
"""Tables of the sentences of triage, by code: causes of verdicts, figures, actions, missing signals, events.

They are templates (`triage.templates`), which `triage.render` fills.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings.verdict import Team
from gpumon.triage.finding import Quantity, Remedy

# Parts that several sentences share.
SPARE: Final = (
    "[, while {replica} has room ([KV cache {spare_kv:percent}, ][{spare_running:requests} running, ]none waiting)"
    "|, while {roomy:requests} of its {replicas:requests} other replicas have room "
    "([KV cache {spare_kv:percent}, ][{spare_running:requests} running, ]none waiting)]"
)
SAVES: Final = "[ (saves {saves_gpu_hours:gpus}, {saves_per_hour:money})]"
SHARED: Final = "[, shared with {shared}]"
CLOCK: Final = "{clock_hz:ghz} of {clock_max_hz:ghz} GHz"
FAULTS: Final = {
    "lost": "is lost",
    "mute": "does not answer the driver",
    "reset_required": "needs a reset",
    "ecc_rising": "has uncorrectable memory errors: its data may be wrong",
    "ecc": "has had uncorrectable memory errors",
    "remap_failed": "has a memory row that could not be remapped",
    "remap_pending": "has a memory row that waits to be remapped",
    "xid": "has had a hardware error",
    "xid_program": "has had an error of a program",
    "pcie_slow": "has a slow PCIe link",
    "nvlinks_down": "has NVLinks that are down",
    "link_errors": "has links with errors",
    "thermal": "is slowed down by heat",
    "thermal_driver": "is slowed down by heat",
    "power_brake": "is held down by the power brake",
    "hardware_slowdown": "is slowed down by the hardware",
    "power_cap": "is held down by a lowered power limit",
    "locked_clock": "has its clock locked",
    "application_clocks": "has its application clocks set low",
    "low_clock": "runs at a low clock",
    "clock_fell": "runs at a lower clock than before",
}
"""Faults of a GPU, behind its name."""
NOT_VISIBLE: Final = "a program that is not visible here"
"""Name of a program of whose processes nothing is seen."""
LAST_END: Final = (
    "[{cause=signal}; the last was killed by signal {number:count}|{cause=exit}; the last had exit code {number:count}"
    "|{cause=oom}; the last was killed by the kernel, out of memory]"
)
STARTS: Final = "; {times:count} [{restarts=yes}restarts|starts] in {seconds:lasting}, the newest at {newest:clock}"
"""Stands last: it is what changes with each start of a loop."""
TURNED: Final = (
    "[, when the {setting:setting} of gpu {gpu:count} went {was} -> {to}|, when {program} began on gpu {gpu:count}"
    "|, when its {setting:setting} went {was} -> {to}|, when {setting:setting} {to} was set|, when {setting:setting} {was} was removed"
    "|; nothing that gpumon sees changed then]"
)
HOST_PARTS: Final = {
    "io_pressure": "the disk (tasks wait for it {} of the time)",
    "iowait": "the disk (iowait {} of all cores)",
    "cpu": "the CPU ({} of all cores)",
    "cpu_pressure": "the CPU (tasks wait for a core {} of the time)",
    "disk_busy": "the disk ({} busy)",
    "busiest_core": "one CPU core ({} busy), if that is what feeds it",
    "network_received": "the network ({} received)",
}


_PEERS: Final = "[median of the {others:count} others|{other} has]"
OVER_GPUS: Final = "[, mean of {gpus:count} GPUs]"
WINDOW: Final = "[, mean of {window_s:lasting}]"
# Evidence and actions of several rules.
NO_TOKEN: Final = Quantity("no_token", "no token for {value:lasted}", field="decode_tokens_per_s")
NO_ANSWER: Final = Quantity("no_answer", "no answer for {value:lasted}")
NO_REQUEST: Final = Quantity("no_request", "no request [{polled=yes}at any poll ]for {value:lasted}", field="running")
IDLE_TIME: Final = Quantity("idle_time", "at most 5% busy for {value:lasted}", field="busy_ratio")
RUNNING: Final = Quantity("running", "{value:requests}[ of {limit:requests}] running" + WINDOW, field="running")
WAITING: Final = Quantity("waiting", "{value:requests} waiting" + WINDOW, field="waiting")
SLOTS: Final = Quantity("slots", "at most {value:requests} run at once")
CAPACITY: Final = Quantity("capacity", "room for {value:requests} requests")
ACCEPTANCE: Final = Quantity(
    "acceptance", "{value:percent} of the draft tokens are accepted[, {limit:percent} before]", field="acceptance_ratio"
)
TOKENS_PER_STEP: Final = Quantity(
    "tokens_per_step", "{value:factor} tokens per step and sequence", field="tokens_per_step"
)
ITL_BEFORE: Final = Quantity(
    "itl_before", "ITL {value:latency}, {limit:latency} before", field="itl_mean_s", chart="itl"
)
KV_USAGE: Final = Quantity("kv_usage", "KV cache {value:percent}", field="kv_usage_ratio")
MFU_PREFILL: Final = Quantity("mfu_prefill", "prefill MFU {value:percent}", field="mfu_prefill_ratio", chart="mfu")
MFU: Final = Quantity(
    "mfu",
    "MFU {value:percent}[ of the peak, at {clock:percent} of the highest SM clock]",
    field="mfu_ratio",
)
TOKEN_RATE: Final = Quantity("token_rate", "training, {value:amount} tok/s", field="trained_tokens_per_s")
SAMPLE_RATE: Final = Quantity("sample_rate", "training, {value:amount} samples/s", field="samples_per_s")
DRAM_AT_MOST: Final = Quantity(
    "dram_at_most",
    "memory bandwidth at most {value:percent}" + OVER_GPUS,
    field="bandwidth_bytes_per_s",
    chart="dram",
)
MBU: Final = Quantity("mbu", "MBU {value:percent}", field="mbu_ratio")
TENSOR_ACTIVE: Final = Quantity(
    "tensor_active", "tensor cores {value:percent} active" + OVER_GPUS, field="tensor_active_ratio"
)
SM_ACTIVE: Final = Quantity("sm_active", "SM {value:percent} active" + OVER_GPUS, field="sm_active_ratio")
DRAM_ACTIVE: Final = Quantity(
    "dram_active", "memory bandwidth {value:percent}" + OVER_GPUS, field="bandwidth_bytes_per_s", chart="dram"
)
BUSY: Final = Quantity("busy", "busy {value:percent}" + WINDOW + OVER_GPUS, field="busy_ratio")
BUSY_DROPS: Final = Quantity(
    "busy_drops",
    "busy drops every {period:seconds} from {upper:percent} to {lower:percent}",
    field="busy_ratio",
)
MBU_BESIDE_MEASURED: Final = Quantity(
    "mbu_beside_measured",
    (
        "MBU {value:percent}, and its GPUs measure {limit:percent} of their memory bandwidth: the "
        "model, its precision or its GPUs are set wrongly"
    ),
)
RANK_DECODE: Final = Quantity(
    "rank_decode", "decode: rank {rank} gives {value:amount} tok/s, the mean of the ranks is {limit:amount}"
)
RANK_KV: Final = Quantity("rank_kv", "KV cache: rank {rank} uses {value:percent}, rank {other} {limit:percent}")
REPLICA_GPU_DECODE: Final = Quantity(
    "replica_gpu_decode", "decode {value:amount} tok/s per GPU, " + _PEERS + " {limit:amount}"
)
REPLICA_DECODE: Final = Quantity("replica_decode", "decode {value:amount} tok/s, " + _PEERS + " {limit:amount}")
REPLICA_QUEUE: Final = Quantity("replica_queue", "{value:requests} waiting, " + _PEERS + " {limit:requests}")
REPLICA_KV: Final = Quantity("replica_kv", "KV cache {value:percent}, " + _PEERS + " {limit:percent}")
REPLICA_ITL: Final = Quantity("replica_itl", "ITL {value:latency}, " + _PEERS + " {limit:latency}")
REPLICA_TTFT: Final = Quantity("replica_ttft", "TTFT {value:latency}, " + _PEERS + " {limit:latency}")
REPLICA_REQUESTS: Final = Quantity(
    "replica_requests",
    (
        "gets {share:percent} of the requests of the others ({value:rate}/s, they {limit:rate}/s "
        "each): look at the load balancer"
    ),
)
REPLICA_RUNNING: Final = Quantity(
    "replica_running",
    (
        "gets {share:percent} of the requests of the others ({value:requests} running, they "
        "{limit:requests} each): look at the load balancer"
    ),
)
REPLICAS_DOWN: Final = Quantity("replicas_down", "{value:count} without figures")
OWN_GPUMON: Final = Quantity("own_gpumon", "gpumon on that host says more (`gpumon`, /snapshot.json)")
ASLEEP_FIGURE: Final = Quantity("asleep", "{how}")
GPU_STATE: Final = Quantity("gpu_state", "state {state}[: {what}]")
VRAM_HELD: Final = Quantity("vram_held", "its processes hold [{value:gib}|their GPU][: {pids}]")
CHECK_RETRIES: Final = Remedy(
    "check_retries", "retries with growing pauses (429 and 503 are retried at once by some clients)", team=Team.CLIENT
)
STOP_SPECULATION: Final = Remedy(
    "stop_speculation", "speculation off, or fewer draft tokens, or a draft that fits this model"
)
RESTART_WHOLE: Final = Remedy(
    "restart_whole",
    (
        "[{otherwise=yes}else ][{restart} starts it anew|[end what is left of it (kill {kill}), then "
        "]start it again[: {command:command}]]"
    ),
)
READ_LAST_LOG: Final = Remedy(
    "read_last_log",
    (
        "[{log} shows what it wrote last|tail -n 100 {file} shows what it wrote last|{ended=yes}sudo "
        "dmesg -T shows whether the kernel ended it (OOM, segfault, Xid); its own output went to "
        "the terminal or service that started it|read the last lines of its log before each end (kubectl logs --previous, docker "
        "logs, journalctl -u) and look for the OOM killer in dmesg; until that is fixed take it out "
        "of the load balancer]"
    ),
)
MORE_INSTANCES: Final = Remedy(
    "more_instances",
    (
        "[{instances:count} instances instead of {now:count}|more instances][ on free {free}][ for "
        "these {requests:requests} requests][, {turned_away:requests} of them turned away][; "
        "{fit:count} more fits on free {partly}]"
    ),
)
NEEDS_HOPPER: Final = Remedy(
    "needs_hopper", "set [dcgm] url to a dcgm-exporter, which measures what its GPUs do", team=Team.HOST
)
RAISE_SLOTS: Final = Remedy(
    "raise_slots",
    (
        "raise {flag}[ from {now:count}][ to {wanted:count}][: more do not fit into the KV cache, "
        "{usage:percent} full now]"
    ),
)
NARROW_DTYPE: Final = Remedy("narrow_dtype", "{flag}: half the bytes, and tensor cores")
QUANTISE_WEIGHTS: Final = Remedy(
    "quantise_weights",
    (
        "{flag} halves the weights"
        + SAVES
        + "[, which then fit on {fits_on:gpus}: lower [{pp_flag} to {pp_to:count} and ]{tp_flag} to "
        "{tp_to:count}]"
    ),
)
MORE_GPUS: Final = Remedy("more_gpus", "more GPUs per instance ({flag}[, now {now:count}])")
PREFIX_CACHING: Final = Remedy("prefix_caching", "{flag}")
SMALLER_CHUNKS: Final = Remedy("smaller_chunks", "[{chunked} with ]a smaller {flag}")
OWN_GPUS: Final = Remedy(
    "own_gpus",
    "[move {shared} to other GPUs|move {process} to other GPUs|give it GPUs of its own]",
    team=Team.SCHEDULER,
)
LOOK_AT_TIME: Final = Remedy(
    "look_at_time",
    (
        "look at what was deployed or set at that time, and at the kernel's log of it: sudo "
        "journalctl -k --since @{began:count}"
    ),
)
COMPARE_REPLICAS: Final = Remedy(
    "compare_replicas",
    (
        "look at the load balancer (its policy, weights, health checks, session or prefix affinity), "
        "and compare its GPU, clocks and options with those of its replicas"
    ),
    team=Team.SCHEDULER,
)
INSPECT_GPU: Final = Remedy(
    "inspect_gpu",
    (
        "look at gpu {index:count}: clocks and locks (nvidia-smi -q -d CLOCK,PERFORMANCE -i "
        "{index:count}), heat, link, other processes on it"
    ),
    team=Team.HARDWARE,
)
MORE_FRONT_ENDS: Final = Remedy("more_front_ends", "tokenise in more processes: {flag}")
PROFILE_STEPS: Final = Remedy(
    "profile_steps",
    "look at what its steps wait for: data loading, checkpoints, logging, or other ranks",
    team=Team.OWNER,
)
RESET_GPU: Final = Remedy(
    "reset_gpu",
    "drain it, then nvidia-smi --gpu-reset -i {index:count} (reboot where that is refused)",
    team=Team.HARDWARE,
)
RESET_WHEN_FREE: Final = Remedy(
    "reset_when_free", "reset it when it is free: nvidia-smi --gpu-reset -i {index:count}", team=Team.HARDWARE
)
COUNT_NVLINK_ERRORS: Final = Remedy(
    "count_nvlink_errors",
    (
        "nvidia-smi nvlink -e -i {index:count} counts the errors of each link; if they grow again: "
        "reseat or replace GPU, bridge or switch"
    ),
    team=Team.HARDWARE,
)
SHOW_NVLINKS: Final = Remedy(
    "show_nvlinks",
    ("nvidia-smi nvlink -s -i {index:count} shows each link, `dmesg | grep -E 'Xid|NVLink'` why it went down"),
    team=Team.HARDWARE,
)
REPLACE_IF_AGAIN: Final = Remedy("replace_if_again", "if more come after that, replace it", team=Team.HARDWARE)
DIAGNOSE_IF_AGAIN: Final = Remedy(
    "diagnose_if_again", "if more come after that: dcgmi diag -r 3, then replace the GPU", team=Team.HARDWARE
)
CHECK_COOLING: Final = Remedy(
    "check_cooling",
    ("check fans, airflow, inlet temperature and dust: nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i {index:count}"),
    team=Team.HARDWARE,
)
CHECK_POWER_SUPPLY: Final = Remedy(
    "check_power_supply",
    ("power supply is throttling the GPU: check the server's PSUs and their redundancy, cables and the rack's budget"),
    team=Team.HARDWARE,
)
CHECK_COOLING_AND_POWER: Final = Remedy(
    "check_cooling_and_power",
    ("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {index:count}; check cooling and power supply"),
    team=Team.HARDWARE,
)
RESET_APPLICATION_CLOCKS: Final = Remedy(
    "reset_application_clocks", "sudo nvidia-smi -rac -i {index:count} takes them back", team=Team.HOST
)
RESTORE_POWER_LIMIT: Final = Remedy(
    "restore_power_limit",
    (
        "[sudo nvidia-smi -i {index:count} -pl {watts:count} sets the default|normal for a card with "
        "a small power limit under dense work; where it was lowered: nvidia-smi -q -d POWER -i "
        "{index:count} shows the default, sudo nvidia-smi -i {index:count} -pl DEFAULT sets it]"
    ),
    team=Team.HOST,
)
RESET_LOCKED_CLOCKS: Final = Remedy(
    "reset_locked_clocks",
    ("sudo nvidia-smi -rgc -i {index:count} unlocks it; nvidia-smi -q -d CLOCK,PERFORMANCE -i {index:count} shows it"),
    team=Team.HOST,
)
ADD_ENDPOINT: Final = Remedy(
    "add_endpoint", "add the engine's URL with --endpoint[{if_it_answers=yes} if its server still answers]"
)
FIND_HOLDER: Final = Remedy(
    "find_holder",
    (
        "find who holds it: sudo fuser -v /dev/nvidia{index:count} on the host names every process, "
        "those in other containers too (lsof /dev/nvidia{index:count}; nvidia-smi "
        "--query-compute-apps=pid,used_memory,name --format=csv)"
    ),
    team=Team.HOST,
)
FIND_READER: Final = Remedy(
    "find_reader",
    ("find what reads and writes: iotop -o; put data and weights on local NVMe, in fewer and larger files"),
    team=Team.HOST,
)
LESS_HOST_MEMORY: Final = Remedy(
    "less_host_memory",
    ("fewer data loader workers, smaller --swap-space or CPU offload, no pinned buffers; ps aux --sort=-rss | head"),
    team=Team.HOST,
)
DOCTOR: Final = Remedy("doctor", "check its model, precision and GPUs: gpumon doctor")
MAP_ENGINE: Final = Remedy("map_engine", "add gpus to the [[endpoint]] of {engines}")
PEER_WORDS: Final = Remedy("peer_words", "in that host's own words, not gpumon's: {text}")
"""Advice of another host that is not, or not wholly, of the table of actions. It is never copied."""


SIGNALS: Final[Mapping[str, str]] = {
    "mfu": "MFU or tensor activity",
    "mbu": "MBU or memory bandwidth",
    "dram": "memory bandwidth of its busy GPUs",
    "running": "requests running",
    "waiting": "requests waiting",
    "kv_usage": "KV cache use",
    "preemptions": "preemptions",
    "queue_time": "time in the queue",
    "gpu_activity": "what its GPUs do",
    "arithmetic": "its arithmetic (no token was counted for {seconds:lasted})",
    "believable": "figures contradict each other",
    "why_late": "why: no figure is near its limit",
    "host_load": "CPU, disk and network of [{host}|this host]: what the GPUs wait for",
    "input_wait": "what the GPUs wait for: no [{spins=yes}disk or network|core, disk or network] here is at its limit (a "
    "remote store? the steps?)",
    "busy": "busy share ({why})",
    "gpu_work": "unknown workload: {processes} ([busy {busy:percent}|SM {sm:percent} active])",
}
WHOLE_SENTENCES: Final = frozenset({"believable", "gpu_work"})
"""Signals that are sentences of their own."""
FIXES: Final[Mapping[str, str]] = {
    "": "",
    "add_model": "add a [[model]] entry",
    "add_gpus": "add gpus to its [[endpoint]]",
    "add_context": "add context_tokens to its [[endpoint]]",
    "needs_hopper": "needs Hopper or newer, or a dcgm-exporter in [dcgm] url",
    "run_there": "they are another host's: run gpumon there",
    **{fix.code: fix.words for fix in (DOCTOR, MAP_ENGINE)},
    "add_endpoint": "no engine is known here, add its URL with --endpoint",
}
"""Actions that would give a signal."""
_ITL_CHANGE: Final = (
    "ITL p95 [{itl_before_above=yes}above ]{itl_before:latency} -> [{itl_after_above=yes}above ]{itl_after:latency}"
)
_TTFT_CHANGE: Final = "TTFT p95 [{ttft_before_above=yes}above ]{ttft_before:latency} -> [{ttft_after_above=yes}above ]{ttft_after:latency}"
EVENT_SENTENCES: Final[Mapping[str, str]] = {
    "down": "no answer: {state}",
    "gone": "gone",
    "answers": "answers",
    "restarted": "restarted",
    "model_changed": "model {before} -> {model}",
    "model_loaded": "model {model} loaded",
    "replicas": "{before:count} -> {now:count} replicas answer",
    "xid": "Xid {xid:count}: {xid:xid}",
    "gpu_lost": "lost[: {what}]",
    "gpu_mute": "does not answer the driver[: {what} does not return]",
    "gpu_reset_required": "needs a reset[: {what}]",
    "gpu_back": "back",
    "throttling": "{cause:fault_began}",
    "applied": f"[{_ITL_CHANGE}, {_TTFT_CHANGE}|{_ITL_CHANGE}|{_TTFT_CHANGE}"
    "|latencies as before] since {changed:clock}[ at {load:factor} the load] "
    "([gpu {gpu:count} ]{setting:setting} [{before} -> {after}|{after}|removed])",
    "": "",
}
"""Sentences of events but those of verdicts."""
