# ruff: noqa: E501 - a table of sentences
"""Tables of the sentences of triage, by code: causes of verdicts, figures, actions, missing signals, events.

They are templates (`triage.templates`), which `triage.render` fills.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings.verdict import Team

# Parts that several sentences share.
_SPARE: Final = (
    "[, while {replica} has room ([KV cache {spare_kv:percent}, ][{spare_running:requests} running, ]none waiting)"
    "|, while {roomy:requests} of its {replicas:requests} other replicas have room "
    "([KV cache {spare_kv:percent}, ][{spare_running:requests} running, ]none waiting)]"
)
_SAVES: Final = "[ (saves {saves_gpu_hours:gpus}, {saves_per_hour:money})]"
_AFTER: Final = "[; restarted {restarted:lasted} ago]"
_SHARED: Final = "[, shared with {shared}]"
_CLOCK: Final = "{clock_hz:ghz} of {clock_max_hz:ghz} GHz"
_LOAD: Final = "[, {running:requests} running][, {waiting:requests} waiting]"
_REST: Final = (
    "[its GPUs are not working (memory bandwidth {dram:percent}[, tensor cores {tensor:percent}]"
    "[, busy {busy:percent}])|its GPUs are idle (SM {sm:percent})|its GPUs are idle ({busy:percent} busy)]"
)
_UNUSED: Final = "[{unused=yes}; nothing runs on it]"
_AT_WORK: Final = (
    "[; CPU {cpu:percent} of a core][; PCIe {pcie:bytes}/s][; NVLink {nvlink:bytes}/s]"
    "[; KV cache moves at {kv:bytes}/s][; the host's disks read {disk:bytes}/s][; its GPUs move memory (memory bandwidth {reads:percent})]"
)
"""Template of the signs of work."""
FAULTS: Final = {
    "lost": "is lost",
    "reset_required": "needs a reset",
    "ecc_rising": "has uncorrectable memory errors: its data is wrong",
    "ecc": "has had uncorrectable memory errors",
    "remap_failed": "has a memory row that could not be remapped",
    "remap_pending": "has a memory row that waits to be remapped",
    "xid": "has had a hardware error",
    "xid_program": "has had an error of a program",
    "thermal": "is slowed down by heat",
    "thermal_driver": "is slowed down by heat",
    "power_brake": "is held down by the power brake",
    "hardware_slowdown": "is slowed down by the hardware",
    "power_cap": "is held down by a lowered power limit",
    "locked_clock": "has its clock locked",
    "application_clocks": "has its application clocks set low",
    "low_clock": "runs at a low clock",
}
"""Faults of a GPU, behind its name."""
_ENDED: Final = (
    "[pid {pid}, ][{cause=signal}killed by signal {number:count}|{cause=exit}exit code {number:count}"
    "[ (signal {by_signal:count})]|{cause=oom}killed by the kernel, out of memory|{cause=reboot}its host restarted"
    "|{cause=stopped}stopped|{idle=yes}idle for 30 s before it|cause unknown]"
    "[ ({source})]"
)
_SINCE: Final = "since {down:minute}[ (answered last at {served:minute})], "
HOST_PARTS: Final = {
    "io_pressure": "the disk (tasks wait for it {} of the time)",
    "iowait": "the disk (iowait {} of all cores)",
    "cpu": "the CPU ({} of all cores)",
    "cpu_pressure": "the CPU (tasks wait for a core {} of the time)",
    "disk_busy": "the disk ({} busy)",
    "busiest_core": "one CPU core ({} busy), if that is what feeds it",
    "network_received": "the network ({} received)",
}

TEXTS: Final[Mapping[str, str]] = {
    # an engine that is not there, or not yet
    "ended": _ENDED,
    "crashed": _SINCE + _ENDED,
    "stopped": _SINCE + _ENDED,
    "never_served": "nothing listens at its URL, and it was never seen serving",
    "unreachable": "no answer for {seconds:lasted}: its host, or the network to it (no process of it is known here)",
    "loading_weights": "loads its weights[: reads {read:bytes}/s from disk][, VRAM {vram:gib}]",
    "compiling": "compiles kernels and graphs[: {cores:requests} CPU cores busy][, VRAM {vram:gib}]",
    "starting": "its process[ (pid {pid})] runs and does not listen yet[, VRAM {vram:gib}]",
    # state of an engine
    "hung_lost_gpu": "no {unit} for {seconds:lasted}"
    + _LOAD
    + ": {gpus}, which it runs on, [{several=yes}are|is] lost",
    "no_tokens": "no {unit} for {seconds:lasted}" + _LOAD + ": wait or check" + _AT_WORK,
    "paused": "no {unit} for {seconds:lasted}"
    + _LOAD
    + ": paused ([asleep: {how}|{paused:requests} requests held while its weights are updated])",
    "hung_compiling": "no {unit} for {seconds:lasted}" + _LOAD + ": " + _REST + "; no token yet: compiling?",
    "hung_spinning": "no {unit} for {seconds:lasted}" + _LOAD + ": " + _REST,
    "hung_idle": "no {unit} for {seconds:lasted}" + _LOAD + ": " + _REST,
    "hung_or_frozen": "no {unit} for {seconds:lasted}"
    + _LOAD
    + ": "
    + _REST
    + ": it hangs, or its gauges froze after an abort",
    "run_ended": "no {unit} for {seconds:lasted}: " + _REST + ", and they hold nothing of it: it has ended",
    "run_hung_or_ended": "no {unit} for {seconds:lasted}: " + _REST + ": it hangs, or has ended and left its exporter",
    "unresponsive": "[{how=refuses}refuses connections|does not answer] for {seconds:lasted} while its processes hold "
    "[{vram_bytes:gib}|their GPU]",
    "restart_loop": "crash loop: {times:count} restarts in {seconds:lasting}, last {last:lasted} ago",
    "gpu_degraded": "its {gpu} {fault:fault}[ ({xid:xid})][, at " + _CLOCK + "]"
    "[{waits=for_it}: its other GPUs wait for [{gpus}|it]]",
    "errors": "{share:percent} of its requests fail ({failed:requests} in {seconds:lasting})[: {backend} fails {at:percent} "
    "of those that it gets]",
    "no_backend": "none of its[ {known:count}] backends gets requests: {share:percent} fail or are turned away "
    "({failed:requests} in {seconds:lasting})",
    "backend_fails": "its backend {backend} fails {share:percent} of the requests that it gets ({failed:requests} a minute), the "
    "others hardly any",
    "backend_out": "{out:count} of {known:count} backends [{one=yes}gets|get] no requests[: {backend}]",
    "front_queue": "{waiting:requests} requests wait in it, while its {backends:count} backends have room ({running:requests} "
    "running, none waiting)",
    "aborts": "clients give up {share:percent} of its requests ({aborted:requests} in {seconds:lasting})"
    "[: the first token takes {first_token_s:latency}]",
    "rejections": "{share:percent} of its requests are turned away ({rejected:requests} in {seconds:lasting})"
    "[: {waiting:requests} wait]",
    # limit of an engine
    "lora_slots": "{waiting:requests} wait: all {slots:count} LoRA slots are taken, {adapters:whole} more adapters wanted",
    "prefix_hits_fell": "the prefix cache gives {now:percent} of the prompt tokens, {before:percent} before",
    "prefix_cold": "restarted {restarted:lasted} ago: its prefix cache is cold ({now:percent} of the prompt tokens, "
    "{before:percent} before); heals by itself in about {heals_s:lasting}",
    "acceptance_fell": "{now:percent} of the draft tokens are accepted, {before:percent} before"
    "[: {per_step:factor} tokens per step]",
    "acceptance_low": "{now:percent} of the draft tokens are accepted[, {per_step:factor} tokens per step]: speculation costs "
    "more than it gives",
    "neighbour": "[{engine}|{process}[ (pid {pid})][ of {owner}]] works on {gpu}, too[: it takes {share:percent} of its "
    "time][; ITL {itl_s:latency}[, {itl_before_s:latency} before|, about {alone_s:latency} alone]][; TTFT was {ttft_before_s:latency}]",
    "one_prompt": "one request fills {share:percent} of the KV cache[ ({tokens:tokens} tokens)]: up to {waiting:requests} wait for it",
    "kv_transfer_waits": "{waiting:requests} requests wait for [{role=prefill}the decode side to take their KV cache"
    "|KV cache of the prefill side][; no token for {seconds:lasted}]",
    "kv_expires": "the KV cache of {expired:requests} requests expired in {seconds:lasting}: no engine fetched it in time",
    "kv_full": "KV cache {usage:percent} full at {running:requests} requests[ of {tokens:tokens} tokens]: "
    "[{waiting:requests} wait|{thrown:per_minute} preempted a minute]" + _SPARE,
    "queue_slots": "{waiting:requests} wait while {running:requests} run[ of {slots:requests}]: "
    "[KV cache at {usage:percent}, ][{room=weights}a larger batch reads its weights as often|compute and bandwidth have room]"
    + _SPARE,
    "queue_steps": "{waiting:requests} wait while {running:requests} run: [KV cache at {usage:percent}, ]"
    "[{room=weights}a larger batch reads its weights as often|compute and bandwidth have room]" + _SPARE,
    "queue_bursts": "requests come in bursts: up to {most:requests} wait, {usual:requests} on average[, for "
    "{slots:requests} slots]; {share:percent} of the time to first token is queue",
    "kv_bursts": "requests come in bursts: up to {most:requests} wait for a full KV cache, {usual:requests} on average; "
    "{share:percent} of the time to first token is queue",
    "uneven_ranks": "[rank {other} runs {other_running:requests} while rank {rank} runs {running:requests} and has "
    "{waiting:requests} waiting|its ranks share the work unevenly]" + _SPARE,
    "straggler": "gpu {index:count} is at {share:percent} {activity:quantity}, its peer{peers:others} at "
    "{peers_share:percent}[, with its clock at {clock_hz:ghz} of {peers_clock_hz:ghz} GHz]: "
    "[{waits=for_it}they wait for it|the ranks wait for each other]" + _SPARE,
    "link_full": "GPUs {busy:percent} busy, arithmetic {arithmetic:percent}, memory bandwidth {reads:percent}: {link} carries "
    "{rate:bytes}/s, {link_share:percent} of its peak[: tensor parallelism of {tp:count} over PCIe]" + _SPARE,
    "long_prefill": "long prefill: no token for {seconds:lasted} while its GPUs compute ([tensor cores {tensor:percent} "
    "active|SM {sm:percent} active|by their power])[: {waiting:requests} wait]",
    "compute_full": "[tensor cores {tensor:percent} active|MFU {mfu:percent}]"
    + _SHARED
    + "[, {prefill:percent} of it prefill][: {waiting:requests} wait]"
    + _SPARE,
    "bandwidth_full": "memory bandwidth {share:percent}"
    + _SHARED
    + "[ at batch {batch:requests}][: room to batch {wider:requests}, which [meets {goal_s:latency}|takes about "
    "{then_s:latency} a token]]" + _SPARE,
    "waits_for_host": "[busy drops every {period:seconds} from {upper:percent} to {lower:percent}|busy {busy:percent}] "
    "with {pending} pending: waits for {part:host_part}[; {process} uses {cores:cores}]",
    "offline_batch": "offline batch: {queued:thousands} queued, [{arrived:requests} arrived in {window_s:lasting}|none arriving]"
    "[; done in about {left_s:lasting}[ at {rate:requests} requests/s]]",
    # use of an engine
    "traffic_stopped": "no request for {seconds:lasted}, {before_per_s:rate}/s before: its clients have stopped",
    "traffic_fell": "{now_per_s:rate} requests/s in the last minute, {before_per_s:rate}/s before",
    "engine_idle": "no request for {seconds:lasted}[: {gpus:gpus} idle][, {cost:money}]" + _AFTER,
    "few_requests": "[{mfu:percent} MFU|{tensor:percent} tensor activity], "
    "[{running:requests} of {slots:requests} slots in use|{running:requests} running, room for {kv_requests:requests}]"
    "[: this traffic fits on {needed:count} of {gpus:gpus}][, {cost:money} idle][, in bursts every {period:seconds}]"
    + _AFTER,
    "training_low_mfu": "MFU {mfu:percent}[ while its GPUs are {busy:percent} busy]",
    "asleep": "asleep on purpose[: {how}]",
    "evaluating": "low use so far ([{mfu:percent} MFU][, {running:requests} running]): utilisation verdict in {evaluating:count} min"
    "[; restarted {restarted:lasted} ago]",
    "ready": "ready, no request right now" + _AFTER,
    "headroom": "[{nearest:quantity} at {share:percent}|{running:requests} of {slots:requests} slots]"
    "[: headroom {headroom:factor} to {full:percent}|: headroom {headroom:factor}][; TTFT {ttft:latency}, {ttft_before:latency} in the minutes before]"
    + _AFTER,
    "training": "MFU {mfu:percent}[, {rate:amount} tok/s]" + _AFTER,
    # hardware
    "lost": "[Xid {xid:count} ({xid:xid_head}), ]lost[ for {seconds:lasted}]" + _UNUSED,
    "reset_required": "needs a reset" + _UNUSED,
    "remap_failed": "a memory row could not be remapped" + _UNUSED,
    "remap_pending": "a memory row waits to be remapped: the next reset does it",
    "ecc_rising": "uncorrectable ECC errors rise: {count:count}, {risen:count} more" + _UNUSED,
    "ecc": "{count:ecc_errors} since the driver was loaded",
    "xid": "Xid {xid:count}: {xid:xid}" + _UNUSED,
    "xid_program": "Xid {xid:count}: {xid:xid}[; on it now: {processes}]",
    # clocks
    **{
        cause: f"[was slowed down until {{ended:clock}} by {what}|slowed down by {what}][, {{idle=yes}}but nothing runs on it]"
        f"[, {_CLOCK}][, {{celsius:count}} °C]"
        for cause, what in (
            ("thermal", "heat (the hardware's own protection)"),
            ("thermal_driver", "heat (the driver keeps it below the limit)"),
            ("power_brake", "the power brake"),
            ("hardware_slowdown", "the hardware (heat or power: it does not report which)"),
        )
    },
    "power_cap": "its power limit[ of {limit_w:count} W][, where {default_w:count} W is the default,] holds its clock at "
    + _CLOCK
    + " under load",
    "locked_clock": "clock locked at " + _CLOCK + " under load",
    "low_clock": "clock at " + _CLOCK + " under load; the driver names no reason",
    "application_clocks": "application clocks hold it at " + _CLOCK + " under load",
    # use of a GPU
    "vram_held": "[{cost:money} idle: ][{processes} {several=yes}hold|{processes} holds|no process that is visible from here holds] "
    "{vram_bytes:gib} and nothing computes for {seconds:lasted}",
    "vram_full": "VRAM {share:percent}, {left:gib} left for {processes}: a larger batch may run out of memory",
    "engine_ended": "nothing runs on it since its engine {engine} went down at {down:minute}",
    "gpu_idle": "idle for {seconds:lasted}[: {cost:money}][, with {processes} on it|{free=yes}, nothing runs on it]",
    "gpu_hardly_used": "{busy:percent} busy over 3 min[, with {processes} on it|{free=yes}, nothing runs on it]",
    "gpu_at_work": "{processes}: SM active {sm:percent}",
    # host
    "cpu_full": "all cores at work ({cpu:percent})[: {process} uses {cores:cores}]"
    "[; tasks wait for a core {pressure:percent} of the time][{felt=no}; GPUs unaffected]",
    "disk_full": "tasks wait for a disk {pressure:percent} of the time",
    "host_memory_full": "memory {share:percent} used, {left:gib} left: the kernel may soon kill a process",
    "host_memory_waits": "memory {share:percent} used, {left:gib} left: tasks wait for it {pressure:percent} of the time",
    "cgroup_full": "tasks wait for memory {pressure:percent} of the time, with {left:gib} left: likely a container's limit",
    "": "",
}
"""Sentences of verdicts, by cause. Those of `unknown` are made of its signals."""

_PEERS: Final = "[median of the {others:count} others|{other} has]"
_OVER_GPUS: Final = "[, mean of {gpus:count} GPUs]"
_WINDOW: Final = "[, mean of {window_s:lasting}]"
QUANTITY_SENTENCES: Final[Mapping[str, str]] = {
    "no_token": "no token for {value:lasted}",
    "no_step": "no step for {value:lasted}",
    "no_answer": "no answer for {value:lasted}",
    "ended": _ENDED,
    "process_ended": "[pid {pid}|its process] is gone",
    "off_its_gpus": "[{pids}|its processes] no longer on its GPUs",
    "load_at_end": "at its last answer: [{value:requests} running, {waiting:requests} waiting|{value:requests} running"
    "|{waiting:requests} waiting]",
    "refuses": "nothing listens there",
    "starting_read": "reads {value:bytes}/s from disk",
    "starting_vram": "its processes hold {value:gib} of VRAM",
    "starting_cores": "{value:requests} CPU cores busy",
    "process_cpu": "CPU of its busiest process (or what it started) [{value:percent} of a core|not known]",
    "pcie_traffic": "PCIe [{value:bytes}/s|not measured]",
    "nvlink_traffic": "NVLink {value:bytes}/s",
    "kv_transfer_rate": "KV cache moved {value:bytes}/s",
    "kv_transfer_failures": "{value:per_minute} KV transfers fail a minute",
    "kv_late_reads": "{value:per_minute} reads of KV cache a minute ended after it was given up: their answers may be wrong",
    "kv_expired": "{value:per_minute} requests a minute whose KV cache expired",
    "disk_reads": "the host's disks read {value:bytes}/s",
    "gpu_activity": "GPU activity unknown",
    "paused_requests": "{value:requests} requests held by the server",
    "waiting_for_kv": "{value:requests} requests wait for a KV transfer",
    "restarts": "{value:count} restarts in {seconds:lasting}",
    "no_request": "no request for {value:lasted}",
    "idle_time": "at most 5 % busy for {value:lasted}",
    "running": "{value:requests}[ of {limit:requests}] running" + _WINDOW,
    "running_always": "{value:requests} to {most:requests} requests ran at all times",
    "waiting": "{value:requests} waiting" + _WINDOW,
    "slots": "at most {value:requests} run at once",
    "arrived": "{value:requests} arrived in {window_s:lasting}",
    "capacity": "room for {value:requests} requests",
    "batch": "batch {value:requests}",
    "wider_batch": "room to batch {value:requests}, which [meets {goal_s:latency}|takes about {then_s:latency} a token]",
    "rejections": "{value:requests} requests/s are turned away",
    "preemptions": "{value:per_minute} preemptions a minute",
    "failed_requests": "{value:percent} of the requests of {seconds:lasting} failed ({requests:requests})",
    "backends_ready": "{value:count} of {limit:count} backends get requests",
    "failing_backend": "{backend} failed {value:percent} of its requests ({failed:requests} a minute)",
    "backends_well": "its {value:count} backends answer and fail none of their requests",
    "backends_with_room": "{value:count} backends: {running:requests} running, none waiting, KV cache at most 60 % full",
    "failure_causes": "failed since it started: {causes}",
    "aborted_requests": "{value:percent} of the requests of {seconds:lasting} were aborted ({requests:requests})",
    "rejected_requests": "{value:percent} of the requests of {seconds:lasting} were turned away ({requests:requests})",
    "requests_expected": "about {value:requests} requests would have come since, at {before_per_s:rate}/s",
    "requests_came": "{value:requests} requests came in the last minute, about {limit:requests} would have",
    "acceptance": "{value:percent} of the draft tokens are accepted[, {limit:percent} before]",
    "tokens_per_step": "{value:factor} tokens per step and sequence",
    "itl_before": "ITL {value:latency}, {limit:latency} before",
    "itl_alone": "ITL {value:latency}, about {limit:latency} by the bytes that a step reads",
    "ttft_before": "TTFT {value:latency}, {limit:latency} before",
    "prefix_hits": "{value:percent} of the prompt tokens come from the prefix cache, {limit:percent} before",
    "prefill_rate": "prefill computes {value:amount} tok/s",
    "lora_waiting": "{value:requests} LoRA adapters are waited for",
    "lora_loaded": "{value:count} of {limit:count} LoRA slots are taken",
    "neighbour_sm": "[{engine}|{process}[ (pid {pid})]] takes {value:percent} of the SMs' time",
    "one_request_holds": "one request holds about {value:percent} of the KV cache[: {tokens:tokens} tokens]",
    "kv_usage": "KV cache {value:percent}",
    "kv_holds": "it holds about {value:requests} requests of {tokens:tokens} tokens",
    "queue_share": "{value:percent} of the time to first token is queueing ({seconds:latency})",
    "queue_time": "time in the queue {value:latency}, over {limit:latency}",
    "ttft_p95": "TTFT p95 {value:latency} [{goal=yes}misses {limit:latency}|is over {limit:latency} (late_ttft_s: no goal is set)]"
    "[: {kept:percent} kept it in 2 minutes]",
    "itl_p95": "ITL p95 {value:latency} [{goal=yes}misses {limit:latency}|is over {limit:latency} (late_itl_s: no goal is set)]"
    "[: {kept:percent} kept it in 2 minutes]",
    "ttft_kept": "{value:percent} of the requests of 2 minutes keep the TTFT goal of {goal_s:latency}",
    "itl_kept": "{value:percent} of the requests or tokens of 2 minutes keep the ITL goal of {goal_s:latency}",
    "e2e_p95": "E2E p95 {value:latency} misses {limit:latency}",
    "mfu": "MFU {value:percent}[ of the peak, at {clock:percent} of the highest SM clock]",
    "mfu_prefill": "prefill MFU {value:percent}",
    "mbu": "MBU {value:percent}",
    "token_rate": "training, {value:amount} tok/s",
    "sample_rate": "training, {value:amount} samples/s",
    "tensor_active": "tensor cores {value:percent} active" + _OVER_GPUS,
    "sm_active": "SM {value:percent} active" + _OVER_GPUS,
    "sm_share": "SM {value:percent} active" + _OVER_GPUS,
    "dram_active": "memory bandwidth {value:percent}" + _OVER_GPUS,
    "dram_at_most": "memory bandwidth at most {value:percent}" + _OVER_GPUS,
    "busy": "busy {value:percent}" + _WINDOW + _OVER_GPUS,
    "busy_share": "busy {value:percent}" + _OVER_GPUS,
    "busy_drops": "busy drops every {period:seconds} from {upper:percent} to {lower:percent}",
    "dram_beside_peers": "gpu {index:count}: memory bandwidth {value:percent}, its peers {limit:percent}",
    "sm_beside_peers": "gpu {index:count}: SM {value:percent} active, its peers {limit:percent}",
    "clock_beside_peers": "gpu {index:count}: SM clock {value:ghz} GHz, its peers {limit:ghz} GHz",
    "mbu_beside_measured": "MBU {value:percent}, and its GPUs measure {limit:percent} of their memory bandwidth: the model, its "
    "precision or its GPUs are set wrongly",
    "rank_decode": "decode: rank {rank} gives {value:amount} tok/s, the mean of the ranks is {limit:amount}",
    "rank_queue": "queue: rank {rank} has {value:requests} waiting and runs {running:requests}, rank {other} runs "
    "{other_running:requests} and has none waiting",
    "rank_kv": "KV cache: rank {rank} uses {value:percent}, rank {other} {limit:percent}",
    "replica_gpu_decode": "decode {value:amount} tok/s per GPU, " + _PEERS + " {limit:amount}",
    "replica_decode": "decode {value:amount} tok/s, " + _PEERS + " {limit:amount}",
    "replica_queue": "{value:requests} waiting, " + _PEERS + " {limit:requests}",
    "replica_kv": "KV cache {value:percent}, " + _PEERS + " {limit:percent}",
    "replica_itl": "ITL {value:latency}, " + _PEERS + " {limit:latency}",
    "replica_ttft": "TTFT {value:latency}, " + _PEERS + " {limit:latency}",
    "replica_requests": "gets {share:percent} of the requests of the others ({value:rate}/s, they {limit:rate}/s each): "
    "look at the load balancer",
    "replica_running": "gets {share:percent} of the requests of the others ({value:requests} running, they "
    "{limit:requests} each): look at the load balancer",
    "replicas_down": "{value:count} without figures",
    "own_gpumon": "gpumon on that host says more (`gpumon`, /snapshot.json)",
    "replicas_with_room": "[{replica}|{value:requests} of {replicas:requests} other replicas]: [KV cache "
    "{spare_kv:percent}, ][{spare_running:requests} running, ]none waiting",
    "nvlink_rate": "NVLink {value:bytes}/s of {limit:bytes}/s" + _OVER_GPUS,
    "pcie_rate": "PCIe {value:bytes}/s of {limit:bytes}/s" + _OVER_GPUS,
    "cost_per_hour": "{value:money}[ for {gpus:gpus}]",
    "gpus_needed": "needs {value:count} of {limit:gpus}",
    "evaluating": "utilisation verdict in {value:lasting}",
    "asleep": "{how}",
    "gpu_state": "state {state}[: {what}]",
    "xid": "Xid {value:count}: {value:xid} ([{times:count} times, last ]{ago:lasted} ago)",
    "remap_failed": "row remapping failed",
    "remap_pending": "a row waits to be remapped",
    "ecc_uncorrected": "{value:ecc_errors} since the driver was loaded[, {risen:count} of them in the last 3 min]",
    "throttle_share": "{reason}: {value:percent} of the last minute[, {counted:age} since gpumon started]",
    "temperature": "{value:count} °C now",
    "sm_clock": "SM clock {value:ghz} of {limit:ghz} GHz, mean of 60 s[; now {newest:ghz} GHz]",
    "power": "{value:count}[ of {limit:count}] W, mean of 60 s",
    "vram_used": "VRAM {value:gib} of {total:gib}",
    "vram_held": "its processes hold [{value:gib}|their GPU][: {pids}]",
    "process_vram": "{process} holds [{value:mib}|memory]",
    "processes": "on it: {processes}",
    "cpu": "CPU {value:percent} of all cores, mean of 60 s",
    "busiest_core": "busiest core {value:percent}, mean of 60 s",
    "cpu_pressure": "tasks wait for a core {value:percent} of the time, mean of 60 s",
    "cpu_process": "{process} uses {value:cores}",
    "iowait": "iowait {value:percent} of all cores, mean of 60 s",
    "io_pressure": "tasks wait for a disk {value:percent} of the time, mean of 60 s",
    "disk_busy": "busiest disk {value:percent} busy, mean of 60 s",
    "network_received": "receives {value:bytes}/s, mean of 60 s",
    "host_memory": "memory {value:percent}: {left:gib} left",
    "memory_pressure": "tasks wait for memory {value:percent} of the time, mean of 60 s",
}
"""Sentences of evidence, by quantity; `value` and `limit` are its figures, in the unit of the format."""

REPLICA_QUANTITIES: Final = frozenset(quantity for quantity in QUANTITY_SENTENCES if quantity.startswith("replica_"))
"""Quantities in which an engine is compared with its replicas."""
ACTIONS: Final[Mapping[str, str]] = {
    "save_stacks_and_restart": "[{otherwise=yes}else ]save its log[ ({log=journal}journalctl _PID={pid}, or where its output goes)| ({log} logs {container})] and the stacks[ of {pids}] (py-spy dump[ --pid {pid}]), look for Xid and NCCL errors, then restart it",
    "read_error_log": "read the errors in its log[ ({log=journal}journalctl _PID={pid}, or where its output goes)| ({log} logs {container})], and send it one request by hand",
    "check_client_timeouts": "compare the timeouts of its clients and of the proxy between with TTFT and E2E, and find out which client gives up",
    "check_backend": "see whether {backend} answers, look into its log, and take it out of the front end until then",
    "check_backends": "see which backends answer, and what their front end's log says of those that get no requests (health checks, circuit breaker)",
    "check_way_to_backends": "its time-outs and the network between it and its backends",
    "check_rate_limits": "its queue and its limits of requests and tokens (per key, team or model)",
    "let_more_through": "a higher limit of requests that run at once in the front end (SGLang: --max-concurrent-requests)",
    "check_retries": "retries with growing pauses (429 and 503 are retried at once by some clients)",
    "check_clients": "look at what sends its requests: clients, load balancer, DNS, certificates, quotas",
    "check_draft_model": "find what changed (prompts, language, temperature, model without its draft); speculation off until then",
    "stop_speculation": "speculation off, or fewer draft tokens, or a draft that fits this model",
    "check_prefix_routing": "find what changed: routing (session or prefix affinity), the prompts' first tokens (date or id in the system prompt, chat template), or a KV cache too small to keep them",
    "wait_for_cache": "wait: the prefix cache fills with the first requests of each prefix",
    "raise_lora_slots": "raise {flag} from {now:count}[ to {wanted:count}]",
    "group_adapters": "send each adapter's requests to the same few replicas",
    "limit_prompt": "lower {flag}, or limit the prompts at the gateway",
    "long_prompts_apart": "long prompts to an instance of their own",
    "start_again": "[{left=yes}after the end of [{pids}|what is left of it]: |{unseen=yes}if it has ended: ][{start} starts it again|start it again[: {command}]]",
    "check_url": "curl -sS {url}/metrics shows whether a server is there: start it, correct the URL, or take its [[endpoint]] out of the config",
    "check_host": "[ping -c 3 {host} and ]curl -sS -m 5 {url}/health shows whether it answers; then read its log on its host",
    "read_last_log": "[{log} shows what it wrote last|tail -n 100 {file} shows what it wrote last|{ended=yes}sudo dmesg -T shows whether the kernel ended it (OOM, segfault, Xid); its own output is where it was started|read the last lines of its log before each end (kubectl logs --previous, docker logs, journalctl -u) and look for the OOM killer in dmesg; until that is fixed take it out of the load balancer]",
    "fix_gpu_first": "fix {gpus} first: a restart on the same GPUs fails until then",
    "wait_for_compile": "wait: the first request compiles kernels and graphs for minutes; look at its log",
    "wait_or_check": "[py-spy dump --pid {pid}|py-spy dump of its process] and its log[ ({log=journal}journalctl -f _PID={pid})| ({log} logs {container})] show what it does[{paused=yes}; continue it where it was paused|{late=yes}; restart it only if its stacks do not change|; wait up to {seconds:count} s for compiles, weight updates, KV transfers]",
    "check_prefill_side": "look at the prefill side that sends its KV cache[ ({engine})]: does it serve, what does its log say, does the link between them work (NIXL, UCX, RDMA)?",
    "check_decode_side": "look at the decode side that takes its KV cache[ ({engine})]: does it serve, does it have room, does the link between them work (NIXL, UCX, RDMA)?",
    "wait_for_prefill": "wait: it works on a prompt",
    "send_one_request": "send it one request: if a token comes, only its gauges froze",
    "stop_exporter": "where it has ended, stop its exporter or take it out of the config",
    "more_instances": "[{instances:count} instances instead of {now:count}|more instances][ on free {free}][ for these {requests:requests} requests][, {turned_away:requests} of them turned away][; {fit:count} more fits on free {partly}]",
    "more_instances_for_rest": "more instances[ on free {free}] for the rest",
    "more_instances_no_kv": "more instances[ on free {free}]: the KV cache has no room for a higher {flag}",
    "read_figures_in_log": "look in its log for what its page lacks: {signals:signals}; a newer release may export it",
    "add_model": "add a [[model]] entry to the config: gpumon doctor names what is missing",
    "add_gpus": "add gpus to its [[endpoint]] in the config",
    "add_context": "add context_tokens to its [[endpoint]] in the config",
    "needs_hopper": "set [dcgm] url to a dcgm-exporter, which measures what its GPUs do",
    "run_there": "run gpumon on the host of its GPUs",
    "doctor": "check its model, precision and GPUs: gpumon doctor",
    "lower_context": "lower {flag}",
    "fp8_kv": "{flag} (holds twice as many)",
    "more_kv_memory": "raise {flag}[ (now {now})]",
    "raise_slots": "raise {flag}[ from {now:count}][ to {wanted:count}][: more do not fit into the KV cache, {usage:percent} full now]",
    "bigger_steps": "raise {flag}, so that a step takes more prompts",
    "bigger_batch": "a larger batch (send it more requests at once)[: up to {wider:requests}]",
    "quantise_weights": "{flag} halves the weights"
    + _SAVES
    + "[, which then fit on {fits_on:gpus}: lower [{pp_flag} to {pp_to:count} and ]{tp_flag} to {tp_to:count}]",
    "more_gpus": "more GPUs per instance ({flag}[, now {now:count}])",
    "prefix_caching": "{flag}",
    "smaller_chunks": "[{chunked} with ]a smaller {flag}",
    "split_prefill": "prefill and decode on GPUs of their own",
    "own_gpus": "[move {shared} to other GPUs|give it GPUs of its own]",
    "smooth_bursts": "let the client spread its requests, or limit how many it sends at once",
    "spread_requests": "spread its requests: [{replica} has|{roomy:requests} of its {replicas:requests} other replicas have] room, so look at the load balancer (its policy, weights, health checks, session or prefix affinity)",
    "compare_replicas": "look at the load balancer (its policy, weights, health checks, session or prefix affinity), and compare its GPU, clocks and options with those of its replicas",
    "balance_ranks": "route by load (fewest requests, or prefix-aware with a cap) over the ranks",
    "inspect_gpu": "look at gpu {index:count}: clocks and locks (nvidia-smi -q -d CLOCK,PERFORMANCE -i {index:count}), heat, link, other processes on it",
    "smaller_tp": "else lower the tensor parallelism of {tp:count}",
    "halve_tp": "lower {tp_flag} from {tp:count} to {half:count} with twice the instances[{if_it_fits=yes}, if the model fits]",
    "pipeline_instead": "{pp_flag} {pp:count} with {tp_flag} {tp:count} (stages talk less than ranks)",
    "data_parallel": "data parallelism instead",
    "nvlink_gpus": "GPUs that NVLink joins (nvidia-smi topo -m)",
    "profile_process": "py-spy dump --pid {pid}[{parent=yes} (and of its parent)] shows what it does",
    "more_front_ends": "tokenise in more processes: {flag}",
    "training_disk": "training data from disk: put it on local NVMe, in larger files (shards), raise num_workers and prefetch_factor, save checkpoints in the background",
    "training_cpu": "data loading is CPU-bound: prepare (tokenise, decode, augment) ahead of time or on the GPU; num_workers up to the free cores, persistent_workers=True, prefetch_factor=4, pin_memory=True with non_blocking copies",
    "training_core": "one thread feeds the GPUs: DataLoader(num_workers > 0, prefetch_factor=4, persistent_workers=True, pin_memory=True)",
    "training_network": "training data over the network: copy it to local NVMe first, or raise num_workers and prefetch_factor",
    "serving_disk": "something reads or writes a disk: KV offload, model swapping, logs; iotop -o names it; move it to NVMe",
    "serving_cpu": "give the server cores of its own: move other jobs away, pin it (taskset, numactl), raise its CPU limit",
    "serving_core": "a single thread holds the requests back",
    "serving_network": "the network feeds it: check who receives (nethogs)",
    "send_traffic_or_stop": "send it traffic, or stop it"
    + _SAVES
    + " and give its [{frees=gpus}GPUs|memory] to another model",
    "more_requests": "send it more requests at once",
    "share_gpu": "let its GPU serve another model, too",
    "send_earlier": "its requests come in bursts every {period:seconds}, with none in between: let the client send the next ones before the last are done",
    "see_replica": "see {replica}: it says how many GPUs the traffic of all replicas needs",
    "stop_instances": "stop {stop:count} of {instances:count} instances"
    + _SAVES
    + ", and send their requests to the others; seen for {seconds:lasting} only; peaks: gpumon report",
    "fewer_gpus": "lower [{pp_flag} from {pp:count} to {pp_to:count} and {tp_flag} to {tp_to:count}|{pp_flag} from {pp:count} to {pp_to:count}|{tp_flag} to {tp_to:count}]"
    + _SAVES
    + ", and give the other GPUs to another model; seen for {seconds:lasting} only; peaks: gpumon report",
    "larger_micro_batch": "a larger micro-batch, fused kernels (torch.compile, FlashAttention), bf16 or FP8 matmuls, less recomputation",
    "faster_kernels": "fused kernels (torch.compile, FlashAttention), bf16 or FP8 matmuls; its memory has no room for a larger micro-batch",
    "profile_steps": "look at what its steps wait for: data loading, checkpoints, logging, or other ranks",
    "reset_gpu": "drain it, then nvidia-smi --gpu-reset -i {index:count} (reboot where that is refused)",
    "reset_when_free": "reset it when it is free: nvidia-smi --gpu-reset -i {index:count}",
    "reset_span": "drain the jobs that span GPUs, then nvidia-smi --gpu-reset -i {index:count} (reboot where that is refused)",
    "count_nvlink_errors": "nvidia-smi nvlink -e -i {index:count} counts the errors of each link; if they grow again: reseat or replace GPU, bridge or switch",
    "update_driver": "update the driver",
    "replace_if_again": "if more come after that, replace it",
    "replace_gpu": "drain it and replace this GPU (RMA): it has no spare memory rows left where it needs one",
    "replace_if_remap_failed": "nvidia-smi -q -d ROW_REMAPPER -i {index:count}: with a failed remapping replace the GPU (RMA)",
    "diagnose_if_again": "if more come after that: dcgmi diag -r 3, then replace the GPU",
    "diagnose_when_free": "watch it: dcgmi diag -r 3 when it is free; replace the GPU if uncorrectable ones follow",
    "count_spare_rows": "nvidia-smi -q -d ROW_REMAPPER -i {index:count} shows how many rows are left",
    "power_cycle": "drain this server and power-cycle it (a reboot is often not enough)",
    "reseat_if_again": "if it comes again: reseat the GPU, check its power cables and heat, update firmware, then replace it",
    "restart_hit_program": "restart the program that was hit (dmesg names its pid)",
    "ask_recovery": "nvidia-smi -q -i {index:count} | grep -i recovery says which: none, reset, reboot, drain",
    "look_up_xid": "`dmesg | grep Xid` has its text; look it up in NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors)",
    "read_program_log": "no hardware action: `dmesg | grep Xid` names the pid; read that program's log, run it under compute-sanitizer; only if it follows the GPU from program to program: dcgmi diag -r 3",
    "find_killer": "no hardware action: look for the Xid before it, and for who killed the program (dmesg: oom, kill)",
    "check_cooling": "check fans, airflow, inlet temperature and dust: nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i {index:count}",
    "lower_power_limit": "until then a lower power limit keeps the clocks steady: sudo nvidia-smi -i {index:count} -pl {watts:count}, and -pl {limit_w:count} takes it back",
    "check_power_supply": "power supply is throttling the GPU: check the server's PSUs and their redundancy, cables and the rack's budget",
    "check_cooling_and_power": "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {index:count}; check cooling and power supply",
    "restore_power_limit": "[sudo nvidia-smi -i {index:count} -pl {watts:count} sets the default|normal for a card with a small power limit under dense work; where it was lowered: nvidia-smi -q -d POWER -i {index:count} shows the default, sudo nvidia-smi -i {index:count} -pl DEFAULT sets it]",
    "reset_locked_clocks": "sudo nvidia-smi -rgc -i {index:count} unlocks it; nvidia-smi -q -d CLOCK,PERFORMANCE -i {index:count} shows it",
    "reset_application_clocks": "sudo nvidia-smi -rac -i {index:count} takes them back",
    "map_engine": "add gpus to the [[endpoint]] of {engines}",
    "add_endpoint": "add the engine's URL with --endpoint[{if_it_answers=yes} if its server still answers]",
    "find_hidden_process": "start gpumon with --pid=host (Kubernetes: hostPID: true) to see it, or look with nvidia-smi on the host",
    "end_program": "[{otherwise=yes}else ]ask [{owner}|its owner] to end it, or end it"
    + _SAVES
    + ": that frees {vram_bytes:gib}",
    "less_vram": "smaller micro-batch with gradient accumulation, activation checkpointing, PYTORCH_ALLOC_CONF=expandable_segments:True; torch.cuda.memory_reserved() shows how much is only cached",
    "keep_vram_free": "start nothing more on this GPU and no larger batches until memory is freed",
    "ask_owner": "ask its owner whether it is still needed"
    + _SAVES
    + ": it can be ended, or share its GPU with others",
    "share_gpu_or_batch": "let it share its GPU with others, or give it larger batches",
    "use_free_gpu": "free for other work" + _SAVES,
    "free_cores": "[{gpus=yes}CPU work for the GPUs is delayed: ]move other jobs away, fewer workers than cores, pin the engine (taskset)",
    "find_reader": "find the reader: iotop -o; put data and weights on local NVMe, in fewer and larger files",
    "less_host_memory": "fewer data loader workers, smaller --swap-space or CPU offload, no pinned buffers; ps aux --sort=-rss | head",
    "raise_cgroup_limit": "systemd-cgtop -m shows which is at its limit, its memory.events counts how often; raise it (docker update --memory, resources.limits.memory, MemoryMax=)",
    "check_cooling_amd": "check fans, airflow, inlet temperature, dust and power supply: amd-smi metric --gpu {index:count}",
    "find_hidden_process_amd": "start gpumon with --pid=host (Kubernetes: hostPID: true) to see it, or look with amd-smi process on the host",
    "inspect_gpu_amd": "look at gpu {index:count}: clocks (amd-smi metric --gpu {index:count}), heat, link, other processes on it",
    "lower_power_limit_amd": "until then a lower power limit keeps the clocks steady: sudo amd-smi set --gpu {index:count} --power-cap {watts:count}, and --power-cap {limit_w:count} takes it back",
    "reset_gpu_amd": "drain it, then sudo amd-smi reset --gpureset --gpu {index:count} (reboot where that is refused)",
    "reset_when_free_amd": "reset it when it is free: sudo amd-smi reset --gpureset --gpu {index:count}",
    "restore_power_limit_amd": "[sudo amd-smi set --gpu {index:count} --power-cap {watts:count} sets the default|normal for a card with a small power limit under dense work; where it was lowered: amd-smi static --gpu {index:count} shows the limits]",
    "xgmi_gpus": "GPUs that XGMI links join (gpumon topo)",
    "peer_words": "in that host's own words, not gpumon's: {text}",
}
"""Sentences of actions, by code."""
PEER_WORDS: Final = "peer_words"
"""Code of advice of another host that is not, or not wholly, of the table above. It is never copied."""
_ACTIONS_OF_OTHER_TEAMS: Final = {
    Team.HARDWARE: (
        *("fix_gpu_first", "inspect_gpu", "reset_gpu", "reset_when_free", "reset_span"),
        *("count_nvlink_errors", "replace_if_again", "replace_gpu", "replace_if_remap_failed"),
        *("diagnose_if_again", "diagnose_when_free", "count_spare_rows", "power_cycle", "reseat_if_again"),
        *("ask_recovery", "look_up_xid", "check_cooling", "check_power_supply", "check_cooling_and_power"),
        *("check_cooling_amd", "inspect_gpu_amd", "reset_gpu_amd", "reset_when_free_amd"),
    ),
    Team.OWNER: (
        *("stop_exporter", "training_disk", "training_cpu", "training_core", "training_network"),
        *(
            "larger_micro_batch",
            "faster_kernels",
            "profile_steps",
            "restart_hit_program",
            "read_program_log",
            "find_killer",
        ),
        *("less_vram", "keep_vram_free", "share_gpu_or_batch"),
    ),
    Team.CLIENT: (
        *("check_client_timeouts", "check_retries", "check_clients"),
        *("bigger_batch", "smooth_bursts", "more_requests", "send_earlier"),
    ),
    Team.SCHEDULER: (
        *("own_gpus", "spread_requests", "compare_replicas", "balance_ranks", "nvlink_gpus", "xgmi_gpus"),
        *("check_prefix_routing", "group_adapters"),
        *("check_backend", "check_backends", "check_way_to_backends", "check_rate_limits", "let_more_through"),
    ),
    Team.HOST: (
        *("serving_disk", "serving_cpu", "serving_network", "update_driver", "lower_power_limit", "needs_hopper"),
        *("restore_power_limit", "reset_locked_clocks", "reset_application_clocks"),
        *("find_hidden_process", "free_cores", "find_reader", "less_host_memory"),
        *("raise_cgroup_limit", "find_hidden_process_amd", "lower_power_limit_amd", "restore_power_limit_amd"),
    ),
}
TEAMS: Final = {code: team for team, codes in _ACTIONS_OF_OTHER_TEAMS.items() for code in codes}
"""Who can do it, where that is not the one who runs the engine."""

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
    "gpu_work": "unknown workload: {processes} (busy {busy:percent})",
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
    "doctor": "check its model, precision and GPUs: gpumon doctor",
    "map_engine": "add gpus to the [[endpoint]] of {engines}",
    "add_endpoint": "no engine is known here, add its URL with --endpoint",
}
"""Actions that would give a signal."""
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
    "gpu_reset_required": "needs a reset[: {what}]",
    "gpu_back": "back",
    "throttling": "{cause:fault_began}",
    "applied": "[ITL p95 {itl_before:latency} -> {itl_after:latency}, TTFT p95 {ttft_before:latency} -> {ttft_after:latency}"
    "|ITL p95 {itl_before:latency} -> {itl_after:latency}|TTFT p95 {ttft_before:latency} -> {ttft_after:latency}"
    "|latencies as before] since {changed:clock}[ at {load:factor} the load] "
    "([gpu {gpu:count} ]{setting:setting} [{before} -> {after}|{after}|removed])",
    "": "",
}
"""Sentences of events but those of verdicts."""
