"""Files of load tests -> profiles, one per model, server and request lengths: all of them, or none and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.text import clean
from gpumon.sizing.imports import inference_perf
from gpumon.sizing.imports.files import (
    MOST_BYTES,
    MOST_FILES,
    Document,
    ImportRefused,
    Place,
    Problem,
    documents,
    lines_of,
    refused,
)
from gpumon.sizing.imports.formats import gpu_usage, is_gpu_sheet, runs_of
from gpumon.sizing.imports.runs import Run
from gpumon.sizing.knee import knee
from gpumon.sizing.profile import MOST_POINTS, Observed, Origin, Point, merged
from gpumon.specs.gpu import GpuFacts
from gpumon.specs.gpus import GpuCatalogue

_SYSTEMS: Final = {
    "a100": "A100 SXM4 80GB", "a100_sxm": "A100 SXM4 80GB", "h100": "H100 SXM5 80GB", "h100_sxm": "H100 SXM5 80GB",
    "h200": "H200 SXM 141GB", "h200_sxm": "H200 SXM 141GB", "b200_sxm": "B200 SXM 180GB", "b300_sxm": "B300 SXM 288GB",
    "gb200_sxm": "GB200", "gb300_sxm": "GB300", "gb200_nvl72": "GB200", "gb300_nvl72": "GB300",
    "rtx_pro_6000_server": "RTX PRO 6000 Blackwell Server", "mi300x": "Instinct MI300X", "mi325x": "Instinct MI325X",
    "mi355x": "Instinct MI355X",
}  # fmt: skip
"""What aiconfigurator and InferenceX call a system (theirs are the SXM parts) -> its catalogue name."""
_HUB_CACHE: Final = re.compile(r"models--([^/]+?)--([^/]+)/")
_OPTIONS: Final = {
    "gpus": "--gpus", "tp": "--tp", "pp": "--pp", "weight_precision": "--precision", "kv_precision": "--kv-precision",
}  # fmt: skip
"""What a file and an option must not say differently."""
_ALIKE: Final = 0.10
"""Measured request lengths that differ by less are the same workload."""
_SAME_LOAD: Final = 0.02
_IMPOSSIBLE: Final = 3.0
_IDLE: Final = 100.0
_PARTS: Final = 10.0
"""Little's law may miss by a ramp, or by a load that the client did not hold; a unit that is wrong misses by 1000."""


class Given(msgspec.Struct, frozen=True):
    """What the user knows and a file may leave out. A file that says something else is refused, but for the names."""

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
    """Of the files that do not tell it, in their order."""
    memory_bytes: float | None = None
    """Of one instance."""
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
    first = Place(next(iter(files), "(no file)"))
    if not files or len(files) > MOST_FILES:
        raise refused(first, "", f"{len(files)} files", f"1 to {MOST_FILES} at a time")
    if sum(map(len, files.values())) > MOST_BYTES:
        allowed = "summaries of load tests, not their requests"
        raise refused(first, "", f"all files together are larger than {MOST_BYTES / 1e6:.0f} MB", allowed)
    content = _Content()
    for file, data in files.items():
        content.read(file, data)
    content.check(first)
    read = content.named_runs()
    notes = [note for run in read for note in run.notes]
    # No two runs of a load test agree in every digit.
    once = {msgspec.structs.replace(run, place=Place("")): run for run in reversed(read)}
    if copies := len(read) - len(once):
        notes.append(f"{copies} of {len(read)} runs stand in the files more than once: they count once")
    usage = gpu_usage(content.gpu_sheets)
    runs = [
        _filled(msgspec.structs.replace(run, **usage.get(run.key, {})), given, catalogue, notes)
        for run in reversed(once.values())
    ]
    runs = _loaded(runs, given)
    profiles = _gather(runs, given)
    notes += [f"not taken: {line}" for line in lines_of(content.left_out)]
    if any(run.prompt_tokens is None or run.answer_tokens is None for run in runs):
        notes.append(
            "request lengths are not in the file: without --prompt-tokens and --answer-tokens a profile holds for its "
            "own requests alone"
        )
    if any(run.offered is None for run in runs):
        notes.append("requests in flight are worked out: requests/s x seconds in the system")
    if any(not run.gpu for run in runs):
        notes.append("the GPU is not in the file: without --gpu a profile is not re-scaled to other GPUs")
    return Imported(profiles, tuple(dict.fromkeys(notes)))


class _Content:
    """What all files hold, and everything that is wrong with them."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.gpu_sheets: list[Document] = []
        self.problems: list[Problem] = []
        self.left_out: list[Problem] = []
        """Parts that no profile is made of, and why."""
        self._models: dict[str, str] = {}
        """Folder -> the model that a config there names."""

    def read(self, file: str, data: bytes) -> None:
        """Add what a file holds; problems are kept instead of raised, so that all files are looked at."""
        if inference_perf.is_config(data):
            self._read_config(file, data)
            return
        try:
            for document in documents(file, data):
                self._add(document)
        except ImportRefused as error:
            self.problems += error.problems

    def _add(self, document: Document) -> None:
        if is_gpu_sheet(document) and "Model Config Path" in document.header:
            self.gpu_sheets.append(document)
        taken = runs_of(document)
        self.runs += taken.runs
        self.left_out += taken.left_out

    def _read_config(self, file: str, data: bytes) -> None:
        """A config of inference-perf names the model of the stages in its folder."""
        model = clean(inference_perf.model_of(data), 200)
        if model:
            self._models[Place(file).folder] = model
        else:
            self.left_out.append(Problem(Place(file), "", "names no model (server.model_name)"))

    def check(self, first: Place) -> None:
        """Raise ImportRefused for everything that is wrong; for files without a run, with what was left out of them."""
        if self.problems:
            raise ImportRefused(self.problems)
        if self.runs:
            return
        beside = "metrics-model-inference.csv beside it" if self.gpu_sheets else ""
        raise ImportRefused((Problem(first, "", "holds no measurement of a model", beside), *self.left_out))

    def named_runs(self) -> list[Run]:
        """The runs, those of inference-perf with the model that the config in their folder names."""
        runs = list[Run]()
        for run in self.runs:
            model = self._models.get(run.place.folder, "")
            if run.tool == inference_perf.TOOL and not run.model and model:
                run = msgspec.structs.replace(run, model=model)
            runs.append(run)
        return runs


def _loaded(runs: Sequence[Run], given: Given) -> list[Run]:
    """With the concurrency that their files leave out. Raises ImportRefused where the given ones do not fit."""
    asking = [at for at, run in enumerate(runs) if run.offered is None and not run.open_loop]
    if not given.concurrency:
        return list(runs)
    if len(given.concurrency) != len(asking):
        reason = f"{len(given.concurrency)} values for {len(asking)} runs that do not tell theirs"
        place = runs[asking[0] if asking else 0].place
        raise refused(place, "--concurrency", reason, "one value per such run, in the order of the files")
    values = dict(zip(asking, given.concurrency, strict=True))
    return [msgspec.structs.replace(run, offered=values.get(at, run.offered)) for at, run in enumerate(runs)]


def _filled(run: Run, given: Given, catalogue: GpuCatalogue | None, notes: list[str]) -> Run:
    """The run with what the user gave, and with the catalogue's name of its GPU."""
    for name, option in _OPTIONS.items():
        in_file, typed = getattr(run, name), getattr(given, name)
        if in_file and typed and in_file != typed:
            raise refused(run.place, name, f"is {in_file} in the file, {typed} in {option}")
    cached = _HUB_CACHE.search(run.model)
    return msgspec.structs.replace(
        run,
        model=given.model or (f"{cached[1]}/{cached[2]}" if cached else run.model),
        gpu=given.gpu or _catalogue_name(run.gpu, catalogue, notes),
        **{name: getattr(run, name) or getattr(given, name) for name in _OPTIONS},
        prompt_tokens=given.prompt_tokens if run.prompt_tokens is None else run.prompt_tokens,
        answer_tokens=given.answer_tokens if run.answer_tokens is None else run.answer_tokens,
    )


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


def _gather(runs: Iterable[Run], given: Given) -> tuple[Observed, ...]:
    """All profiles in the runs, by name: runs of one server with alike prompts and answers are one.

    What differs in a server's settings is never one sweep. Raises ImportRefused for runs that lack what they need.
    """
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        server = (run.model, run.variant, run.gpu, run.gpus, run.tp, run.pp)
        options = (run.weight_precision, run.kv_precision, run.max_num_seqs, run.settings)
        groups.setdefault((*server, *options), []).append(run)
    alike = list(groups.values())
    for length in ("prompt_tokens", "answer_tokens"):
        alike = [part for group in alike for part in _split(group, length)]
    problems = [problem for group in alike for run in group for problem in _lacking(run)]
    if problems:
        raise ImportRefused(problems)
    return _named([(_observed(group, given), group[0]) for group in alike], given)


def _split(runs: Sequence[Run], length: str) -> list[list[Run]]:
    """Runs apart where a length is more than 10 % off the first."""
    parts: list[list[Run]] = []
    begun = -1.0
    for run in sorted(runs, key=lambda each: getattr(each, length) or 0.0):
        value = getattr(run, length) or 0.0
        if not parts or value > begun * (1.0 + _ALIKE) + 2.0:
            parts.append([])
            begun = value
        parts[-1].append(run)
    return parts


def _lacking(run: Run) -> Iterator[Problem]:
    if not run.model:
        yield Problem(run.place, "model", "is not in the file: add it with --model NAME")
    if run.tokens_per_s is None and run.requests_per_s is None:
        yield Problem(run.place, "throughput", "is missing", "output tokens/s or requests/s")
    if run.tokens_per_s == 0.0 or run.requests_per_s == 0.0:
        yield Problem(run.place, "throughput", "is 0: nothing was served")
    if run.itl_s == 0.0 and (run.answer_tokens or 2.0) > 1.5:
        yield Problem(run.place, "inter-token latency", "is 0", "a time above 0")
    in_flight, parts_s = _in_flight(run), _parts_s(run)
    if run.offered is None:
        if in_flight is None and run.open_loop:
            reason = "is missing: the load is a rate, so requests in flight = rate x latency"
            yield Problem(run.place, "mean latency", reason)
        elif in_flight is None:
            yield Problem(run.place, "concurrency", "is not in the file: add it with --concurrency N")
    elif in_flight is not None:
        # Figures that can not be of one run, or stand in another unit than the format has.
        allowed = "figures of one run, in the units that the format has"
        if not run.offered / _IDLE <= in_flight <= _IMPOSSIBLE * run.offered + 1.0:
            text = f"x requests/s is {in_flight:.4g} in flight, of {run.offered:.4g} that were offered"
            yield Problem(run.place, "request latency", text, allowed)
        if run.e2e_s and parts_s and not run.e2e_s / _PARTS <= parts_s <= run.e2e_s * _PARTS:
            text = f"{run.e2e_s:.4g} s, but TTFT + ITL x (answer - 1) is {parts_s:.4g} s"
            yield Problem(run.place, "request latency", text, allowed)


def _parts_s(run: Run) -> float | None:
    """Seconds of a request by its parts: TTFT + ITL x (OSL - 1); None where one of them is not known."""
    if run.itl_s is None or run.ttft_s is None or not run.answer_tokens:
        return None
    return run.ttft_s + run.itl_s * max(0.0, run.answer_tokens - 1.0)


def _in_flight(run: Run) -> float | None:
    """Requests in flight by Little's law: requests/s x seconds in the system; None where either is not known."""
    rate, latency_s = run.requests_per_s, _parts_s(run) if run.e2e_s is None else run.e2e_s
    if rate is None and run.tokens_per_s is not None and run.answer_tokens:
        rate = run.tokens_per_s / run.answer_tokens
    return None if rate is None or latency_s is None else rate * latency_s


def _point(run: Run) -> Point:
    in_flight = _in_flight(run)
    offered = in_flight if run.offered is None else run.offered
    assert offered is not None, "checked before"
    # Who decodes: output tokens/s x ITL; else those in flight that do not wait in the server.
    running = offered if in_flight is None else in_flight
    if run.tokens_per_s is not None and run.itl_s is not None:
        running = run.tokens_per_s * run.itl_s
    elif run.queue_s is not None and run.e2e_s:
        running *= max(0.0, 1.0 - run.queue_s / run.e2e_s)
    latency_s = _parts_s(run) if run.e2e_s is None else run.e2e_s
    if latency_s is None and run.requests_per_s:
        latency_s = offered / run.requests_per_s
    copied = (
        *("itl_s", "ttft_s", "itl_p95_s", "ttft_p95_s", "e2e_p95_s"),
        *("tokens_per_s", "requests_per_s", "power_w", "busy_ratio"),
    )
    figures = {name: getattr(run, name) for name in copied}
    return Point(running=min(offered, running), offered=offered, e2e_s=latency_s, **figures)


def _points(runs: Sequence[Run]) -> tuple[Point, ...]:
    """By rising running; runs of the same load are one point, the median of each figure."""
    same: list[list[Point]] = []
    for point in sorted(map(_point, runs), key=lambda each: each.offered or 0.0):
        first = same[-1][0].offered or 0.0 if same else -1.0
        if same and (point.offered or 0.0) <= first * (1.0 + _SAME_LOAD):
            same[-1].append(point)
        else:
            same.append([point])
    rising = sorted(map(merged, same), key=lambda each: (each.running, each.offered or 0.0))
    step = max(1.0, (len(rising) - 1) / (MOST_POINTS - 1))
    return tuple(rising[round(step * number)] for number in range(min(len(rising), MOST_POINTS)))


def _observed(runs: Sequence[Run], given: Given) -> Observed:
    points, first = _points(runs), runs[0]
    best = knee(points).point

    def middle(figure: str) -> float | None:
        known = [value for run in runs if (value := getattr(run, figure)) is not None]
        return median(known) if known else None

    def tail(p95: float | None, mean: float | None) -> float | None:
        return p95 / mean if p95 and mean and p95 >= mean else None

    prompt, steps = middle("prompt_tokens"), middle("tokens_per_step")
    rates = [point.requests_per_s for point in points if point.requests_per_s is not None]
    return Observed(
        origin=Origin.SWEEP,
        name="",
        model=first.model,
        points=points,
        time=max(run.time for run in runs),
        tool=", ".join(dict.fromkeys(run.tool for run in runs)),
        gpu=first.gpu,
        gpus=first.gpus or first.tp * (first.pp or 1),
        tp=first.tp,
        pp=first.pp or 1,
        weight_precision=first.weight_precision,
        kv_precision=first.kv_precision,
        prompt_tokens=prompt,
        answer_tokens=middle("answer_tokens"),
        prefix_hit_ratio=middle("prefix_hit_ratio"),
        itl_tail_ratio=tail(best.itl_p95_s, best.itl_s),
        ttft_tail_ratio=tail(best.ttft_p95_s, best.ttft_s),
        kv_pool_tokens=middle("kv_pool_tokens"),
        max_num_seqs=first.max_num_seqs or None,
        memory_bytes=given.memory_bytes or max((run.memory_bytes or 0.0 for run in runs), default=0.0) or None,
        busy_ratio=best.busy_ratio if given.busy_ratio is None else given.busy_ratio,
        power_w=best.power_w,
        tokens_per_step=steps if steps is not None and steps > 1.0 else None,
        prefill_tokens_per_s=max(rates) * prompt if rates and prompt else None,
        concurrency=best.offered,
    )


def _named(found: Sequence[tuple[Observed, Run]], given: Given) -> tuple[Observed, ...]:
    """With a name each: the given one, or the model's last part; where several share it, what tells them apart."""
    bases = [given.name or profile.model.rstrip("/").rpartition("/")[2] for profile, _ in found]
    traits = [
        (
            run.variant,
            f"seqs{run.max_num_seqs}" if run.max_num_seqs else "",
            run.settings,
            profile.gpu,
            f"{profile.gpus}gpu" if profile.gpus and profile.gpus != profile.tp else "",
            f"tp{profile.tp}" if profile.tp else "",
            f"pp{profile.pp}" if profile.pp > 1 else "",
            profile.weight_precision,
            f"kv-{profile.kv_precision}" if profile.kv_precision else "",
            f"{profile.prompt_tokens:.0f}x{profile.answer_tokens or 0:.0f}" if profile.prompt_tokens else "",
        )
        for profile, run in found
    ]
    named: dict[str, Observed] = {}
    for base, own, (profile, _) in zip(bases, traits, found, strict=True):
        rivals = [other for other, name in zip(traits, bases, strict=True) if name == base]
        telling = [value for at, value in enumerate(own) if value and len({rival[at] for rival in rivals}) > 1]
        name = unique = "-".join([base, *telling])
        number = 2
        while unique in named:
            unique, number = f"{name}-{number}", number + 1
        named[unique] = msgspec.structs.replace(profile, name=unique)
    return tuple(named[name] for name in sorted(named))
