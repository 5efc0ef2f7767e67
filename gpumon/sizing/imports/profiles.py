"""Files of load tests to profiles, one per model, server and request lengths; all files are imported, or none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.text import free_name
from gpumon.sizing.imports.content import ImportContent
from gpumon.sizing.imports.files import (
    MOST_FILES,
    MOST_IMPORT_BYTES,
    FilePlace,
    ImportRefused,
    lines_of,
    refusal,
)
from gpumon.sizing.imports.model_analyzer import gpu_usage
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
"""Folder of a model in the cache of Hugging Face's hub: owner and name."""
_OPTIONS: Final = {
    "gpus": "--gpus", "tp": "--tp", "pp": "--pp", "weight_precision": "--precision", "kv_precision": "--kv-precision",
}  # fmt: skip
"""Field -> option of the command line; where a file has another value, it is refused."""
_SAME_LENGTH: Final = 0.10
"""Share by which mean request lengths of one workload may differ."""
_SAME_LENGTH_TOKENS: Final = 2.0
"""Tokens by which they may differ in addition: a share of a few tokens is less than one."""


class Given(msgspec.Struct, frozen=True):
    """Facts that the user knows and a file may leave out.

    Names of the model and the GPU take the place of those in a file. A file that says otherwise in `_OPTIONS` is
    refused.
    """

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
    """The result of an import."""

    profiles: tuple[Observed, ...]
    """By name."""
    notes: tuple[str, ...]
    """Sentences for the user on how the files were read."""


def import_files(
    files: Mapping[str, bytes], given: Given | None = None, catalogue: GpuCatalogue | None = None
) -> Imported:
    """Import files: one profile per model, hardware and request lengths, whatever files it is spread over.

    `files` is name -> content; the format is recognised by the content. `given` fills what the files leave out. Raises
    ImportRefused, which names every problem that was found; then nothing is imported.
    """
    if given is None:
        given = Given()
    _check_size(files)
    content = ImportContent()
    for file, data in files.items():
        content.read(file, data)
    content.check(FilePlace(next(iter(files))))
    read_runs = content.named_runs()
    notes = list(chain.from_iterable(run.notes for run in read_runs))
    usage = gpu_usage(content.gpu_sheets)
    filled = []
    for run in _without_copies(read_runs, notes):
        measured = msgspec.structs.replace(run, **usage.get(run.key, {}))
        filled.append(_with_given(measured, given, catalogue, notes))
    runs = _with_concurrency(filled, given)
    profiles = _profiles_of(runs, given)
    notes += [f"not taken: {line}" for line in lines_of(content.left_out)]
    notes += _notes_on_unknown(runs)
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
    """The runs, each once; a note is added if there were copies. Two runs of a load test never agree in every digit."""
    once: dict[BenchmarkRun, BenchmarkRun] = {}
    for run in runs:
        once.setdefault(msgspec.structs.replace(run, place=FilePlace("")), run)
    copies = len(runs) - len(once)
    if copies:
        notes.append(f"{copies} of {len(runs)} runs stand in the files more than once: they count once")
    return list(once.values())


def _notes_on_unknown(runs: Sequence[BenchmarkRun]) -> Iterator[str]:
    """Notes on facts that the files leave open, and what follows from that."""
    if any(run.prompt_tokens is None or run.answer_tokens is None for run in runs):
        yield (
            "request lengths are not in the file: without --prompt-tokens and --answer-tokens a profile holds for its "
            "own requests alone"
        )
    if any(run.offered is None for run in runs):
        yield "requests in flight are worked out: requests/s x seconds in the system"
    if any(not run.gpu for run in runs):
        yield "the GPU is not in the file: without --gpu a profile is not re-scaled to other GPUs"


def _with_concurrency(runs: Sequence[BenchmarkRun], given: Given) -> list[BenchmarkRun]:
    """The runs with the given concurrency where their files leave it out.

    Raises ImportRefused where there are more or fewer given values than such runs.
    """
    if not given.concurrency:
        return list(runs)
    lacking = [index for index, run in enumerate(runs) if run.offered is None and not run.open_loop]
    if len(given.concurrency) != len(lacking):
        reason = f"{len(given.concurrency)} values for {len(lacking)} runs that do not tell theirs"
        first = runs[lacking[0]] if lacking else runs[0]
        raise refusal(first.place, "--concurrency", reason, "one value per such run, in the order of the files")
    values = dict(zip(lacking, given.concurrency, strict=True))
    return [msgspec.structs.replace(run, offered=values.get(index, run.offered)) for index, run in enumerate(runs)]


def _with_given(run: BenchmarkRun, given: Given, catalogue: GpuCatalogue | None, notes: list[str]) -> BenchmarkRun:
    """The run with the facts that the user gave, and with the catalogue's name of its GPU. May add a note.

    Raises ImportRefused where the file says otherwise.
    """
    options = {}
    for name, option in _OPTIONS.items():
        in_file = getattr(run, name)
        typed = getattr(given, name)
        if in_file and typed and in_file != typed:
            raise refusal(run.place, name, f"is {in_file} in the file, {typed} in {option}")
        options[name] = in_file or typed
    prompt_tokens = given.prompt_tokens if run.prompt_tokens is None else run.prompt_tokens
    answer_tokens = given.answer_tokens if run.answer_tokens is None else run.answer_tokens
    return msgspec.structs.replace(
        run,
        model=given.model or _published_name(run.model),
        gpu=given.gpu or _catalogue_name(run.gpu, catalogue, notes),
        **options,
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
    )


def _published_name(model: str) -> str:
    """The name of a model; where it is a path in the cache of the hub, the published name."""
    cached = _HUB_CACHE.search(model)
    if cached:
        return f"{cached[1]}/{cached[2]}"
    return model


def _catalogue_name(text: str, catalogue: GpuCatalogue | None, notes: list[str]) -> str:
    """The catalogue's name of a GPU that a file names in its own way; empty, with a note, where it is not found."""
    if not text or catalogue is None:
        return ""
    name = _SYSTEMS.get(text.lower().replace("-", "_"), text)
    spec = catalogue.match(GpuFacts(name)) or catalogue.row(name)
    if spec is None:
        notes.append(f"the catalogue has no GPU {text}: name it with --gpu")
        return ""
    return spec.name


def _profiles_of(runs: Iterable[BenchmarkRun], given: Given) -> tuple[Observed, ...]:
    """All profiles in the runs, by name: runs of one server with prompts and answers of like length make one.

    Runs of servers with other settings are never in one profile. Raises ImportRefused for runs that lack what they
    need.
    """
    runs_by_server: dict[tuple[object, ...], list[BenchmarkRun]] = {}
    for run in runs:
        hardware = (run.model, run.variant, run.gpu, run.gpus, run.tp, run.pp)
        options = (run.weight_precision, run.kv_precision, run.max_num_seqs, run.settings)
        runs_by_server.setdefault((*hardware, *options), []).append(run)
    workloads = list(runs_by_server.values())
    for length in ("prompt_tokens", "answer_tokens"):
        workloads = list(chain.from_iterable(_split_by_length(group, length) for group in workloads))
    problems = [problem for run in chain.from_iterable(workloads) for problem in problems_of_run(run)]
    if problems:
        raise ImportRefused(problems)
    unnamed = []
    for group in workloads:
        profile = profile_of_runs(group, given.memory_bytes, given.busy_ratio)
        base_name = given.name or profile.model.rstrip("/").rpartition("/")[2]
        unnamed.append((profile, base_name, _traits(profile, group[0])))
    return _with_names(unnamed)


def _split_by_length(runs: Sequence[BenchmarkRun], length: str) -> list[list[BenchmarkRun]]:
    """Groups of runs by rising length: each begins with a run that is more than 10% above the first of the group
    before. `length`: name of the field."""
    groups: list[list[BenchmarkRun]] = []
    first_tokens = -1.0
    for run in sorted(runs, key=lambda run: getattr(run, length) or 0.0):
        tokens = getattr(run, length) or 0.0
        if not groups or tokens > first_tokens * (1.0 + _SAME_LENGTH) + _SAME_LENGTH_TOKENS:
            groups.append([])
            first_tokens = tokens
        groups[-1].append(run)
    return groups


def _with_names(unnamed: Sequence[tuple[Observed, str, tuple[str, ...]]]) -> tuple[Observed, ...]:
    """The profiles with names, by name. Where several share a base name, the traits in which they differ follow it.

    `unnamed`: each profile with its base name, the given one or the last part of the model's, and its traits.
    """
    traits_by_base: dict[str, list[tuple[str, ...]]] = {}
    for _, base_name, traits in unnamed:
        traits_by_base.setdefault(base_name, []).append(traits)
    named: dict[str, Observed] = {}
    for profile, base_name, traits in unnamed:
        distinctive = _distinctive_traits(traits, traits_by_base[base_name])
        name = free_name("-".join([base_name, *distinctive]), named)
        named[name] = msgspec.structs.replace(profile, name=name)
    return tuple(named[name] for name in sorted(named))


def _traits(profile: Observed, run: BenchmarkRun) -> tuple[str, ...]:
    """Traits that distinguish a profile from others of its model, the most telling first; empty for unknown ones.

    All profiles have the same number of traits, each at its place.
    """
    seqs = f"seqs{run.max_num_seqs}" if run.max_num_seqs else ""
    # As many GPUs as the TP has are told by that.
    gpus = f"{profile.gpus}gpu" if profile.gpus and profile.gpus != profile.tp else ""
    tp = f"tp{profile.tp}" if profile.tp else ""
    pp = f"pp{profile.pp}" if profile.pp > 1 else ""
    kv_precision = f"kv-{profile.kv_precision}" if profile.kv_precision else ""
    lengths = f"{profile.prompt_tokens:.0f}x{profile.answer_tokens or 0:.0f}" if profile.prompt_tokens else ""
    return (
        run.variant,
        seqs,
        run.settings,
        profile.gpu,
        gpus,
        tp,
        pp,
        profile.weight_precision,
        kv_precision,
        lengths,
    )


def _distinctive_traits(traits: Sequence[str], traits_of_all: Sequence[Sequence[str]]) -> Iterator[str]:
    """The traits of a profile that not all profiles of the same name have."""
    for trait, same_trait_of_all in zip(traits, zip(*traits_of_all, strict=True), strict=True):
        if trait and len(set(same_trait_of_all)) > 1:
            yield trait
