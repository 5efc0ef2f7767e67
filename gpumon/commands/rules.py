"""`gpumon rules`: recording rules, alerts and a dashboard for a Prometheus."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from gpumon.commands.options import add_config, number_option
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_OK, Failed, complain, write
from gpumon.config.errors import ConfigError
from gpumon.config.prices import goals_of, running_prices
from gpumon.config.save import NotSavedError
from gpumon.config.scenario_file import save_text
from gpumon.config.schema import Config
from gpumon.efficiency.flops import compute_peak
from gpumon.efficiency.promql import model_constants, peak_constants, untold_constants
from gpumon.outputs.dashboard import dashboard_json
from gpumon.outputs.rules import ModelFacts, RuleInputs, RulePrices, Scope, promql_number, rules_yaml
from gpumon.readings.format import counted
from gpumon.readings.text import clean
from gpumon.sources.file_views import view
from gpumon.sources.model_facts import look_up
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.sources.prometheus.api import ApiFault
from gpumon.sources.prometheus.inventory import KvPool, ScrapedThings, ask_inventory
from gpumon.specs.gpu import GpuFacts, GpuSpec
from gpumon.specs.llm import LlmSpec

_LABEL: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""The name of a label of a Prometheus."""
_MOST_GPUS: Final = 1024
"""Most GPUs of one engine."""
_MOST_MODELS: Final = 500
"""Models that rules are printed for."""
_MOST_NAMED: Final = 5
"""Models that a warning or an error names."""
_MOST_TYPES_NAMED: Final = 6
"""Types of GPU that an error names."""
MODELS_GIVEN: Final = "--model NAME, or [[model]] entries in the config"
"""How models are given."""
ASSUMED: Final = "ASSUMED: nothing tells it (--gpus-per-engine, or gpus_per_engine in [prometheus])"
"""`EngineSize.source` where neither the user nor a label tells how many GPUs an engine has: 1 is taken."""


class EngineSize(NamedTuple):
    """GPUs of one engine."""

    gpus: int
    ranks: int = 0
    """Data-parallel ranks that share them; 0: as many as its page shows."""
    source: str = "as it was given"


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the models and their GPUs, and the file to write."""
    add_config(parser)
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="read models and GPUs from this Prometheus",
    )
    parser.add_argument("-o", metavar="FILE", dest="output", help="write a new file")
    parser.add_argument("--dashboard", action="store_true", help="print a Grafana dashboard instead")
    for option, metavar, meaning in (
        ("--model", "NAME", "a model, as its engines' label model_name has it (repeatable)"),
        ("--gpu", "[MODEL=]TYPE", 'type of its GPUs, e.g. "H100 SXM 80GB" (repeatable)'),
        (
            "--gpus-per-engine",
            "[MODEL=]N[/RANKS]",
            "GPUs of one engine (default: from labels, else 1), and data-parallel ranks (repeatable)",
        ),
    ):
        parser.add_argument(option, metavar=metavar, action="append", help=meaning)
    parser.add_argument("--price", metavar="P", type=number_option(1e-6, 1e9), help="price of one GPU hour")
    parser.add_argument(
        "--interval",
        metavar="S",
        dest="scrape_s",
        type=number_option(0.25, 3600),
        default=15.0,
        help="scrape interval in seconds (default 15)",
    )
    parser.add_argument(
        "--context", metavar="N", type=number_option(1, 1e8), help="mean context in tokens, if no series has it"
    )
    parser.add_argument(
        "--join", metavar="LABEL", help="label that an engine and its GPUs share, e.g. pod (default: their host)"
    )


def run(chosen: argparse.Namespace) -> int:
    """Print the rules, or with `--dashboard` the dashboard, or write them into a new file."""
    config = settings(chosen).loaded.config
    join = chosen.join or ""
    if join and not _LABEL.fullmatch(join):
        raise ConfigError(f"--join {clean(join, 60)!a}: must be the name of a label, such as pod")
    scraped_things = _prometheus_contents(config)
    warnings: list[str] = []
    prices = _rule_prices(config, chosen)
    if chosen.dashboard:
        # Where nothing is known of a Prometheus, the dashboard has the panels of scraped engines.
        scraped = bool(scraped_things.models or scraped_things.gpus or not scraped_things.served)
        priced = bool(prices.by_price or prices.any_other)
        text = dashboard_json(priced=priced, scraped=scraped, served=scraped_things.served)
    else:
        scope = Scope(config.prometheus.match, config.prometheus.host_labels, chosen.scrape_s, join)
        models, unknown = _models(chosen, config, scraped_things, warnings)
        inputs = RuleInputs(
            models=models,
            scope=scope,
            prices=prices,
            thresholds=config.triage,
            unknown=unknown,
            scraped=bool(models or unknown or scraped_things.gpus),
            served=scraped_things.served,
            goals=goals_of(config.goals),
        )
        text = rules_yaml(inputs)
    _print_or_write(text, chosen.output)
    for warning in warnings:  # the rules go into a file: nobody sees its comments
        complain(warning, EXIT_OK)
    return EXIT_OK


def _prometheus_contents(config: Config) -> ScrapedThings:
    """Models and GPUs of the config's Prometheus; none if there is no Prometheus. Raises Failed and ConfigError."""
    if not config.prometheus.url:
        return ScrapedThings()
    try:
        return asyncio.run(ask_inventory(config))
    except ApiFault as fault:
        raise Failed(f"rules: {fault}") from None
    except ValueError as malformed:
        raise ConfigError(f"rules: {clean(str(malformed), 300)}") from None


def _print_or_write(text: str, output: str | None) -> None:
    """Print the text, or write it into a new file. Raises ConfigError."""
    if not output:
        write(text)
        return
    try:
        save_text(output, text, replace=False)
    except NotSavedError as why:
        raise ConfigError(f"-o: {why}: give another name, or remove it first") from None


def _models(
    chosen: argparse.Namespace, config: Config, scraped_things: ScrapedThings, warnings: list[str]
) -> tuple[tuple[ModelFacts, ...], tuple[tuple[str, str], ...]]:
    """The models of the command line, the Prometheus or the config; names of those without constants, and why.

    `warnings`: those of the models are added to it. Raises ConfigError.
    """
    names = _model_names(chosen, config, scraped_things)
    if not names and not scraped_things.served:
        raise ConfigError(f"rules: {_no_models_text(config)}")
    typed_facts = _TypedFacts(
        gpus=_values_by_model("--gpu", chosen.gpu or [], names),
        counts=_values_by_model("--gpus-per-engine", chosen.gpus_per_engine or [], names),
        context=chosen.context or 0.0,
        by_name=bool(chosen.model),
    )
    models: list[ModelFacts] = []
    unknown: list[tuple[str, str]] = []
    assumed: list[str] = []
    for name in names[:_MOST_MODELS]:
        try:
            model, size = _facts_of(name, typed_facts, config, scraped_things, warnings)
        except _NoConstants as problem:
            unknown.append((name, problem.why))
            warnings.append(f"no MFU and MBU of {clean(name, 80)}: {problem.warning}")
            continue
        models.append(model)
        if size.source == ASSUMED:
            assumed.append(name)
    if assumed:
        warnings.append(_assumed_warning(assumed))
    return tuple(models), tuple(unknown)


def _model_names(chosen: argparse.Namespace, config: Config, scraped_things: ScrapedThings) -> list[str]:
    """The models of `--model`, else those of the Prometheus, else those that the config names. Raises ConfigError."""
    names: Iterable[str] = chosen.model or scraped_things.models
    if not names and not scraped_things.served:
        # A pattern names no model.
        names = [entry.match for entry in config.model if not set(entry.match) & set("*?[")]
    for name in names:
        if not name.isascii() and name != name.encode("utf-8", "replace").decode():
            raise ConfigError(f"--model {clean(name, 80)!a}: is not UTF-8, as a label must be")
    return list(dict.fromkeys(names))


def _assumed_warning(assumed: Sequence[str]) -> str:
    """The models that are taken to run on one GPU per engine, and how to say otherwise."""
    more = f" and {len(assumed) - _MOST_NAMED} more" if len(assumed) > _MOST_NAMED else ""
    names = ", ".join(clean(name, 80) for name in assumed[:_MOST_NAMED])
    return (
        f"rules: assumed 1 GPU per engine, as no label says how many: {names}{more}; where that is wrong MFU and MBU "
        f"are too high: give --gpus-per-engine '{clean(assumed[0], 80)}=N'"
    )


class _NoConstants(Exception):  # noqa: N818 (the other models are written)
    """A model that gets no constants. `why` is the comment in the file, `warning` the line on stderr."""

    def __init__(self, why: str, warning: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.warning = warning or why


class _TypedFacts(NamedTuple):
    """Facts of the models from the command line."""

    gpus: Mapping[str, str]
    """GPU type by model; under "" that of all others."""
    counts: Mapping[str, str]
    """GPUs per engine, and ranks, by model; under "" those of all others."""
    context: float
    """Mean tokens of a context; 0: not given."""
    by_name: bool
    """Whether the models were named, not looked up: their configs may be in files here."""


def _facts_of(
    name: str, typed_facts: _TypedFacts, config: Config, scraped_things: ScrapedThings, warnings: list[str]
) -> tuple[ModelFacts, EngineSize]:
    """The constants of a model, and the GPUs of its engines. Raises _NoConstants where it has none, ConfigError."""
    views = []
    if typed_facts.by_name:
        views.append(view(os.environ))
    facts = look_up(name, "", config.model, llm_catalogue(), views)
    if facts.spec is None:
        reason = clean(facts.why.partition(". Add")[0], 160)
        raise _NoConstants(facts.why, f"{reason}; the file has the lines to add")
    typed_count = _value_of(typed_facts.counts, name)
    if name in scraped_things.sliced and not typed_count:
        raise _NoConstants("its engines run on MIG slices, and the rules know whole GPUs")
    gpu = _find_gpu(config, _value_of(typed_facts.gpus, name) or config.sizing.gpu, scraped_things.gpus, name)
    if facts.spec.flops_unknown:
        raise _NoConstants(facts.spec.flops_unknown)
    if typed_count:
        size = _parse_size(typed_count)
    else:
        size = _known_size(name, scraped_things, warnings, config.prometheus.gpus_per_engine)
    _check_fits(name, facts.spec, gpu, size.gpus)
    model = _model_facts(
        name=name,
        llm=facts.spec,
        gpu=gpu,
        size=size,
        pool=scraped_things.pools.get(name, KvPool()),
        context=typed_facts.context,
    )
    return model, size


def _value_of(values: Mapping[str, str], name: str) -> str:
    """The value typed for a model, else that for all others; empty where none was typed."""
    return values.get(name, values.get("", ""))


def _no_models_text(config: Config) -> str:
    """Why there is no model, and what to give."""
    if not config.prometheus.url:
        return f"of which models? Give --prometheus URL (its models are looked up), {MODELS_GIVEN}"
    url = clean(config.prometheus.url, 80)
    return (
        f"{url} has no series of vLLM, SGLang or llama.cpp with a model_name, and none of gpumon serve-metrics: "
        f"have it scrape them (docs/rules.md), or give {MODELS_GIVEN}"
    )


def _known_size(
    name: str, scraped_things: ScrapedThings, warnings: list[str], configured: Mapping[str, int]
) -> EngineSize:
    """GPUs of an engine: those of the config, else those that labels in the Prometheus tell, else 1.

    `configured`: pattern of models -> GPUs. Where engines of a model differ, a warning is added to `warnings`.
    """
    for glob, gpus in configured.items():
        if fnmatchcase(name, glob):
            return EngineSize(gpus, source="as [prometheus] gpus_per_engine says")
    sizes = scraped_things.sizes.get(name)
    if not sizes:
        return EngineSize(1, source=ASSUMED)
    usual_gpus = max(sizes, key=lambda gpus: (sizes[gpus], gpus))  # of the most engines, else the larger number
    if len(sizes) > 1:
        counts_of_gpus = ", ".join(f"{engines} on {gpus}" for gpus, engines in sorted(sizes.items()))
        warnings.append(
            f"rules: engines of {clean(name, 80)} have different numbers of GPUs ({counts_of_gpus}), and the rules "
            f"know one per model: MFU and MBU are right where it is {usual_gpus}"
        )
    return EngineSize(usual_gpus, source="as its labels in the Prometheus say")


def _model_facts(
    *, name: str, llm: LlmSpec, gpu: GpuSpec, size: EngineSize, pool: KvPool, context: float
) -> ModelFacts:
    """The constants of a model on its GPUs. `context`: mean tokens of a context; 0: not known."""
    flops_per_s = 0.0
    peaks = compute_peak(gpu, llm)
    if peaks is not None:
        flops_per_s, _ = peaks
    # Blocks that unlike layers share do not tell how many tokens fit.
    pool_tokens = 0.0 if not llm.uniform and not pool.in_tokens else pool.tokens
    constants = (
        *model_constants(llm, size.gpus),
        *peak_constants(flops_per_s, gpu.bandwidth_bytes_per_s),
        *untold_constants(pool_tokens, context, size.ranks),
    )
    return ModelFacts(
        name=name,
        source=llm.source,
        constants=constants,
        gpu=gpu.name,
        size=f"{counted(size.gpus, 'GPU')} per engine, {size.source}",
    )


def _values_by_model(option: str, texts: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Values of an option: those of `VALUE` under "", those of `MODEL=VALUE` under the model. Raises ConfigError."""
    values: dict[str, str] = {}
    for text in texts:
        model, _, value = text.rpartition("=")
        if model and model not in names:
            known = ", ".join(clean(name, 60) for name in names[:_MOST_NAMED])
            raise ConfigError(f"{option} {clean(text, 80)!a}: no such model here; there are: {known}")
        values[model] = value
    return values


def _find_gpu(config: Config, typed: str, scraped: Sequence[str], model: str) -> GpuSpec:
    """The type of a model's GPUs: the one that was typed, else the only one that the Prometheus has.

    `scraped`: NVML names of its GPUs. Raises ConfigError where neither tells it.
    """
    catalogue = gpu_catalogue(config.gpu)
    if typed:
        try:
            return catalogue.find(typed)
        except ValueError as error:
            raise ConfigError(f"--gpu (or [sizing].gpu) {error}") from None
    if len(scraped) > 1:
        several = ", ".join(clean(name, 60) for name in scraped[:_MOST_TYPES_NAMED])
        raise ConfigError(
            f"rules: the Prometheus has GPUs of several types ({several}): say which serve each model, "
            f"with --gpu TYPE or --gpu '{clean(model, 60)}=TYPE'"
        )
    spec = catalogue.match(GpuFacts(scraped[0])) if scraped else None
    if spec is not None:
        return spec
    raise ConfigError(
        f"rules: which GPUs serve {clean(model, 60)!a}? Give --gpu TYPE, such as --gpu 'H100 SXM 80GB', or [sizing].gpu"
    )


def _parse_size(text: str) -> EngineSize:
    """The size that `GPUS` or `GPUS/RANKS` says. Raises ConfigError."""
    numbers = re.fullmatch("([1-9][0-9]{0,3})(?:/([1-9][0-9]{0,3}))?", text)
    if numbers:
        size = EngineSize(int(numbers[1]), int(numbers[2] or 0))
    else:
        size = EngineSize(0)  # refused below
    if not 1 <= size.gpus <= _MOST_GPUS or size.gpus % (size.ranks or 1):
        raise ConfigError(
            f"--gpus-per-engine {clean(text, 40)!a}: must be a whole number from 1 to {_MOST_GPUS}, or GPUS/RANKS, "
            "such as 8/4: the GPUs of an engine and the data-parallel ranks that share them evenly"
        )
    return size


def _check_fits(name: str, llm: LlmSpec, gpu: GpuSpec, count: int) -> None:
    """Refuse a number of GPUs whose memory does not hold the weights. Raises _NoConstants."""
    weights = llm.stored_bytes or llm.read_bytes
    if not gpu.memory_bytes or weights <= gpu.memory_bytes * count:
        return
    verb = "has" if count == 1 else "have"
    raise _NoConstants(
        f"its weights take {weights / 1e9:.0f} GB, and {count} x {gpu.name} {verb} "
        f"{gpu.memory_bytes * count / 1e9:.0f}: give --gpus-per-engine '{clean(name, 80)}=N'"
    )


def _rule_prices(config: Config, chosen: argparse.Namespace) -> RulePrices:
    """Prices by NVML name; `--price` is that of every GPU without one of its own. Raises ConfigError."""
    catalogue = gpu_catalogue(config.gpu)
    try:
        prices = dict(running_prices(config, catalogue).per_gpu_hour)
    except ValueError as error:
        raise ConfigError(f"[prices.by_type]: {error}") from None
    if chosen.price is not None:
        prices[""] = chosen.price
    by_price: dict[str, list[str]] = {}
    for name, specs in catalogue.by_name.items():
        priced = [spec.name for spec in specs if spec.name in prices]
        if priced:
            by_price.setdefault(promql_number(prices[priced[0]]), []).append(name)
    other = promql_number(prices[""]) if "" in prices else ""
    return RulePrices({price: tuple(names) for price, names in by_price.items()}, other)
