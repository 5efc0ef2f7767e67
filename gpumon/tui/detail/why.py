"""Why a figure is missing, in a sentence, and what to do about it: the exact line, flag or command.

A figure that a dcgm-exporter's page lacks has one that names the counter to add (`_why_not_on_page`). Of any other the
most special explanation holds: that of the thing (`_WHY_FREE`, `_WHY_OTHER_PROCESS`, `_WHY_NOT_TOLD_OF_GPU`,
`_WHY_OF_TRAINING`), else that of the figure (`_WHY_BY_FIELD_OF_VLLM`, `_WHY_BY_FIELD`), else that of the reason alone
(`_WHY_BY_REASON`). The tables `_TODO_BY_...` replace the action alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.efficiency.faults import NO_CONTEXT, NO_PREFILL, NO_STEPS
from gpumon.efficiency.service import BY_NATURE
from gpumon.figures.gpu import GPU
from gpumon.readings.dcgm import NAME_OF, NOT_OF_GPU, NOT_ON_PAGE, NOT_READ
from gpumon.readings.frame import EngineKind
from gpumon.readings.missing import (
    MAY_BE_IN_AMDSMI,
    NOT_EXPOSED,
    NOT_IN_AMDSMI,
    NOT_IN_SYSFS,
    REMOTE_POWER,
    SILENT_REASONS,
    Missing,
    Reason,
)
from gpumon.readings.nvml import NVML_FIGURES
from gpumon.readings.text import clean
from gpumon.readings.untrusted import MOST_URL, Untrusted
from gpumon.tui.detail.blocks import Explainer, Why

_ALLOW_COUNTERS: Final = (
    "for all users: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d/, then reload the driver; "
    "`sudo gpumon doctor` shows whether it is that"
)
_WAIT: Final = "shown within seconds"
_NEWER_VLLM: Final = (
    "a newer vLLM exports it, unless --disable-log-stats is set; `gpumon doctor` lists what is not exported"
)
_DOCTOR_LISTS: Final = "`gpumon doctor` lists what this engine does not export"

_LONGEST_DETAIL: Final = 400
"""Characters of the sentence that a missing figure has of its own."""

_WHY_BY_REASON: Final[dict[Reason, Why]] = {
    Reason.NOT_SUPPORTED: Why(
        "the driver has no such counter for this GPU",
        "nothing to do: it depends on the GPU, the driver, and whether it is virtual",
    ),
    Reason.NO_PERMISSION: Why(
        "the driver does not let your user read it",
        "`sudo gpumon doctor` tells if root may read it; in a container, pass the GPU's device nodes",
    ),
    Reason.LOST: Why(
        "the GPU no longer answers",
        "`dmesg | grep -i xid` shows why; drain this server, then power-cycle it",
    ),
    Reason.WARMING_UP: Why("a rate needs two readings; a quantile needs a full window", _WAIT),
    Reason.UNDER_MIG: Why(
        "MIG is on: known for the whole GPU or for its slices, not for both",
        "see the other rows of this GPU: the whole GPU and its slices",
    ),
    Reason.NOT_EXPOSED: Why("the engine does not export it", _DOCTOR_LISTS),
    Reason.NOT_LIVE: Why(
        "counted only when a request ends: a live rate would be 0, then a spike",
        "the total since gpumon started is exact",
    ),
    Reason.STALE: Why("the last reading is older than 3 intervals", "shown again with the next answer"),
    Reason.OFF: Why("switched off at its source or in the engine", "`gpumon doctor` names the switch"),
    Reason.NO_ENGINE: Why(
        "no engine that gpumon polls runs on this GPU",
        "if one does: gpumon --endpoint http://127.0.0.1:PORT, with its port",
    ),
    Reason.UNMAPPED: Why(
        "an engine with unknown GPUs answers: it may run on this one",
        "add to its [[endpoint]] in the config: gpus = [{gpu}]",
    ),
    Reason.NO_GPU: Why(
        "GPUs unknown{gpus_source}",
        "add to its [[endpoint]] in the config (url = {url}): gpus = [0, 1]; for an engine on another host: "
        'gpu_type = "H100 SXM 80GB" and gpu_count = 2',
    ),
    Reason.UNKNOWN_MODEL: Why(
        "model dimensions unknown, so FLOPs and bytes are unknown",
        "`gpumon doctor` prints the [[model]] lines to add to the config",
    ),
    Reason.NOT_MODELLED: Why(
        "there is no formula for this figure on this engine",
        "nothing to do: the other figures are not affected",
    ),
    Reason.UNKNOWN_GPU: Why(
        "no peak is known for this GPU at this precision",
        "`gpumon doctor` prints the [[gpu]] lines to add to the config",
    ),
    Reason.NO_CONTEXT: Why(*NO_CONTEXT),
    Reason.IDLE: Why("nothing happened in the window: no request, no token", "it comes with the next request"),
    Reason.FEW: Why(
        "fewer than 20 observations in 60 s: too few for a quantile",
        "see the mean; quantiles need more requests",
    ),
    Reason.RESET: Why(
        "counters were reset inside the window: the engine restarted",
        "shown after one window: 10 s, latencies 60 s",
    ),
    Reason.UNREACHABLE: Why(
        "the engine gives no figures",
        "see its row and the top of its page; `gpumon doctor` tries again",
    ),
    Reason.INVALID: Why(
        "the source sent a value out of range",
        "a bug of the engine or the driver: report it with the output of `gpumon snapshot --json`",
    ),
    Reason.ERROR: Why("the driver failed on this call", "retried; see `gpumon doctor` and dmesg"),
    Reason.NOT_GIVEN: Why("neither typed nor measured", "type it in the sizing panel"),
    Reason.NOT_MEASURED: Why("no published server is like it", "import a load test (gpumon profiles add)"),
    Reason.NO_PRICE: Why(
        "no price of this GPU is configured", "set gpu_hour of [prices] in the config, or its type in [prices.by_type]"
    ),
    Reason.NO_ENERGY_PRICE: Why("no price of energy is configured", "set kwh of [prices] in the config"),
    Reason.INFEASIBLE: Why(
        "no number of instances is enough", "the sizing panel names the goal or size that prevents it"
    ),
}
"""Explanations that hold for every figure. Names in braces are those of the thing: see `_why`."""
_WHY_OF_TRAINING: Final = {
    Reason.NOT_EXPOSED: Why(
        "it tells no tokens, and of samples not how many tokens they have",
        "in its [[feed]]: trained_tokens in [feed.quantities], or tokens_per_sample beside samples",
    ),
    Reason.WARMING_UP: Why("a rate needs two steps of the run, and some time between them", "shown after two steps"),
}
"""Explanations that hold for a training run."""
_WHY_NOT_TOLD_OF_GPU: Final = Why(
    "what this GPU is read from does not export it", "its page in the gpumon of its host says why"
)
"""Why a figure of a GPU of another host is not known, of which that host told no more."""
_READ_OF_GPU: Final = frozenset({*NAME_OF, *(figure.field for figure in NVML_FIGURES if GPU[figure.field].name)})
"""Figures that are read of a GPU; its others are worked out from those of its engines."""
_WHY_OTHER_PROCESS: Final = Why(
    "{other_process} runs here, and is no engine that gpumon polls",
    "a training run, or a server of your own: [[feed]] in the config, with gpus = [{gpu}]; an engine: gpumon "
    "--endpoint http://127.0.0.1:PORT, with its port",
)
"""Why there is no engine on a GPU that another process uses."""
_WHY_FREE: Final = Why("nothing runs on this GPU", "")
"""Why there is no engine on a GPU that nobody uses."""

_TODO_BY_KIND: Final[dict[EngineKind, str]] = {
    EngineKind.VLLM: _NEWER_VLLM,
    EngineKind.SGLANG: "SGLang 0.5.7 and newer export most; the rest with --enable-mfu-metrics, or not at all",
    EngineKind.LLAMA_CPP: "llama.cpp exports no latencies; KV use comes from /slots: start it without --no-slots",
    EngineKind.TENSORRT_LLM: "enable_iter_perf_stats: true in its config gives the gauges of each iteration",
    EngineKind.APHRODITE: "a newer Aphrodite may export it: it has what the vLLM that it is made from exports",
    EngineKind.TOKENSPEED: "TokenSpeed has no right figure of it: its ITL (0.1.1) takes in each token up to 3 times",
    EngineKind.VLLM_OMNI: "vLLM-Omni tells none of the whole pipeline; tokens of its stages are of different models",
    EngineKind.FASTDEPLOY: "FastDeploy does not export it: it counts prompts as they arrive, and not what is computed",
    EngineKind.MAX: "MAX up to 26.7 does not export it; a newer one may",
    EngineKind.XINFERENCE: "Xinference does not export it; the engine inside its worker has no page of its own",
    EngineKind.SGLANG_DIFFUSION: "SGLang exports no such figure of a diffusion model: nothing to do",
    EngineKind.TGI: "TGI does not export it: nothing to do",
    EngineKind.TEI: "TEI does not export it: nothing to do",
    EngineKind.LMDEPLOY: "LMDeploy up to 0.16 does not export it; a newer one may",
    EngineKind.TRITON: "its backend decides: TensorRT-LLM's counts no prompts; vLLM's needs REPORT_CUSTOM_METRICS",
    EngineKind.NIM: "NIM 1.x has few figures; 2.x has all those of the engine inside",
    EngineKind.DYNAMO: "not known to a frontend: add the endpoints of its workers (DYN_SYSTEM_PORT)",
    EngineKind.RAY: "Ray passes on what the engine in its replicas exports: a newer vLLM or SGLang has more",
    EngineKind.OLLAMA: "Ollama exports which models are loaded, and no figures of its work",
    EngineKind.LITELLM: "LiteLLM counts the rest at its backends, or not at all: nothing to do",
    EngineKind.GATEWAY: "a newer endpoint picker may export it; its backends have the rest",
    EngineKind.VLLM_STACK: "a newer router of the production stack may export it; its backends have the rest",
    EngineKind.VLLM_ROUTER: "the router does not look into the answers: its backends know it",
    EngineKind.SMG: "over HTTP the router does not look into the answers, through gRPC it does; its backends know it",
    EngineKind.GENERIC: "add the metric to [feed.quantities] in the config, if the server has it",
}
"""Actions for a figure that is not exported and has no explanation of its own, by kind of engine."""

_GPM: Final = "GPM counts it, on Hopper and newer with driver 525 or newer, and not inside a vGPU"
_NO_GPM: Final = "nothing to do: older GPUs report busy and memory busy only"
_NVLINK: Final = "no NVLink, or the driver does not count its traffic"
_WHY_BY_FIELD: Final[dict[tuple[str, Reason], Why]] = {
    **{
        (field, Reason.NOT_EXPOSED): Why("/proc has no such figure of this process", "run gpumon as root, on the host")
        for field in ("cpu_ratio", "rss_bytes")
    },
    **{
        (field, Reason.NOT_SUPPORTED): Why(_GPM, _NO_GPM)
        for field in ("sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio")
    },
    **{
        (field, Reason.NO_PERMISSION): Why("the driver keeps activity counters for administrators", _ALLOW_COUNTERS)
        for field in (
            "sm_active_ratio",
            "sm_occupancy_ratio",
            "tensor_active_ratio",
            "pcie_tx_bytes_per_s",
            "pcie_rx_bytes_per_s",
            "nvlink_tx_bytes_per_s",
            "nvlink_rx_bytes_per_s",
        )
    },
    **{
        (field, Reason.NOT_SUPPORTED): Why(_GPM, "`nvidia-smi dmon -s t` reads older GPUs, at 20 ms per reading")
        for field in ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")
    },
    **{
        (field, Reason.NOT_SUPPORTED): Why(_NVLINK, "`nvidia-smi nvlink --status` shows whether there are links")
        for field in ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")
    },
    **{
        (field, Reason.RESET): Why(
            "the GPU's counter fell: the GPU was reset, or its driver reloaded", "it comes back with the next reading"
        )
        for field in ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")
    },
    **{
        (field, Reason.NOT_SUPPORTED): Why(
            "the memory of this GPU has no error correction, it is off, or what the GPU is read from does not tell",
            "`nvidia-smi --query-gpu=ecc.mode.current --format=csv` shows which",
        )
        for field in ("ecc_mode", "ecc_corrected", "ecc_uncorrected", "remap_pending", "remap_failed")
    },
    ("sm_ratio", Reason.NOT_SUPPORTED): Why(
        "the driver does not sample per-process shares here (MIG, vGPU, WSL, or an older GPU)", "nothing to do"
    ),
    ("sm_ratio", Reason.IDLE): Why("no sample of this process in the last seconds: it did nothing on this GPU", ""),
    ("vram_bytes", Reason.NOT_SUPPORTED): Why(
        "not reported by the driver: the process is in another container or virtual machine, or under WSL",
        "run gpumon on the host",
    ),
    ("decode_tokens_per_s", Reason.NOT_LIVE): Why(
        _WHY_BY_REASON[Reason.NOT_LIVE].sentence, "see the mean over minutes below; the total is exact"
    ),
    ("mfu_ratio", Reason.INVALID): Why(
        "its tokens need more FLOP/s than its GPUs have",
        "its GPUs, the model's dimensions or the token counts are wrong: `gpumon doctor`, `gpumon models show NAME`",
    ),
    ("own_read_bytes", Reason.INVALID): Why("the engine's own count is known to be wrong", "nothing to do"),
    ("tp", Reason.NO_GPU): Why("its GPUs are not known, or do not divide evenly over its ranks", ""),
}
"""Explanations of single figures, by their field and reason."""


_WHY_BY_FIELD_OF_VLLM: Final[dict[tuple[str, Reason], Why]] = {
    ("steps_per_s", Reason.NOT_EXPOSED): Why(*NO_STEPS),
    ("prefill_tokens_per_s", Reason.NOT_EXPOSED): Why(*NO_PREFILL),
    ("cached_tokens_per_s", Reason.NOT_EXPOSED): Why(
        "the engine does not count hits of its prefix cache",
        "a newer vLLM does; with --no-enable-prefix-caching no token is cached, and there is nothing to count",
    ),
    ("kv_pool_tokens", Reason.NOT_EXPOSED): Why(
        "the engine does not say how many tokens its KV cache holds", "vLLM 0.24 and newer do, for every model"
    ),
    ("itl_s", Reason.NOT_EXPOSED): Why(
        "the engine exports no inter-token latency", "vLLM does, unless it was started with --disable-log-stats"
    ),
}
"""Explanations of single figures of vLLM; they go before those of `_WHY_BY_FIELD`."""


_TODO_BESIDE_DETAIL: Final = {
    Reason.FEW: "it comes with more requests",
    Reason.UNKNOWN_MODEL: "say params_b, flops_per_token or model in its [[feed]] of the config",
}
"""Actions for a missing figure whose `Missing` has a sentence of its own, by its reason."""


_TODO_BY_MISSING: Final[dict[Missing, str]] = {
    **dict.fromkeys((*BY_NATURE, NOT_IN_AMDSMI, NOT_IN_SYSFS), ""),
    REMOTE_POWER: "gpumon on that host reads it",
    NOT_READ: "gpumon on that host asks the driver for it",
    MAY_BE_IN_AMDSMI: "`gpumon doctor` has the line that installs it",
}
"""Actions that depend neither on the figure nor on its owner; empty where there is nothing to do."""


_NEEDS_COUNTERS: Final = "its counters file (option -f) needs"
_COUNTERS: Final[Mapping[str, str]] = {
    **NAME_OF,
    "bandwidth_bytes_per_s": NAME_OF["dram_active_ratio"],
    "tokens_per_j": NAME_OF["power_w"],
}
"""Figure -> the counter of a dcgm-exporter that it is read from, or worked out from."""


class Subject(NamedTuple):
    """The owner of the figures, for the texts that name it."""

    is_blank: bool = False
    """Whether all its figures are missing for one reason, which stands at the top of the page."""
    gpu: int = 0
    """Index of a GPU."""
    url: str = "http://127.0.0.1:8000"
    """URL of an engine."""
    gpus_source: str = ""
    """How the GPUs of an engine were looked for."""
    kind: EngineKind = EngineKind.UNKNOWN
    other_process: str = ""
    """A process on a GPU that is no engine; empty where there is none."""
    is_free: bool = False
    """Whether nothing runs on a GPU."""
    is_gpu: bool = False
    """Whether it is a GPU."""
    is_training: bool = False
    """Whether an engine is a training run."""


def make_explainer(subject: Subject) -> Explainer:
    """A function that explains missing figures of one thing, as `FigureMaker` needs it."""
    return lambda missing, field: _why(subject, missing, field)


@lru_cache(maxsize=1024)
def _why(subject: Subject, missing: Missing, field: str) -> Why:
    """The reason and the action for a missing figure, with the names of its owner put in."""
    why = _explanation(subject, missing, field)
    gpus_source = f" ({subject.gpus_source})" if subject.gpus_source else ""
    names = {
        "gpu": str(subject.gpu),
        "url": Untrusted(subject.url).in_config(MOST_URL),
        "gpus_source": gpus_source,
        "other_process": subject.other_process,
    }
    if missing.detail:
        sentence = clean(missing.detail, _LONGEST_DETAIL)
    else:
        sentence = _fill(why.sentence, names)
    is_said = subject.is_blank and missing.reason in SILENT_REASONS
    return why._replace(sentence=sentence, todo=_fill(why.todo, names), quiet=is_said)


def _explanation(subject: Subject, missing: Missing, field: str) -> Why:
    """The most special explanation that there is: by the owner, then by the figure, then by the reason alone."""
    if missing == NOT_ON_PAGE:
        return _why_not_on_page(field)
    if missing == NOT_OF_GPU:
        return Why(NOT_OF_GPU.detail, "")
    if missing == NOT_EXPOSED and subject.is_gpu and field in _READ_OF_GPU:
        return _WHY_NOT_TOLD_OF_GPU
    if missing.reason is Reason.NO_ENGINE and subject.is_free:
        return _WHY_FREE
    if missing.reason is Reason.NO_ENGINE and subject.other_process:
        return _WHY_OTHER_PROCESS
    if subject.is_training and missing.reason in _WHY_OF_TRAINING:
        why = _WHY_OF_TRAINING[missing.reason]
    else:
        why = _why_of_figure(subject, missing, field)
        why = why._replace(todo=_todo(subject, missing, why))
    return why._replace(todo=_TODO_BY_MISSING.get(missing, why.todo))


def _why_not_on_page(field: str) -> Why:
    """Why a dcgm-exporter does not tell a figure: its counters file lacks the counter, which the action names."""
    if field in _COUNTERS:
        return Why(NOT_ON_PAGE.detail, _NEEDS_COUNTERS, item=_COUNTERS[field])
    return Why(NOT_ON_PAGE.detail, "")


def _todo(subject: Subject, missing: Missing, why: Why) -> str:
    """The action: that of `why`, unless its reason or the kind of engine knows a better one."""
    if missing.detail:
        return _TODO_BESIDE_DETAIL.get(missing.reason, why.todo)
    if why is _WHY_BY_REASON[Reason.NOT_EXPOSED]:  # no explanation of this figure: what holds for the engine
        return _TODO_BY_KIND.get(subject.kind, why.todo)
    return why.todo


def _why_of_figure(subject: Subject, missing: Missing, field: str) -> Why:
    """The explanation of this figure, else that of the reason."""
    key = (field, missing.reason)
    if subject.kind is EngineKind.VLLM and key in _WHY_BY_FIELD_OF_VLLM:
        return _WHY_BY_FIELD_OF_VLLM[key]
    if key in _WHY_BY_FIELD:
        return _WHY_BY_FIELD[key]
    return _WHY_BY_REASON[missing.reason]


def _fill(text: str, names: Mapping[str, str]) -> str:
    """The text with names in place of `{gpu}` and the like; other braces, as those of TOML, are left alone."""
    for placeholder, name in names.items():
        text = text.replace(f"{{{placeholder}}}", name)
    return text
