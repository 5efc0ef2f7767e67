"""Files of load tests -> profiles: all of them, or none and every reason why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.sizing.profile import Observed
from gpumon.sizing.sweeps import model_analyzer
from gpumon.sizing.sweeps.formats import format_of
from gpumon.sizing.sweeps.gather import gather
from gpumon.sizing.sweeps.record import MOST_FILES, MOST_TOTAL, Document, Place, Problem, SweepError, documents, refused
from gpumon.sizing.sweeps.run import Given, Run
from gpumon.specs.gpu import GpuFacts
from gpumon.specs.gpus import GpuCatalogue

_SYSTEMS: Final = {
    "a100": "A100 SXM4 80GB",
    "a100_sxm": "A100 SXM4 80GB",
    "h100": "H100 SXM5 80GB",
    "h100_sxm": "H100 SXM5 80GB",
    "h200": "H200 SXM 141GB",
    "h200_sxm": "H200 SXM 141GB",
    "b200_sxm": "B200 SXM 180GB",
    "b300_sxm": "B300 SXM 288GB",
    "gb200_sxm": "GB200",
    "gb300_sxm": "GB300",
    "gb200_nvl72": "GB200",
    "gb300_nvl72": "GB300",
    "rtx_pro_6000_server": "RTX PRO 6000 Blackwell Server",
    "mi300x": "Instinct MI300X",
    "mi325x": "Instinct MI325X",
    "mi355x": "Instinct MI355X",
}
"""What aiconfigurator and InferenceX call a system (theirs are the SXM parts) -> its catalogue name."""


_GAPS: Final[tuple[tuple[Callable[[Run], bool], str], ...]] = (
    (
        lambda run: run.prompt_tokens is None or run.answer_tokens is None,
        "request lengths are not in the file: without --prompt-tokens and --answer-tokens a profile holds for its own "
        "requests alone",
    ),
    (
        lambda run: run.offered is None,
        "requests in flight are worked out: requests/s x seconds in the system",
    ),
    (lambda run: not run.gpu, "the GPU is not in the file: without --gpu a profile is not re-scaled to other GPUs"),
)


class Imported(NamedTuple):
    """The profiles, by name, and what the user should know about how they were read."""

    profiles: tuple[Observed, ...]
    notes: tuple[str, ...]


def imported(files: Mapping[str, bytes], given: Given | None = None, catalogue: GpuCatalogue | None = None) -> Imported:
    """One profile per model, hardware and request lengths, whatever files it is spread over.

    `files` is name -> content; the format is told by the content. `given` fills what the files leave out. Raises
    SweepError, which names every problem that was found; then nothing is imported.
    """
    given = Given() if given is None else given
    _limits(files)
    problems: list[Problem] = []
    runs: list[Run] = []
    gpu_sheets: list[Document] = []
    for file, data in files.items():
        problems.extend(_add(runs, gpu_sheets, file, data))
    if problems:
        raise SweepError(problems)
    if not runs:
        beside = "metrics-model-inference.csv beside it" if gpu_sheets else ""
        raise refused(Place(next(iter(files))), "", "holds no measurement of a model", beside)
    notes = [note for run in runs for note in run.notes]
    runs = [
        _filled(run, given, catalogue, notes)
        for run in model_analyzer.with_usage(_once(runs, notes), model_analyzer.usage(gpu_sheets))
    ]
    runs = list(_loaded(runs, given))
    profiles = gather(runs, given)
    notes.extend(note for missing, note in _GAPS if any(missing(run) for run in runs))
    return Imported(profiles, tuple(dict.fromkeys(notes)))


def _limits(files: Mapping[str, bytes]) -> None:
    if not files:
        raise refused(Place("(no file)"), "", "nothing to import")
    first = Place(next(iter(files)))
    if len(files) > MOST_FILES:
        raise refused(first, "", f"is one of {len(files)} files", f"at most {MOST_FILES} at a time")
    total = sum(map(len, files.values()))
    if total > MOST_TOTAL:
        raise refused(first, "", f"is one of files of {total / 1e6:.0f} MB", f"at most {MOST_TOTAL / 1e6:.0f} MB")


def _add(runs: list[Run], gpu_sheets: list[Document], file: str, data: bytes) -> tuple[Problem, ...]:
    """Add what a file holds; returns what is wrong with it instead of raising, so that all files are looked at."""
    try:
        for document in documents(file, data):
            found = format_of(document)
            if found.read is model_analyzer.read_gpu and "Model Config Path" in document.header:
                gpu_sheets.append(document)
            runs.extend(found.read(document) if found.read is not None else ())
    except SweepError as error:
        return error.problems
    return ()


def _once(runs: Sequence[Run], notes: list[str]) -> list[Run]:
    """The runs without copies of one: no two runs of a load test agree in every digit."""
    first: dict[Run, Run] = {}
    for run in runs:
        first.setdefault(msgspec.structs.replace(run, place=Place("")), run)
    if copies := len(runs) - len(first):
        notes.append(f"{copies} of {len(runs)} runs stand in the files more than once: they count once")
    return list(first.values())


def _loaded(runs: Sequence[Run], given: Given) -> Iterator[Run]:
    """The runs with the concurrency that their file leaves out. Raises SweepError where the given ones do not fit."""
    asking = [run for run in runs if run.offered is None and not run.open_loop]
    values = given.concurrency
    if values and len(values) != len(asking):
        place = asking[0].place if asking else runs[0].place
        reason = f"{len(values)} values for {len(asking)} runs that do not tell theirs"
        raise refused(place, "--concurrency", reason, "one value per such run, in the order of the files")
    rest = iter(values)
    for run in runs:
        asks = bool(values) and run.offered is None and not run.open_loop
        yield msgspec.structs.replace(run, offered=next(rest)) if asks else run


def _filled(run: Run, given: Given, catalogue: GpuCatalogue | None, notes: list[str]) -> Run:
    """The run with what the user gave, and with the catalogue's name of its GPU."""
    for name, option in _CHECKED.items():
        said, told = getattr(run, name), getattr(given, name)
        if said and told and said != told:
            raise refused(run.place, name, f"is {said} in the file, {told} in {option}")
    gpus = run.gpus or given.gpus or (run.tp or given.tp) * (run.pp or given.pp or 1)
    run = msgspec.structs.replace(
        run,
        model=given.model or run.model,
        gpu=given.gpu or _catalogue_name(run.gpu, catalogue, notes),
        gpus=gpus,
        **{name: getattr(run, name) or getattr(given, name) for name in _CHECKED if name != "gpus"},
        prompt_tokens=given.prompt_tokens if run.prompt_tokens is None else run.prompt_tokens,
        answer_tokens=given.answer_tokens if run.answer_tokens is None else run.answer_tokens,
    )
    if run.watched_gpus and run.watched_gpus != run.gpus:
        told = (
            f"{run.gpus} of them are the instance" if run.gpus else "how many are the instance is not known (--gpus N)"
        )
        notes.append(f"{run.watched_gpus} GPUs were watched, {told}: their power, busy share and memory are left out")
        return msgspec.structs.replace(run, power_w=None, busy_ratio=None, memory_bytes=None)
    return run


_CHECKED: Final = {
    "gpus": "--gpus",
    "tp": "--tp",
    "pp": "--pp",
    "weight_precision": "--precision",
    "kv_precision": "--kv-precision",
}
"""What a file and an option must not say differently."""


def _catalogue_name(text: str, catalogue: GpuCatalogue | None, notes: list[str]) -> str:
    """The catalogue's name of a GPU that a file names in its own way; empty, with a note, where it is not found."""
    if not text or catalogue is None:
        return ""
    known = _SYSTEMS.get(text.lower().replace("-", "_"), text)
    spec = catalogue.match(GpuFacts(known))
    try:
        return (spec or catalogue.find(known)).name
    except ValueError:
        notes.append(f"the catalogue has no GPU {text}: name it with --gpu")
        return ""
