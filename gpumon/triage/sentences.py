# ruff: noqa: E501 - a table of sentences
"""Tables of the sentences of triage, by code: causes of verdicts, figures, actions, missing signals, events.

They are templates (`triage.templates`), which `triage.render` fills.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings.verdict import Team

# Parts that several sentences share.
SPARE: Final = (
    "[, while {replica} has room ([KV cache {spare_kv:percent}, ][{spare_running:requests} running, ]none waiting)"
    "|, while {roomy:requests} of its {replicas:requests} other replicas have room "
    "([KV cache {spare_kv:percent}, ][{spare_running:requests} running, ]none waiting)]"
)
_SAVES: Final = "[ (saves {saves_gpu_hours:gpus}, {saves_per_hour:money})]"
AFTER: Final = "[; restarted {restarted:lasted} ago]"
SHARED: Final = "[, shared with {shared}]"
CLOCK: Final = "{clock_hz:ghz} of {clock_max_hz:ghz} GHz"
FELL_UNTIL: Final = "[, {clock_before_hz:ghz} GHz until {fell:clock}]"
LOAD: Final = "[, {running:requests} running][, {waiting:requests} waiting]"
REST: Final = (
    "[its GPUs are not working (memory bandwidth {dram:percent}[, tensor cores {tensor:percent}]"
    "[, busy {busy:percent}])|its GPUs are idle (SM {sm:percent})|its GPUs are idle ({busy:percent} busy)]"
)
UNUSED: Final = "[{unused=yes}; nothing runs on it]"
AT_WORK: Final = (
    "[; CPU {cpu:percent} of a core][; PCIe {pcie:bytes}/s][; NVLink {nvlink:bytes}/s]"
    "[; KV cache moves at {kv:bytes}/s][; the host's disks read {disk:bytes}/s][; its GPUs move memory (memory bandwidth {reads:percent})]"
)
"""Template of the signs of work."""
FAULTS: Final = {
    "lost": "is lost",
    "mute": "does not answer the driver",
    "reset_required": "needs a reset",
    "ecc_rising": "has uncorrectable memory errors: its data is wrong",
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
ENDED: Final = (
    "[pid {pid}, ][{cause=signal}killed by signal {number:count}|{cause=exit}exit code {number:count}"
    "[ (signal {by_signal:count})]|{cause=oom}killed by the kernel, out of memory|{cause=reboot}its host restarted"
    "|{cause=stopped}stopped|{drained=yes}after it had closed its port and drained|{idle=yes}after 30 s without requests|cause unknown]"
    "[ ({source})]"
)
LAST_END: Final = (
    "[{cause=signal}; the last was killed by signal {number:count}|{cause=exit}; the last had exit code {number:count}"
    "|{cause=oom}; the last was killed by the kernel, out of memory]"
)
STARTS: Final = "; {times:count} [{restarts=yes}restarts|starts] in {seconds:lasting}, the newest at {newest:clock}"
"""Stands last: it is what changes with each start of a loop."""
PART: Final = "{role}[, pid {pid},][ and {more:count} more]"
SINCE: Final = "since {down:minute}[ (answered last at {served:minute})], "
SOON: Final = " in about {seconds:lasting} at this rate[{spread=yes} ({low:lasting} to {high:lasting})]"
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
_OVER_GPUS: Final = "[, mean of {gpus:count} GPUs]"
_WINDOW: Final = "[, mean of {window_s:lasting}]"
QUANTITY_SENTENCES: Final[Mapping[str, str]] = {
    "no_token": "no token for {value:lasted}",
    "no_step": "no step for {value:lasted}",
    "no_answer": "no answer for {value:lasted}",
    "ended": ENDED,
    "process_ended": "[pid {pid}|its process] is gone",
    "part_gone": "{role}[, pid {pid}], is gone",
    "part_runs": "{role}[, pid {pid}], lives",
    "part_stopped": "{role}[, pid {pid}], in state T",
    "part_traced": "{role}[, pid {pid}], in state t",
    "part_uninterruptible": "{role}[, pid {pid}], in state D",
    "part_thread_uninterruptible": "a thread of {role}[, pid {pid}], in state D",
    "part_frozen": "the cgroup of {role}[, pid {pid}], is frozen",
    "off_its_gpus": "[{pids}|its processes] no longer on its GPUs",
    "load_at_end": "at its last answer: [{value:requests} running, {waiting:requests} waiting|{value:requests} running"
    "|{waiting:requests} waiting]",
    "refuses": "nothing listens there",
    "failed_starts": "{value:count} starts ended after about {length:lasting}, [{served=yes}the last with requests running|before a token came]",
    "port_closed": "its port is closed for {value:lasted}, and its process lives",
    "open_connections": "{value:count} connections to it are open",
    "starting_read": "reads {value:bytes}/s from disk",
    "starting_vram": "its processes hold {value:gib} of VRAM",
    "starting_cores": "{value:decimal} CPU cores busy",
    "process_cpu": "CPU of its busiest process (or what it started) [{value:percent} of a core|not known]",
    "pcie_traffic": "PCIe [{value:bytes}/s|not measured]",
    "nvlink_traffic": "NVLink {value:bytes}/s",
    "kv_transfer_rate": "KV cache moved {value:bytes}/s",
    "kv_transfer_failures": "{value:per_minute} KV transfers fail a minute",
    "kv_late_reads": "{value:per_minute} reads of KV cache a minute ended after it was given up: their answers may be wrong",
    "kv_expired": "{value:per_minute} requests a minute whose KV cache expired",
    "disk_writes": "{value:bytes}/s are written to the host's disks",
    "power_share": "power {value:percent} of the limit" + _OVER_GPUS,
    "disk_reads": "the host's disks read {value:bytes}/s",
    "gpu_activity": "GPU activity unknown",
    "pauses": "{value:count} pauses of {pause_s:lasting} in a row, one every {period_s:lasting}",
    "weight_updates": "{value:requests} operations of a weight update in flight",
    "sleep_operations": "{value:requests} operations of its sleep mode in flight",
    "kv_fetch_stages": "[{waiting:requests} not asked for, ]{value:requests} on their way[, {done:requests} here and waiting for room]",
    "prefill_retries": "{value:per_minute} prompts a minute are put off after their prefill began",
    "request_preemptions": "each request was preempted {value:factor} before it ended",
    "expert_balance": "the busiest GPU of its experts does {times:factor} the mean (balance {value:percent})",
    "rank_imbalance": "the busiest rank runs {value:factor} the mean tokens of all",
    "scheduler_idle": "its scheduler was without requests {value:percent} of the time",
    "forward": "its GPUs computed steps {value:percent} of the time, by its own clock",
    "paused_requests": "{value:requests} requests held by the server",
    "waiting_for_kv": "{value:requests} requests wait for a KV transfer",
    "restarts": "{value:count} restarts in {seconds:lasting}",
    "no_request": "no request for {value:lasted}",
    "idle_time": "at most 5 % busy for {value:lasted}",
    "running": "{value:requests}[ of {limit:requests}] running" + _WINDOW,
    "running_always": "{value:requests} to {most:requests} requests ran at all times",
    "unseen_gpus": "{what} {since}: seen {seen:clock} by pid {pid:count}, with {count:gpus}[, by {asked}][; {why}]",
    "waiting": "{value:requests} waiting" + _WINDOW,
    "option": "[{name}: {word}|given as {word}|set to {value:count}]",
    "itl_mean": "mean ITL {value:latency}",
    "step_reads": "reading its weights and KV cache takes {value:latency} of a step",
    "step_tokens": "at most {value:tokens} tokens in a step",
    "slots": "at most {value:requests} run at once",
    "arrived": "{value:requests} arrived in {window_s:lasting}",
    "capacity": "room for {value:requests} requests",
    "batch": "batch {value:requests}",
    "wider_batch": "room to batch {value:requests}, which [meets {goal_s:latency}|takes about {then_s:latency} a token]",
    "rejections": "{value:decimal} requests/s are turned away",
    "preemptions": "{value:per_minute} preemptions a minute",
    "failed_requests": "[{value:percent} of the requests of {seconds:lasting} failed ({requests:requests})|{requests:requests} requests of {seconds:lasting} failed]",
    "backends_ready": "{value:count} of {limit:count} backends get requests",
    "failing_backend": "{backend} failed {value:percent} of its requests ({failed:requests} a minute)",
    "backends_well": "its {value:count} backends answer and fail none of their requests",
    "backends_with_room": "{value:count} backends: {running:requests} running, none waiting, KV cache at most 60 % full",
    "failure_causes": "failed since it started: {causes}",
    "answers_cut": "{value:percent} of the answers ended at their longest",
    "answer_tokens": "answers of {value:tokens} tokens on average",
    "aborted_midway": "{value:requests} of {limit:requests} requests that were aborted[ in {seconds:lasting}] had got their first token",
    "refused_requests": "{value:percent} of the requests of {seconds:lasting} were refused ({requests:requests})",
    "refusal_causes": "refused since its start: {causes}",
    "corrupted_requests": "[{value:percent} of the requests of {seconds:lasting} had NaN in their logits ({requests:requests})|{requests:requests} requests of {seconds:lasting} had NaN in their logits]",
    "aborted_requests": "{value:percent} of the requests of {seconds:lasting} were aborted ({requests:requests})",
    "rejected_requests": "[{value:percent} of the requests of {seconds:lasting} were turned away ({requests:requests})|{requests:requests} requests of {seconds:lasting} were turned away]",
    "requests_expected": "about {value:requests} requests would have come since, at {before_per_s:rate}/s",
    "requests_came": "{value:requests} requests came in the last minute, about {limit:requests} would have",
    "acceptance": "{value:percent} of the draft tokens are accepted[, {limit:percent} before]",
    "tokens_per_step": "{value:factor} tokens per step and sequence",
    "itl_before": "ITL {value:latency}, {limit:latency} before",
    "turned": "{at:clock}: [{program} began on gpu {gpu:count}|{setting:setting} of gpu {gpu:count} {was} -> {to}"
    "|{setting:setting} {was} -> {to}|{setting:setting} {to} set|{setting:setting} {was} removed]",
    "rise_kv_usage_ratio": "KV cache {value:percent}, {per_min:percent} more a minute, full at {limit:percent}",
    "rise_waiting": "{value:requests} waiting, {per_min:requests} more a minute; {limit:requests} take {goal_s:latency} at this rate of answers",
    "rise_waiting_deferred": "{value:requests} wait for a KV transfer, {per_min:requests} more a minute",
    "rise_itl_mean_s": "mean ITL {value:latency}, {per_min:latency} more a minute, goal {limit:latency}",
    "rise_ttft_s": "mean TTFT {value:latency}, {per_min:latency} more a minute, goal {limit:latency}",
    "rise_vram_used_bytes": "VRAM {value:gib}, {per_min:gib} more a minute, full at {limit:gib}",
    "rise_memory_used_bytes": "host memory {value:gib}, {per_min:gib} more a minute, full at {limit:gib}",
    "no_running": "no request has run for {value:lasted}",
    "excess_of_replicas": "a step takes {value:factor} the time of its bytes at the peak bandwidth, "
    "[at its {others:count} replicas|at its replica] {limit:factor}",
    "pace_bandwidth_bytes_per_s": "memory traffic {value:bytes}/s, {limit:bytes}/s before",
    "pace_nvlink_bytes_per_s": "NVLink {value:bytes}/s, {limit:bytes}/s before",
    "pace_tensor_cycles_per_s": "tensor cores active in {value:amount} cycles/s, {limit:amount} before",
    "pace_cpu_ratio": "CPU {value:percent} of all cores, {limit:percent} before",
    "pace_disk_busy_ratio": "busiest disk {value:percent} busy, {limit:percent} before",
    "pace_network_rx_bytes_per_s": "receives {value:bytes}/s, {limit:bytes}/s before",
    "pace_memory_used_bytes": "memory {value:gib} used, {limit:gib} before",
    "pace_sm_clock_hz": "SM clock {value:ghz} GHz, {limit:ghz} GHz before",
    "trained_tokens_per_s": "{value:amount} tok/s, {limit:amount} before",
    "samples_per_s": "{value:amount} samples/s, {limit:amount} before",
    "step_excess": "a step takes {value:factor} the time of its bytes at the peak bandwidth, {limit:factor} before",
    "running_before": "{value:requests} running, {limit:requests} before",
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
    "tpot_p95": "TPOT p95 {value:latency} misses {limit:latency}[: {kept:percent} kept it in 2 minutes]",
    "tpot_by_mean": "ITL mean {value:latency} is beyond the TPOT goal of {limit:latency} (the engine exports no TPOT)",
    "itl_mean_late": "ITL mean {value:latency} misses {limit:latency}",
    "tpot_kept": "{value:percent} of the requests of 2 minutes keep the TPOT goal of {goal_s:latency}",
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
    "pcie_link": "PCIe {now} of {most}",
    "nvlinks_up": "NVLinks: {value:count} of {limit:count} up[, on its peers {peers:count}][; down: {lanes}]",
    "link_errors": "{link}: {value:count} errors in the last 3 min",
    "gpu_state": "state {state}[: {what}]",
    "xid": "Xid {value:count}: {value:xid} ([{times:count} times, last ]{ago:lasted} ago)",
    "remap_failed": "row remapping failed",
    "remap_pending": "a row waits to be remapped",
    "ecc_uncorrected": "{value:ecc_errors} since the driver was loaded[, {risen:count} of them in the last 3 min]",
    "throttle_share": "{reason}: {value:percent} of the last minute[, {counted:age} since gpumon started]",
    "temperature": "{value:count} °C now",
    "sm_clock": "SM clock {value:ghz} of {limit:ghz} GHz" + _WINDOW + "[; now {newest:ghz} GHz]",
    "power": "{value:count}[ of {limit:count}] W" + _WINDOW,
    "vram_used": "VRAM {value:gib} of {total:gib}",
    "vram_listed": "listed processes hold {value:gib}",
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
    "check_answer_timeouts": "compare the limits on the time of whole answers, of its clients and of the proxy between, with E2E[ (p95 {e2e_s:latency})], and find out which client stops them; a stop button is no fault",
    "find_timer": "look at it in the next pause, about {next:clock} (py-spy dump[ --pid {pid}]), and for what comes as often: garbage collection, checkpoints, log rotation, health probes, cron and systemd timers, a backup or scraper of its host",
    "find_stuck_request": "find the request at the head of its queue, which needs more than there is[ (KV cache: {tokens:tokens} tokens)], and let its client take it back; limit requests at the gateway[, or lower {flag}]; of an engine that a trainer pauses: resume it",
    "check_long_answers": "read some of them: text that repeats itself or goes on for ever wants its end token (chat template, eos_token_id, ignore_eos); text that breaks off wants a higher max_tokens",
    "check_short_answers": "send it one request by hand: nothing but an end token is a wrong chat template, stop token or model; a label is what was asked for",
    "check_refusals": "read the error that these clients get: prompt and max_tokens beyond the context[ ({flag})], a wrong parameter, a model that is not served; 401 (key) and 404 (model) count, too, where its page tells the class 4xx only",
    "check_nans": "send it one request by hand, look for NaN and overflow in its log; then bfloat16 for float16, another attention or quantisation kernel, and dcgmi diag -r 3 if its replicas have none",
    "take_out_of_balancer": "take it out of the load balancer until then",
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
    "start_again": "[{left=yes}after the end of [{pids}|what is left of it]: |{unseen=yes}if it has ended: ][{start} starts it again|start it again[: {command:command}]]",
    "restart_whole": "[{otherwise=yes}else ][{restart} starts it anew|[end what is left of it (kill {kill}), then ]start it again[: {command:command}]]",
    "check_scaled_down": "see in its log whether it was scaled down on purpose",
    "mend_part_stopped": "kill -CONT {pids} lets it go on",
    "mend_part_frozen": "[{unfreeze}|docker unpause or systemctl thaw] lets it go on",
    "mend_part_traced": "end the debugger that holds it (TracerPid in /proc/{pid}/status)",
    "mend_part_uninterruptible": "sudo cat /proc/{pid}/stack and sudo dmesg -T show what it waits for (driver, disk, network mount): free that first, as it cannot be killed",
    "mend_part_thread_uninterruptible": "ps -L -o tid,stat,wchan:40,comm -p {pid} shows the thread in state D and where it waits, sudo dmesg -T why (driver, disk, network mount): free that first, as it cannot be killed",
    "check_url": "curl -sS {url}/metrics shows whether a server is there: start it, correct the URL, or take its [[endpoint]] out of the config",
    "check_host": "[ping -c 3 {host} and ]curl -sS -m 5 {url}/health shows whether it answers; then read its log on its host",
    "read_last_log": "[{log} shows what it wrote last|tail -n 100 {file} shows what it wrote last|{ended=yes}sudo dmesg -T shows whether the kernel ended it (OOM, segfault, Xid); its own output is where it was started|read the last lines of its log before each end (kubectl logs --previous, docker logs, journalctl -u) and look for the OOM killer in dmesg; until that is fixed take it out of the load balancer]",
    "fix_gpu_first": "fix {gpus} first: a restart on the same GPUs fails until then",
    "wait_for_compile": "wait: the first request [{eager=yes}loads its kernels, for minutes|compiles kernels and graphs for minutes]; look at its log",
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
    "narrow_dtype": "{flag}: half the bytes, and tensor cores",
    "cuda_graphs": "take {flag} off its command line: CUDA graphs launch a whole step at once",
    "chunk_prompts": "{flag}: a long prompt then takes turns with the answers",
    "expert_parallel": "{flag}: whole experts on each GPU",
    "bigger_steps": "raise {flag}, so that a step takes more prompts",
    "bigger_batch": "send it more requests at once[, up to {wider:requests}]: a larger batch",
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
    "restart_for_kv": "restart it at a quiet moment: lost blocks come back with a new process alone; then look which requests lose them (aborted ones, transfers, a plugin), and for a fix in a newer version",
    "fewer_at_once": "or let fewer requests in at once until then",
    "look_at_transfers": "look at what sends the KV cache: its load, its link, its failures",
    "restart_in_time": "restart what grows before that, at a quiet moment, and look for what it keeps (memory of a step, a cache without a bound)",
    "take_back": "take the change of {setting:setting} back ([{to} -> {was}|without {to}|{was} again]), and see whether that was it",
    "look_at_time": "look at what was deployed or set at that time, and at the kernel's log of it: sudo journalctl -k --since @{began:count}",
    "compare_replicas": "look at the load balancer (its policy, weights, health checks, session or prefix affinity), and compare its GPU, clocks and options with those of its replicas",
    "rebalance_experts": "let it move experts by load (--enable-eplb), with more redundant ones (--ep-num-redundant-experts)",
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
    "end_holders": "drain it, then end what holds it: sudo fuser -v /dev/nvidia{index:count} lists it, monitors and DCGM, too; a process that does not end (state D) ends with a reboot only",
    "reset_mute_gpu": "once nothing holds it: sudo nvidia-smi --gpu-reset -i {index:count}; where that is refused, or hangs, as nvidia-smi may at this GPU: drain the node and reboot it",
    "reset_when_free": "reset it when it is free: nvidia-smi --gpu-reset -i {index:count}",
    "reset_span": "drain the jobs that span GPUs, then nvidia-smi --gpu-reset -i {index:count} (reboot where that is refused)",
    "count_nvlink_errors": "nvidia-smi nvlink -e -i {index:count} counts the errors of each link; if they grow again: reseat or replace GPU, bridge or switch",
    "read_driver_log": "`dmesg -T | grep -iE 'xid|gsp'` says why: after Xid 119 or 120 update the driver",
    "show_pcie_link": "sudo lspci -vv[ -s {bus}] | grep -E 'LnkCap:|LnkSta:' shows what slot and card can, and what they do (downgraded)",
    "reseat_pcie": "drain it, reseat the card, its riser and its cables; if it stays so: another slot, the link speed in the BIOS, another card",
    "show_nvlinks": "nvidia-smi nvlink -s -i {index:count} shows each link, `dmesg | grep -E 'Xid|NVLink'` why it went down",
    "reseat_nvlink": "drain the jobs that span GPUs, then nvidia-smi --gpu-reset -i {index:count} (with NVSwitch: all GPUs, and restart nvidia-fabricmanager); if they stay down: reseat or replace bridge, board or switch",
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
    "find_holder": "find who holds it: sudo fuser -v /dev/nvidia{index:count} on the host names every process, those in other containers too (lsof /dev/nvidia{index:count}; nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv)",
    "find_leak": "if there is none: an MPS server (pgrep -a nvidia-cuda-mps), else a context that its driver leaked: sudo nvidia-smi --gpu-reset -i {index:count} while nothing runs on it",
    "end_program": "[{otherwise=yes}else ]ask [{owner}|its owner] to end it, or end it"
    + _SAVES
    + ": that frees {vram_bytes:gib}",
    "less_vram": "smaller micro-batch with gradient accumulation, activation checkpointing, PYTORCH_ALLOC_CONF=expandable_segments:True; torch.cuda.memory_reserved() shows how much is only cached",
    "keep_vram_free": "start nothing more there and no larger batches until memory is freed",
    "ask_owner": "ask its owner whether it is still needed"
    + _SAVES
    + ": it can be ended, or share its GPU with others",
    "share_gpu_or_batch": "let it share its GPU with others, or give it larger batches",
    "use_free_gpu": "free for other work" + _SAVES,
    "free_cores": "[{gpus=yes}CPU work for the GPUs is delayed: ]move other jobs away, fewer workers than cores, pin the engine (taskset)",
    "find_reader": "find what reads and writes: iotop -o; put data and weights on local NVMe, in fewer and larger files",
    "find_cpu_user": "find out whose it is: top -o %CPU, systemd-cgtop; move it away, or give it fewer cores (taskset, cpu.max)",
    "find_memory_user": "find out whose it is: ps aux --sort=-rss | head, and files in memory: df -h -t tmpfs",
    "find_receiver": "find out whose it is: sudo ss -tinp state established, nethogs",
    "less_host_memory": "fewer data loader workers, smaller --swap-space or CPU offload, no pinned buffers; ps aux --sort=-rss | head",
    "dump_ranks": "py-spy dump --pid PID for each [of {pids}|rank]: one rank stands elsewhere than the others, or runs another collective (TORCH_NCCL_TRACE_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT record which); ranks of other hosts, too",
    "dump_rank": "py-spy dump --pid {pids} shows where this rank stands",
    "restart_job": "[{after=yes}then ]end [{program}|the program] and start it from its last checkpoint",
    "faster_checkpoint": "normal if it ends: save asynchronously (torch.distributed.checkpoint.async_save), sharded, or to local NVMe",
    "use_tensor_cores": "nothing to do for a simulation in FP64; a model: bf16 autocast, or torch.set_float32_matmul_precision('high')",
    "find_silent_gpu": "nvidia-smi -L and `dmesg | grep -i xid` on its host show whether the driver still lists it; nothing to do where it was taken out on purpose: acknowledge this",
    "see_all_gpus": "nothing to do where this process is given fewer GPUs on purpose (Slurm, a container, another exporter); else nvidia-smi -L and lspci -d 10de: on the host itself",
    "raise_cgroup_limit": "systemd-cgtop -m shows which is at its limit, its memory.events counts how often; raise it (docker update --memory, resources.limits.memory, MemoryMax=)",
    "check_cooling_amd": "check fans, airflow, inlet temperature, dust and power supply: amd-smi metric --gpu {index:count}",
    "find_hidden_process_amd": "start gpumon with --pid=host (Kubernetes: hostPID: true) to see it, or look with amd-smi process on the host",
    "inspect_gpu_amd": "look at gpu {index:count}: clocks (amd-smi metric --gpu {index:count}), heat, link, other processes on it",
    "lower_power_limit_amd": "until then a lower power limit keeps the clocks steady: sudo amd-smi set --gpu {index:count} --power-cap {watts:count}, and --power-cap {limit_w:count} takes it back",
    "end_holders_amd": "drain it, then end what holds it: sudo fuser -v /dev/kfd lists what has any of the GPUs open, monitors, too; a process that does not end (state D) ends with a reboot only",
    "reset_mute_gpu_amd": "once nothing holds it: sudo amd-smi reset --gpureset --gpu {index:count}; where that is refused, or hangs, as amd-smi may at this GPU: drain the node and reboot it",
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
        *(
            "fix_gpu_first",
            "inspect_gpu",
            "reset_gpu",
            "end_holders",
            "reset_mute_gpu",
            "read_driver_log",
            "show_pcie_link",
            "reseat_pcie",
            "show_nvlinks",
            "reseat_nvlink",
            "reset_when_free",
            "reset_span",
        ),
        *("count_nvlink_errors", "replace_if_again", "replace_gpu", "replace_if_remap_failed"),
        *("diagnose_if_again", "diagnose_when_free", "count_spare_rows", "power_cycle", "reseat_if_again"),
        *("ask_recovery", "look_up_xid", "check_cooling", "check_power_supply", "check_cooling_and_power"),
        *("check_cooling_amd", "inspect_gpu_amd", "reset_gpu_amd", "reset_when_free_amd"),
        *("end_holders_amd", "reset_mute_gpu_amd"),
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
        *("less_vram", "keep_vram_free", "share_gpu_or_batch", "restart_in_time"),
        *("dump_ranks", "dump_rank", "restart_job", "faster_checkpoint", "use_tensor_cores"),
    ),
    Team.CLIENT: (
        *("check_client_timeouts", "check_answer_timeouts", "check_refusals", "check_retries", "check_clients"),
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
        *(
            "find_hidden_process",
            "find_holder",
            "find_leak",
            "free_cores",
            "find_reader",
            "less_host_memory",
            "find_cpu_user",
            "find_memory_user",
            "find_receiver",
        ),
        *("find_silent_gpu", "see_all_gpus"),
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
    "gpu_mute": "does not answer the driver[: {what} does not return]",
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
