"""The facts of a served model: config entry, own files, the engine's own words, catalogue, else what to add."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, product
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from gpumon.config.schema import Model
from gpumon.readings.text import clean
from gpumon.readings.untrusted import Untrusted
from gpumon.sources.checked_open import NotTheModelsError
from gpumon.sources.file_views import FileSystemView
from gpumon.sources.model_contents import model_root, read_config, read_tensors, read_weights
from gpumon.sources.model_files import gguf_paths, model_folders, searched
from gpumon.specs.fields import FieldError, RefusedError
from gpumon.specs.hints import MODEL_PATH
from gpumon.specs.llm import MODEL_FORMAT_BYTES, Attention, LlmSpec, Reach, grouped_attention, latent_attention
from gpumon.specs.llm_config import QUANTIZATION_KEYS, llm_from_config
from gpumon.specs.llm_hints import from_hints, quantised_at_load, with_cast, with_kv_dtype, with_state_dtypes
from gpumon.specs.llm_names import llm_name
from gpumon.specs.llms import LlmCatalogue
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision
from gpumon.specs.stored_tensors import StoredTensors

NO_HINTS: Final[Mapping[str, str]] = MappingProxyType({})
NO_FILES: Final = "none in"
NO_ROW: Final = "no row of this name"
_SHOWN_CHARS = 300
"""Characters of a fault or name that are shown."""
_MOST_PROBLEMS = 4
"""Problems with files or rows that a text names."""
TURN_S: Final = 10.0
"""Seconds after which the reading of a file is taken to hang: others are read beside it from then on."""
_TURN: Final = threading.Lock()
"""Held while the files of a model are read."""


class Looked(NamedTuple):
    """One place where a model's facts were looked for, and the result."""

    place: str
    """config, files, engine or catalogue."""
    found: str
    """Source of the spec, or why there is none, in words."""


class ModelLookUp(NamedTuple):
    """The spec of a model, and where it was looked for."""

    spec: LlmSpec | None
    why: str
    """Source of the spec; or why there is none, with the `[[model]]` lines that would tell it."""
    looked: tuple[Looked, ...] = ()
    """The places, in their order, up to the one that gave the spec."""


def look_up(
    model_id: str,
    root: str,
    config_models: Sequence[Model],
    llms: LlmCatalogue,
    views: Sequence[FileSystemView],
    hints: Mapping[str, str] = NO_HINTS,
) -> ModelLookUp:
    """First hit of: config entry, the model's own files, the engine's own words, catalogue row.

    `model_id` is the served name, `root` the path or Hugging Face id that it was loaded from, `hints` what the engine
    says of it (`specs.hints`); all are text from a server. `views`: where its files may lie, and with whose rights they
    are opened; none: the server is on another machine. Reads files, those of one model after the other's: run it in a
    thread. Never raises for what a file, a name or a hint holds.
    """
    looked: list[Looked] = []
    try:
        spec = configured(model_id, config_models)
    except ValueError as error:
        return ModelLookUp(None, str(error), (Looked("config", str(error)),))
    if spec is not None:
        looked.append(Looked("config", spec.source.removeprefix("config ")))
        return _with_spec(spec, hints, looked)
    looked.append(Looked("config", "no [[model]] entry matches"))
    names = _names_of(model_id, root, hints)
    if views:
        try:
            with _in_turn():
                spec = _from_files(names, model_id, views, hints, looked)
        except RefusedError as error:
            return _without_spec(error, model_id, looked)
    if spec is not None:
        return _with_spec(spec, hints, looked)
    return _without_files(model_id, names, llms, hints, looked)


def _names_of(model_id: str, root: str, hints: Mapping[str, str]) -> list[str]:
    """Names under which the model may be found, the surest first."""
    candidates = (root, hints.get(MODEL_PATH, ""), model_id)
    return [name for name in dict.fromkeys(candidates) if name]


def _without_files(
    model_id: str, names: Sequence[str], llms: LlmCatalogue, hints: Mapping[str, str], looked: list[Looked]
) -> ModelLookUp:
    """The facts of a model whose files are not there, or could not be read."""
    problems = [look.found for look in looked if look.place == "files" and not look.found.startswith(NO_FILES)]
    spec = None
    if hints:
        spec, against = from_hints(hints, model_id, names, llms)
        looked.append(Looked("engine", _engine_result(spec, against)))
        if against and spec is None:
            # What the engine says speaks against the row of this name, or leaves its format open.
            return _not_known(model_id, looked, [*problems, *against])
    if spec is None:
        spec = _from_catalogue(names, llms, looked)
    if spec is not None:
        return _with_spec(spec, hints, looked)
    if problems:
        # What is wrong is the file (no JSON, cut off, not to be read): figures in the config would only hide it.
        faults = _problem_text(problems)
        return ModelLookUp(None, f"unknown model ({faults}). Mend that file, then start gpumon again", tuple(looked))
    catalogue_result = looked[-1].found
    if catalogue_result != NO_ROW:
        problems = [catalogue_result]
    return _not_known(model_id, looked, problems)


def _with_spec(spec: LlmSpec, hints: Mapping[str, str], looked: Sequence[Looked]) -> ModelLookUp:
    """The facts by this spec, stored as the engine says."""
    stored = with_state_dtypes(with_kv_dtype(with_cast(spec, hints), hints), hints)
    return ModelLookUp(stored, spec.source, tuple(looked))


def _without_spec(error: RefusedError, model_id: str, looked: list[Looked]) -> ModelLookUp:
    """No spec, as the model's own files cannot be used.

    The catalogue may have a row of this name, but these files are what the engine runs.
    """
    problem = str(error)
    if not problem.startswith("config.json"):
        problem = f"config.json: {problem}"
    looked.append(Looked("files", problem[:_SHOWN_CHARS]))
    return _not_known(model_id, looked, [problem[:_SHOWN_CHARS]])


def _engine_result(spec: LlmSpec | None, against: Sequence[str]) -> str:
    """The result of the engine's own words, for `looked`."""
    if spec is not None:
        return spec.source
    if against:
        return "; ".join(against)
    return "says nothing of its dimensions"


def _from_catalogue(names: Sequence[str], llms: LlmCatalogue, looked: list[Looked]) -> LlmSpec | None:
    """The spec by the catalogue's row of the first name that has one."""
    unusable = ""
    for name in names:
        spec = llms.find(name)
        if spec is not None:
            looked.append(Looked("catalogue", spec.source.removeprefix("catalogue ")))
            return spec
        row = llms.row(name)
        if row is not None and row.unusable:
            unusable = f"catalogue row {row.name}: {row.unusable}"
        elif row is not None:
            word = llm_name(name).hint
            unusable = (
                f"catalogue row {row.name}: {word!a} in its name leaves its bits open, the file's header tells them"
            )
    looked.append(Looked("catalogue", unusable or NO_ROW))
    return None


def configured(model_id: str, config_models: Sequence[Model]) -> LlmSpec | None:
    """The spec by the first `[[model]]` entry that is meant for this model; None where none is.

    Raises ValueError for an entry that contradicts itself.
    """
    for entry in config_models:
        if entry.match == model_id or fnmatchcase(model_id, entry.match):
            break
    else:
        return None
    try:
        return from_entry(entry, model_id)
    except ValueError as error:
        raise ValueError(f"config [[model]] {entry.match!r}: {error}") from None


def from_entry(model: Model, name: str) -> LlmSpec:
    """The spec that a `[[model]]` entry describes; ValueError names the field that does not fit the others.

    With `vocab`, the look-up table (vocab x hidden) is taken off the multiplied parameters, unless the embeddings are
    tied: then it is the LM head, which is multiplied. One expert's size follows from the difference between all and
    active parameters.
    """
    active = (model.active_params_b or model.params_b) * 1e9
    total = model.params_b * 1e9
    table = 0.0 if model.tied_embeddings else float(model.vocab * model.hidden)
    expert = _expert_params(model, total, active)
    _check_entry(model, total, active, table)
    precision = Precision(model.weight_precision)
    width = BYTES_PER_ELEMENT[precision]
    kv_heads = model.kv_heads or model.heads
    head_dim = model.head_dim or model.hidden // model.heads
    head = float(model.vocab * model.hidden)
    return LlmSpec(
        name=name,
        source=f"config [[model]] {model.match!r}",
        params=total,
        matmul_params=active - table,
        head_params=head,
        vocab=model.vocab,
        hidden=model.hidden,
        layers=model.layers,
        heads=model.heads,
        kv_heads=1 if model.kv_lora_rank else kv_heads,
        head_dim=head_dim,
        attention=_attention(model, kv_heads, head_dim),
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        expert_params=expert,
        precision=precision,
        weight_only=precision is Precision.INT4 if model.weight_only is None else model.weight_only,
        kv_precision=Precision(model.kv_precision),
        read_bytes=(total - table) * width,
        expert_read_bytes=expert * width,
        stored_bytes=(total - table) * width + table * max(width, MODEL_FORMAT_BYTES),
    )


def _attention(model: Model, kv_heads: int, head_dim: int) -> tuple[Attention, ...]:
    """Attention of the layers that see everything, and of those with a window, as far as there are such layers.

    Of MLA, values are as wide as keys without their rope part (DeepSeek's relation).
    """
    full_layers = model.layers - model.window_layers
    attentions = []
    for layers, reach, limit in ((full_layers, Reach.FULL, 0), (model.window_layers, Reach.WINDOW, model.window)):
        if not layers:
            continue
        if model.kv_lora_rank:
            key_dim = head_dim + model.rope_dim
            attention = latent_attention(
                layers, model.heads, model.kv_lora_rank, model.rope_dim, key_dim, head_dim, reach, limit
            )
        else:
            attention = grouped_attention(layers, model.heads, kv_heads, head_dim, reach, limit)
        attentions.append(attention)
    return tuple(attentions)


def _expert_params(model: Model, total: float, active: float) -> float:
    """Parameters of one expert: what is not active are the experts that a token does not use. Raises ValueError."""
    if not model.experts:
        return 0.0
    if model.active_params_b is None:
        raise ValueError("active_params_b is missing: the parameters used per token")
    if not 0 < model.experts_per_token < model.experts:
        raise ValueError(f"experts_per_token {model.experts_per_token} is not from 1 to {model.experts - 1}")
    expert = (total - active) / (model.experts - model.experts_per_token)
    if active < model.experts_per_token * expert:
        raise ValueError("active_params_b is less than its experts alone")
    return expert


def _check_entry(model: Model, total: float, active: float, table: float) -> None:
    """Raise ValueError where the fields of an entry do not fit each other."""
    if active > total:
        raise ValueError("active_params_b is more than params_b")
    head = float(model.vocab * model.hidden)
    if active <= head + table:
        field = "params_b" if model.active_params_b is None else "active_params_b"
        twice = "" if model.tied_embeddings else ", and untied embeddings have it twice (or is tied_embeddings true?)"
        raise ValueError(f"vocab x hidden is {head / 1e9:.3f}e9{twice}: {field} {active / 1e9:g} is too small for that")
    if model.window_layers > model.layers:
        raise ValueError(f"window_layers {model.window_layers} is more than layers {model.layers}")
    if model.window_layers and not model.window:
        raise ValueError("window is missing: the tokens that the window_layers see")
    if model.head_dim is None and model.hidden % model.heads:
        raise ValueError("head_dim is missing: hidden is no multiple of heads")


def _from_files(
    names: Sequence[str], model_id: str, views: Sequence[FileSystemView], hints: Mapping[str, str], looked: list[Looked]
) -> LlmSpec | None:
    """The spec by the first `config.json` or GGUF file of these names that can be read; None where none can.

    Raises RefusedError where a file is the model's own and cannot be used.
    """
    tried = set()
    for place, view, read in _candidate_files(names, model_id, views, hints):
        if (place, view.reader) in tried:
            continue
        tried.add((place, view.reader))
        try:
            spec = read()
        except RefusedError as error:
            raise RefusedError(_problem(error, view)) from None
        except NotTheModelsError as error:
            # A row of the catalogue may have the folder's name, and the engine runs what the link leads to.
            raise RefusedError(f"{place}: {error.strerror}") from None
        except (ValueError, ArithmeticError, OSError, RecursionError, msgspec.MsgspecError) as error:
            looked.append(Looked("files", f"{place}: {_problem(error, view)}"[:_SHOWN_CHARS]))
        else:
            looked.append(Looked("files", spec.source))
            return spec
    if not tried:
        places = dict.fromkeys(chain.from_iterable(searched(names, view) for view in views))
        looked.append(Looked("files", f"{NO_FILES} {', '.join(places)}"))
    return None


def _candidate_files(
    names: Sequence[str], model_id: str, views: Sequence[FileSystemView], hints: Mapping[str, str]
) -> Iterator[tuple[str, FileSystemView, Callable[[], LlmSpec]]]:
    """The places where the model's files may be, each with the call that reads them: every folder, then GGUF files."""
    for view, name in product(views, names):
        for folder in model_folders(name, view):
            yield f"{folder}/config.json", view, partial(_from_folder, folder, view, model_id, hints)
    for view, name in product(views, names):
        for path in gguf_paths(name, view):
            yield str(path.parent), view, partial(_from_gguf, path, view, model_id)


@contextmanager
def _in_turn() -> Iterator[None]:
    """Wait until no other model's files are read, at most `TURN_S`: they take the memory of one model then."""
    has_turn = _TURN.acquire(timeout=TURN_S)
    try:
        yield
    finally:
        if has_turn:
            _TURN.release()


def _problem(error: Exception, view: FileSystemView) -> str:
    """The fault of a file; of another user's, file and field alone: everybody may read what gpumon shows."""
    if view.reader is None or isinstance(error, OSError):
        return str(error)
    key = error.key if isinstance(error, FieldError) else ""
    return f"{key or 'its content'} cannot be used: as that user, gpumon models show says why"


def _from_gguf(path: Path, view: FileSystemView, model_id: str) -> LlmSpec:
    """A model by the header of its file; most hosts have none of that format, and read this code for nothing."""
    from gpumon.sources.gguf_file import read_gguf
    from gpumon.specs.llm_gguf import llm_from_gguf

    root = model_root(path.parent)
    within = None if root == path.parent else root
    return llm_from_gguf(read_gguf(path, view.reader, within), model_id, str(path))


def _from_folder(folder: Path, view: FileSystemView, model_id: str, hints: Mapping[str, str]) -> LlmSpec:
    """A model by the `config.json` of its folder. Weights that are quantised at load are not as the files say."""
    config = read_config(folder, view.reader)
    tensors = _tensors(folder, view)
    weights = tensors.bytes_by_type() if tensors is not None else _weights(folder, view)
    at_load, word = quantised_at_load(hints)
    source = f"{folder}/config.json"
    if at_load is None or any(config.get(key) for key in QUANTIZATION_KEYS):
        at_load = None
    else:
        source = f"{source}, {word} at load as the engine says"
        weights = {}
        tensors = None
    try:
        return llm_from_config(config, model_id, source, weights, at_load, tensors)
    except RefusedError:
        # A row of the catalogue has the folder's name perhaps, and not its dimensions.
        raise
    except ValueError as error:
        key = error.key if isinstance(error, FieldError) else ""
        raise RefusedError(f"{error} in {folder}: mend the file where it is wrong", key) from None


def _tensors(folder: Path, view: FileSystemView) -> StoredTensors | None:
    """The tensors by the headers of the files; None where these are not all there, or cannot be read."""
    try:
        return read_tensors(folder, view.reader)
    except (ValueError, ArithmeticError, OSError, msgspec.MsgspecError):
        return None


def _weights(folder: Path, view: FileSystemView) -> dict[str, float]:
    """The bytes of the weights; without them the dimensions still tell, so what is wrong there does not matter."""
    try:
        return read_weights(folder, view.reader)
    except (ValueError, ArithmeticError, OSError, msgspec.MsgspecError):
        return {}


POINTER: Final = "# `gpumon models show NAME` says where it was looked for, and which known models are near"
"""Last of the lines to add: where more is said."""


def _problem_text(problems: Sequence[str]) -> str:
    """The first problems in one line, as lines of a config may follow: names of files and values stand in them."""
    return "; ".join(clean(problem, _SHOWN_CHARS) for problem in problems[:_MOST_PROBLEMS])


def _not_known(model_id: str, looked: Sequence[Looked], problems: Sequence[str]) -> ModelLookUp:
    """No spec, with the lines to add to the config."""
    problem_text = (
        _problem_text(problems) or "no config entry, no local config.json or .gguf, no catalogue row of this name"
    )
    why = f"""\
unknown model ({problem_text}). Add to the config, with the figures of its config.json, then start gpumon again:
[[model]]
match = {Untrusted(model_id).in_config(_SHOWN_CHARS)}
params_b = 0.0    # all parameters, in 1e9
layers = 0        # num_hidden_layers
hidden = 0        # hidden_size
heads = 0         # num_attention_heads
kv_heads = 0      # num_key_value_heads
head_dim = 0      # head_dim
vocab = 0         # vocab_size
tied_embeddings = false    # tie_word_embeddings
weight_precision = "bf16"
# mixture of experts also: active_params_b, experts, experts_per_token
{POINTER}"""
    return ModelLookUp(None, why, tuple(looked))


class OwnModels(Mapping[str, LlmSpec]):
    """By served name. Engines come first; a `[[model]]` entry serves every name that its glob matches."""

    def __init__(self, served: Mapping[str, LlmSpec], entries: Sequence[Model]) -> None:
        self._served = dict(served)
        self._entries = tuple(entries)
        self._looked_up: dict[str, LlmSpec | None] = {}
        """Name -> the spec by a `[[model]]` entry; None: there is none."""

    def __getitem__(self, model: str) -> LlmSpec:
        spec = self._served.get(model) or self._configured(model)
        if spec is None:
            raise KeyError(model)
        return spec

    def _configured(self, model: str) -> LlmSpec | None:
        """The spec by a `[[model]]` entry; None where none matches, or the one that does contradicts itself."""
        if model not in self._looked_up:
            try:
                self._looked_up[model] = configured(model, self._entries)
            except ValueError:
                self._looked_up[model] = None
        return self._looked_up[model]

    def __iter__(self) -> Iterator[str]:
        """The names that are known, without those that only a glob would match."""
        named = (entry.match for entry in self._entries if not set(entry.match) & set("*?["))
        return iter(dict.fromkeys((*self._served, *named)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OwnModels):
            return NotImplemented
        return self._served == other._served and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]  # as Python marks what has no hash
