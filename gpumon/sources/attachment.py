"""Adds to an engine's reading what its endpoint cannot tell: the model's dimensions and the GPUs it runs on."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from gpumon.config.schema import Endpoint, Model
from gpumon.efficiency.service import ROUTER_KINDS
from gpumon.readings.frame import (
    MODEL_AWAITED,
    EndpointState,
    EngineKind,
    EngineReading,
    GpuReading,
    Phase,
    Training,
)
from gpumon.readings.missing import NOT_EXPOSED, Reading
from gpumon.readings.quantities import DRAFTS
from gpumon.readings.text import clean
from gpumon.sources.endpoint_url import FILE
from gpumon.sources.engine_options import with_options
from gpumon.sources.file_views import has_no_files, views_of
from gpumon.sources.model_facts import look_up
from gpumon.sources.offload import daemon_thread
from gpumon.sources.ownership import Ownership
from gpumon.sources.packaged import llm_catalogue
from gpumon.sources.probe import IDENTITY
from gpumon.specs.hints import DTYPE, SPEC_HINTS, STORAGE_HINTS, hints_of
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_hints import left_out_by
from gpumon.specs.not_modelled import SPECULATIVE_DRAFTS

_LookupKey = tuple[str, str, tuple[tuple[str, str], ...], str, int]
"""Key of a look at a model: name, root, hints of the engine (sorted pairs), its URL, pid of the process whose view of
files counts."""
SpecOrReason = tuple[LlmSpec | None, str]
"""A model's spec and where it is from; or None and the reason, which is empty while it is looked for."""
_STILL_LOOKING: Final[SpecOrReason] = (None, "")
_MOST_MODELS: Final = 256
"""Looks at models that are remembered (those asked for last). Beyond them no lookup begins while none has finished."""
MOST_ATTACHED: Final = 1024
"""Engines whose last reading, and the process whose view of files counts, are kept: beyond them all are dropped."""
_SILENT_S: Final = 10.0
"""Seconds after which a look at a model's files is said to hang."""

BY_CONFIG: Final = "config"
"""How GPUs are known that the config names."""
_REMOTE = "set gpu_type and gpu_count for this endpoint in the config"
NO_GPU_YET: Final = f"no GPU of this host is known yet: if the engine runs elsewhere, {_REMOTE}"
NOT_READ: Final = f"GPUs are not read (--no-nvml): {_REMOTE}"
NAMELESS: Final = "the server does not tell its model's name: set model for this endpoint in the config"
NAMELESS_FEED: Final = "the feed does not say which model it is: set model in its [[feed]]"
NOT_LOOKED: Final = "discovery is off, or the driver is not read: set gpus = [..] for this endpoint in the config"

NO_PROCESS: Final = "a file does not tell who writes it: set gpus = [..], or gpu_type and gpu_count, for this feed"
OF_ALL_RANKS: Final = (
    "a training run counts for all its processes, of which one listens: set gpus = [..], or gpu_type and gpu_count, "
    "for this feed"
)


class EngineResolver:
    """Looks up the models of engines and the GPUs they run on, and adds both to their readings.

    Model files are read in a thread, once a model; until then the model is unknown.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        models: Sequence[Model],
        owner: Ownership | None,
        env: Mapping[str, str] | None = None,
        *,
        nvml: bool = True,
    ) -> None:
        """`endpoints` by URL as in the readings; `nvml` says whether the GPUs of this host are read at all."""
        self._endpoints = endpoints
        self._models = tuple(models)
        self._owner = owner
        self._env = os.environ if env is None else env
        self._no_gpu = NO_GPU_YET if nvml else NOT_READ
        self._lookups: dict[_LookupKey, tuple[Future[SpecOrReason], float]] = {}
        """Models that threads look up or have looked up, and since when; those asked for last at the end."""
        self._processes: dict[str, int] = {}
        """By URL: a process of its server, whose rights and view of files count."""
        self._attached: dict[str, tuple[tuple[object, ...], EngineReading]] = {}
        """`EngineReading.key` -> the parts of the last attached reading, and that reading: while no part changes,
        `attach` returns the same object."""

        self._told: dict[str, tuple[EngineReading | None, tuple[str, ...], EngineReading]] = {}
        """`EngineReading.key` -> the last reading, its GPUs, and that reading with its options."""

    def attach(self, reading: EngineReading, gpus: tuple[GpuReading, ...]) -> EngineReading:
        """The reading with its model and GPUs, as far as they are known by now."""
        if reading.kind in ROUTER_KINDS:
            return reading
        endpoint = self._endpoints.get(reading.key) or self._endpoints.get(reading.url, Endpoint(url=reading.url))
        uuids, source = self._gpus(endpoint, reading, gpus)
        told = self._with_options(reading, uuids, gpus)
        llm, why = self._spec(endpoint, told)
        parts = (told, endpoint, llm, why, uuids, source)
        last_parts, last_attached = self._attached.get(reading.key, ((), reading))
        if parts == last_parts:
            return last_attached
        info = _info_without_model(reading, why) if llm is None else reading.info
        context_tokens: Reading = endpoint.context_tokens if endpoint.context_tokens is not None else NOT_EXPOSED
        attached = msgspec.structs.replace(
            told,
            llm=with_extra_work(llm, reading),
            training=_training_of(reading, llm),
            info=info,
            gpus=uuids,
            gpus_source=source,
            gpu_type=endpoint.gpu_type,
            gpu_count=endpoint.gpu_count,
            context_tokens=context_tokens,
        )
        if len(self._attached) >= MOST_ATTACHED:
            self._attached.clear()
        self._attached[reading.key] = (parts, attached)
        return attached

    def _with_options(
        self, reading: EngineReading, uuids: tuple[str, ...], gpus: tuple[GpuReading, ...]
    ) -> EngineReading:
        """The reading with the options of its engine, put together once for each poll."""
        last_reading, last_uuids, told = self._told.get(reading.key, (None, (), reading))
        if last_reading is reading and last_uuids == uuids:
            return told
        told = with_options(reading, [gpu for gpu in gpus if gpu.uuid in uuids])
        if len(self._told) >= MOST_ATTACHED:
            self._told.clear()
        self._told[reading.key] = (reading, uuids, told)
        return told

    async def settle(self, readings: Sequence[EngineReading]) -> None:
        """Wait until the models of these engines are looked up, or hang."""
        for reading in readings:
            self.attach(reading, ())  # begins the look at its model
        lookups = [asyncio.wrap_future(future) for future, _ in self._lookups.values()]
        if lookups:
            await asyncio.wait(lookups, timeout=_SILENT_S)

    def label(self, gpus: tuple[GpuReading, ...], engines: tuple[EngineReading, ...]) -> tuple[GpuReading, ...]:
        """The GPUs, with the name of its engine at each process that is known to belong to one.

        Which of a server's models a process runs is not known: it gets the server's name then.
        """
        if self._owner is None:
            return gpus
        names: dict[int, str] = {}
        for engine in engines:
            for pid in self._owner.pids_of(engine.url):
                if pid in names:  # a second model of the same server
                    names[pid] = engine.server_name
                else:
                    names[pid] = engine.name
        if not names:
            return gpus
        return tuple(_label_gpu(gpu, names) for gpu in gpus)

    def _gpus(
        self, endpoint: Endpoint, reading: EngineReading, gpus: tuple[GpuReading, ...]
    ) -> tuple[tuple[str, ...], str]:
        """UUIDs of an engine's GPUs, and how they are known; or none, and why."""
        if endpoint.gpu_type and endpoint.gpus == "auto":  # before the others: such an engine needs no GPU here
            return (), "config (another host)"
        if not gpus:
            return (), self._no_gpu
        if endpoint.gpus != "auto":
            return gpus_by_index(endpoint.gpus, gpus)
        if reading.url.startswith(FILE):
            return (), NO_PROCESS
        if reading.phase is Phase.TRAINING:
            return (), OF_ALL_RANKS
        if self._owner is None:
            return (), NOT_LOOKED
        return self._owner.gpus_of(reading.url, gpus)

    def _spec(self, endpoint: Endpoint, reading: EngineReading) -> SpecOrReason:
        """The spec of an engine's model, or why there is none; the text is empty while it is looked for.

        The first call for a model begins a look at its files in a thread; later calls return what that has found.
        """
        model, root = _name_and_root(endpoint, reading)
        hints = _hints(endpoint, reading)
        pid = self._representative_pid(reading.url)
        if not model:
            return _nameless(reading)
        key = (model, root, tuple(sorted(hints.items())), reading.url, pid)
        lookup = self._lookups.pop(key, None)
        if lookup is None:
            if len(self._lookups) >= _MOST_MODELS and not self._forget_a_lookup():
                return None, "the files of too many models do not answer: is that a mount that hangs?"
            from_config = bool(endpoint.model)
            future = daemon_thread(self._resolve, model, root, hints, reading.url, pid, from_config)
            lookup = (future, time.monotonic())
        self._lookups[key] = lookup  # put back at the end: it was asked for last
        future, begun_s = lookup
        if future.done():
            return _result(future)
        if time.monotonic() - begun_s > _SILENT_S:
            return None, f"its files do not answer ({clean(root or model, 80)}): is that a mount that hangs?"
        # Until it is done, the result of the lookup that was begun before a process was known (pid 0) still holds.
        lookup_without_pid = self._lookups.get((model, root, key[2], reading.url, 0))
        if lookup_without_pid is not None and lookup_without_pid[0].done():
            return _result(lookup_without_pid[0])
        return _STILL_LOOKING

    def _forget_a_lookup(self) -> bool:
        """Forget the finished lookup that was asked for longest ago; False if none has finished."""
        for key, (future, _) in self._lookups.items():
            if future.done():
                del self._lookups[key]
                return True
        return False

    def _resolve(
        self, model: str, root: str, hints: Mapping[str, str], url: str, pid: int, from_config: bool
    ) -> SpecOrReason:
        """The spec of a model; it reads files, so it runs in a thread."""
        views = views_of(self._env, pid, url, own_word=from_config)
        facts = look_up(model, root, self._models, llm_catalogue(), views, hints)
        return facts.spec, facts.why

    def _representative_pid(self, url: str) -> int:
        """The process of an engine through whose eyes its files are read; 0 where none is known.

        It stays the same until it has ended and others took its place: a GPU that fails takes its processes off the
        list, and the model is none other for that.
        """
        pids = self._owner.pids_of(url) if self._owner is not None else frozenset()
        pid = self._processes.get(url, 0)
        if pids and pid not in pids and (not pid or has_no_files(pid)):
            if len(self._processes) >= MOST_ATTACHED:
                self._processes.clear()
            pid = min(pids)  # any of them; the same one each time
            self._processes[url] = pid
        return pid


def gpus_by_index(indices: Sequence[int], gpus: Sequence[GpuReading]) -> tuple[tuple[str, ...], str]:
    """UUIDs of the GPUs of an engine's host that the config names by index, and how they are known; or none, and
    why."""
    # A slice has the index of its GPU.
    by_index = {gpu.index: gpu.uuid for gpu in gpus if not gpu.parent_uuid}
    for index in indices:
        if index not in by_index:
            return (), f"the config names GPU {index}, its host has {sorted(by_index)}"
    return tuple(by_index[index] for index in indices), BY_CONFIG


def _name_and_root(endpoint: Endpoint, reading: EngineReading) -> tuple[str, str]:
    """The model's name, and the path or id that it was loaded from.

    A name from the config stands alone: the root that the server tells may be that of another model.
    """
    if not endpoint.model and IDENTITY in reading.info:
        return reading.model, reading.model_root
    return endpoint.model, ""


def _hints(endpoint: Endpoint, reading: EngineReading) -> dict[str, str]:
    """The hints of an engine on its model by key; for a model that the config names, only those on how it is stored."""
    hints = hints_of({DTYPE: reading.options.dtype, **reading.info})
    keys: Sequence[str] = STORAGE_HINTS if endpoint.model else SPEC_HINTS
    return {key: hints[key] for key in keys if key in hints}


def _nameless(reading: EngineReading) -> SpecOrReason:
    """Why a model without a name has no spec; no reason yet before the server was asked for the name."""
    if IDENTITY not in reading.info:
        return _STILL_LOOKING
    if reading.kind is EngineKind.GENERIC:
        return None, NAMELESS_FEED
    return None, NAMELESS


def _result(done: Future[SpecOrReason]) -> SpecOrReason:
    """The result of a finished lookup; its failure is the reason."""
    error = done.exception()
    if error is not None:
        return None, f"{type(error).__name__}: {error}"
    return done.result()


def with_extra_work(llm: LlmSpec | None, reading: EngineReading) -> LlmSpec | None:
    """The spec, whose `not_modelled` names also the work of this engine beside the model's forward pass."""
    if llm is None:
        return None
    notes = left_out_by(reading.info)
    if any(rank.counters.get(DRAFTS, 0.0) > 0.0 for rank in reading.ranks):
        notes = (*notes, SPECULATIVE_DRAFTS)
    not_modelled = tuple(dict.fromkeys((*llm.not_modelled, *notes)))
    if len(not_modelled) == len(llm.not_modelled):  # nothing was added
        return llm
    return msgspec.structs.replace(llm, not_modelled=not_modelled)


def _label_gpu(gpu: GpuReading, names: Mapping[int, str]) -> GpuReading:
    """The GPU with the names of engines at its processes; the same object where none has one."""
    if not any(process.pid in names for process in gpu.processes):
        return gpu
    processes = []
    for process in gpu.processes:
        name = names.get(process.pid, process.engine)
        processes.append(msgspec.structs.replace(process, engine=name))
    return msgspec.structs.replace(gpu, processes=tuple(processes))


def _training_of(reading: EngineReading, llm: LlmSpec | None) -> Training | None:
    """The training of a feed, with what its tokens cost; None where nothing is trained."""
    if reading.training is None:
        return None
    from gpumon.sources.feed_readings import training_with_cost

    return training_with_cost(reading.training, llm)


def _info_without_model(reading: EngineReading, why: str) -> dict[str, str]:
    """The `info` of a reading whose model is not known: why, or that it is still looked up."""
    if why:
        return {**reading.info, "model_missing": why}
    if reading.state in (EndpointState.OK, EndpointState.STARTING):
        return {**reading.info, MODEL_AWAITED: ""}
    return reading.info
