"""Files of load tests -> profiles, one per model, server and request lengths: all of them, or none and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from gpumon.sizing.imports.content import ImportContent
from gpumon.sizing.imports.files import (
    MOST_FILES,
    MOST_IMPORT_BYTES,
    FilePlace,
    ImportProblem,
    ImportRefused,
    lines_of,
    refusal,
)
from gpumon.sizing.imports.formats import gpu_usage
from gpumon.sizing.imports.points import problems_of_run, profile_of_runs
from gpumon.sizing.imports.runs import BenchmarkRun
from gpumon.sizing.profile import Observed
from gpumon.specs.gpu import GpuFacts
from gpumon.specs.gpus import GpuCatalogue

_SYSTEMS: Final = {
    "a100": "A100 SXM4 80GB", "a100_sxm": "A100 SXM4 80GB", "h100": "H100 SXM5 80GB", "h100_sxm": "H100 SXM5 80GB",
    "h200": "H200 SXM 141GB", "h200_sxm": "H200 SXM 141GB", "b200_sxm": "B200 SXM 180GB", "b300_sxm": "B300 SXM 288GB",
    "gb200_sxm": "GB200", "gb300_sxm": "GB300", "gb200_nvl72": "GB200", "gb300_nvl72": "GB300",
    "rtx_pro_6000_server": "RTX PRO 6000 Blackwell Server", "mi300x": "Instinct MI300X", "mi325x": "Instinct MI325X",
    "mi355x": "Instinct MI355X",
}  # fmt: skip
"""Name of a system in aiconfigurator and InferenceX (theirs are the SXM parts) -> its catalogue name."""
_HUB_CACHE: Final = re.compile(r"models--([^/]+?)--([^/]+)/")
_OPTIONS: Final = {
    "gpus": "--gpus", "tp": "--tp", "pp": "--pp", "weight_precision": "--precision", "kv_precision": "--kv-precision",
}  # fmt: skip
"""Fields that a file and an option must not say differently."""
_ALIKE: Final = 0.10
"""Measured request lengths that differ by less are the same workload."""


class Given(msgspec.Struct, frozen=True):
    """Facts that the user knows and a file may leave out. A file that says otherwise is refused, but for the names."""

    name: str = ""
    model: str = ""
    gpu: str = ""
    """Catalogue name of the GPUs."""
    gpus: int = 0
    tp: int = 0
    pp: int = 0
    weight_precision: str = ""
    kv_precision: str = ""
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    concurrency: tuple[float, ...] = ()
    """Requests in flight in the files that do not tell it, in their order."""
    memory_bytes: float | None = None
    """Memory of one instance, in bytes."""
    busy_ratio: float | None = None


class Imported(NamedTuple):
    """The profiles, by name, and what the user should know about how they were read."""

    profiles: tuple[Observed, ...]
    notes: tuple[str, ...]


def imported(files: Mapping[str, bytes], given: Given | None = None, catalogue: GpuCatalogue | None = None) -> Imported:
    """One profile per model, hardware and request lengths, whatever files it is spread over.

    `files` is name -> content; the format is told by the content. `given` fills what the files leave out. Raises
    ImportRefused, which names every problem that was found; then nothing is imported.
    """
    given = Given() if given is None else given
    _check_size(files)
    content = ImportContent()
    for file, data in files.items():
        content.read(file, data)
    content.check(FilePlace(next(iter(files))))
    read = content.named_runs()
    notes = list(chain.from_iterable(run.notes for run in read))
    once = _without_copies(read, notes)
    usage = gpu_usage(content.gpu_sheets)
    filled = []
    for run in once:
        measured = msgspec.structs.replace(run, **usage.get(run.key, {}))
        filled.append(_filled(measured, given, catalogue, notes))
    runs = _loaded(filled, given)
    profiles = _gather(runs, given)
    notes += [f"not taken: {line}" for line in lines_of(content.left_out)]
    notes += _unknown(runs)
    return Imported(profiles, tuple(dict.fromkeys(notes)))


def _check_size(files: Mapping[str, bytes]) -> None:
    """Raises ImportRefused for no files, or too many or too large ones."""
    first = FilePlace(next(iter(files), "(no file)"))
    if not files or len(files) > MOST_FILES:
        raise refusal(first, "", f"{len(files)} files", f"1 to {MOST_FILES} at a time")
    if sum(map(len, files.values())) > MOST_IMPORT_BYTES:
        allowed = "summaries of load tests, not their requests"
        raise refusal(first, "", f"all files together are larger than {MOST_IMPORT_BYTES / 1e6:.0f} MB", allowed)


def _without_copies(runs: Sequence[BenchmarkRun], notes: list[str]) -> list[BenchmarkRun]:
    """The runs, each once: no two runs of a load test agree in every digit."""
    once: dict[BenchmarkRun, BenchmarkRun] = {}
    for run in runs:
        once.setdefault(msgspec.structs.replace(run, place=FilePlace("")), run)
    copies = len(runs) - len(once)
    if copies:
        notes.append(f"{copies} of {len(runs)} runs stand in the files more than once: they count once")
    return list(once.values())


def _unknown(runs: Sequence[BenchmarkRun]) -> Iterator[str]:
    """Facts that the files leave open, and the cost of that."""
    if any(run.prompt_tokens is None or run.answer_tokens is None for run in runs):
        yield (
            "request lengths are not in the file: without --prompt-tokens and --answer-tokens a profile holds for its "
            "own requests alone"
        )
    if any(run.offered is None for run in runs):
        yield "requests in flight are worked out: requests/s x seconds in the system"
    if any(not run.gpu for run in runs):
        yield "the GPU is not in the file: without --gpu a profile is not re-scaled to other GPUs"


def _loaded(runs: Sequence[BenchmarkRun], given: Given) -> list[BenchmarkRun]:
    """With the concurrency that their files leave out. Raises ImportRefused where the given ones do not fit."""
    asking = []
    for index, run in enumerate(runs):
        if run.offered is None and not run.open_loop:
            asking.append(index)
    if not given.concurrency:
        return list(runs)
    if len(given.concurrency) != len(asking):
        reason = f"{len(given.concurrency)} values for {len(asking)} runs that do not tell theirs"
        place = runs[asking[0] if asking else 0].place
        raise refusal(place, "--concurrency", reason, "one value per such run, in the order of the files")
    values = dict(zip(asking, given.concurrency, strict=True))
    return [msgspec.structs.replace(run, offered=values.get(index, run.offered)) for index, run in enumerate(runs)]


def _filled(run: BenchmarkRun, given: Given, catalogue: GpuCatalogue | None, notes: list[str]) -> BenchmarkRun:
    """The run with what the user gave, and with the catalogue's name of its GPU."""
    options = {}
    for name, option in _OPTIONS.items():
        in_file = getattr(run, name)
        typed = getattr(given, name)
        if in_file and typed and in_file != typed:
            raise refusal(run.place, name, f"is {in_file} in the file, {typed} in {option}")
        options[name] = in_file or typed
    return msgspec.structs.replace(
        run,
        model=given.model or _published_name(run.model),
        gpu=given.gpu or _catalogue_name(run.gpu, catalogue, notes),
        **options,
        prompt_tokens=given.prompt_tokens if run.prompt_tokens is None else run.prompt_tokens,
        answer_tokens=given.answer_tokens if run.answer_tokens is None else run.answer_tokens,
    )


def _published_name(model: str) -> str:
    """The name of a model; of a path in the cache of the hub the published one."""
    cached = _HUB_CACHE.search(model)
    if cached:
        return f"{cached[1]}/{cached[2]}"
    return model


def _catalogue_name(text: str, catalogue: GpuCatalogue | None, notes: list[str]) -> str:
    """The catalogue's name of a GPU that a file names in its own way; empty, with a note, where it is not found."""
    if not text or catalogue is None:
        return ""
    known = _SYSTEMS.get(text.lower().replace("-", "_"), text)
    try:
        return (catalogue.match(GpuFacts(known)) or catalogue.find(known)).name
    except ValueError:
        notes.append(f"the catalogue has no GPU {text}: name it with --gpu")
        return ""


def _gather(runs: Iterable[BenchmarkRun], given: Given) -> tuple[Observed, ...]:
    """All profiles in the runs, by name: runs of one server with alike prompts and answers are one.

    What differs in a server's settings is never one sweep. Raises ImportRefused for runs that lack what they need.
    """
    groups: dict[tuple[object, ...], list[BenchmarkRun]] = {}
    for run in runs:
        server = (run.model, run.variant, run.gpu, run.gpus, run.tp, run.pp)
        options = (run.weight_precision, run.kv_precision, run.max_num_seqs, run.settings)
        groups.setdefault((*server, *options), []).append(run)
    alike = list(groups.values())
    for length in ("prompt_tokens", "answer_tokens"):
        alike = list(chain.from_iterable(_split(group, length) for group in alike))
    problems: list[ImportProblem] = []
    for run in chain.from_iterable(alike):
        problems += problems_of_run(run)
    if problems:
        raise ImportRefused(problems)
    observations = []
    for group in alike:
        observations.append((profile_of_runs(group, given.memory_bytes, given.busy_ratio), group[0]))
    return _named(observations, given)


def _split(runs: Sequence[BenchmarkRun], length: str) -> list[list[BenchmarkRun]]:
    """Runs apart where a length is more than 10 % off the first."""
    parts: list[list[BenchmarkRun]] = []
    begun = -1.0
    for run in sorted(runs, key=lambda each: getattr(each, length) or 0.0):
        value = getattr(run, length) or 0.0
        if not parts or value > begun * (1.0 + _ALIKE) + 2.0:
            parts.append([])
            begun = value
        parts[-1].append(run)
    return parts


def _named(observations: Sequence[tuple[Observed, BenchmarkRun]], given: Given) -> tuple[Observed, ...]:
    """The profiles with a name each: the given one, or the model's last part; where several share it, what tells them
    apart."""
    bases = []
    traits = []
    rivals: dict[str, list[tuple[str, ...]]] = {}
    for profile, run in observations:
        base = given.name or profile.model.rstrip("/").rpartition("/")[2]
        own = _traits(profile, run)
        bases.append(base)
        traits.append(own)
        rivals.setdefault(base, []).append(own)
    named: dict[str, Observed] = {}
    for base, own, (profile, _) in zip(bases, traits, observations, strict=True):
        name = _free_name("-".join([base, *_telling(own, rivals[base])]), named)
        named[name] = msgspec.structs.replace(profile, name=name)
    return tuple(named[name] for name in sorted(named))


def _traits(profile: Observed, run: BenchmarkRun) -> tuple[str, ...]:
    """Traits that may tell a profile from others of its model, the most telling first; empty for what is not known."""
    several = profile.gpus and profile.gpus != profile.tp
    lengths = ""
    if profile.prompt_tokens:
        lengths = f"{profile.prompt_tokens:.0f}x{profile.answer_tokens or 0:.0f}"
    return (
        run.variant,
        f"seqs{run.max_num_seqs}" if run.max_num_seqs else "",
        run.settings,
        profile.gpu,
        f"{profile.gpus}gpu" if several else "",
        f"tp{profile.tp}" if profile.tp else "",
        f"pp{profile.pp}" if profile.pp > 1 else "",
        profile.weight_precision,
        f"kv-{profile.kv_precision}" if profile.kv_precision else "",
        lengths,
    )


def _telling(own: Sequence[str], rivals: Sequence[Sequence[str]]) -> Iterator[str]:
    """The traits that not all of the profiles with the same name have."""
    for trait, others in zip(own, zip(*rivals, strict=True), strict=True):
        if trait and len(set(others)) > 1:
            yield trait


def _free_name(name: str, profiles: Mapping[str, Observed]) -> str:
    """A name, with a number behind it where it is taken."""
    free = name
    number = 2
    while free in profiles:
        free = f"{name}-{number}"
        number += 1
    return free
