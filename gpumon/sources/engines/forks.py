"""Engines that write vLLM's series under a prefix of their own: a row for each, read by vLLM's rules.

Aphrodite: aphrodite/v1/metrics/loggers.py of aphrodite-engine/aphrodite-engine at b42eeec (April 2026).
TokenSpeed: tokenspeed/runtime/metrics/collector.py and engine/output_processor.py of tokenspeed 0.1.1 (October 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.sources.engines.adapter import Adapter, EngineRow, FirstAnswer
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import NO_BODIES, Bodies
from gpumon.sources.engines.renaming import SAME_REST, Renaming
from gpumon.sources.engines.tables import Tables
from gpumon.sources.engines.vllm import CATCHES, TABLES, VLLM_OPTIONS, VllmAdapter
from gpumon.sources.exposition import Scan

_VLLM: Final = "vllm:"


class Fork(NamedTuple):
    """An engine that writes vLLM's series, by its differences from vLLM."""

    kind: EngineKind
    title: str
    prefix: str
    port: int
    form: LaunchForm
    rank_label: str = TABLES.rank_label
    names: Mapping[str, str] = SAME_REST
    """Name of a series -> vLLM's name of the same meaning, or empty for a series that is not read.

    A series that is not named here has vLLM's name but for the prefix.
    """
    at_end: tuple[str, ...] = ()
    """Quantities that it counts when a request ends, where vLLM counts them at each step."""
    switch: str = ""
    """How its metrics are switched on, as in `EngineRow`."""
    names_from: str = ""
    """The version whose source the names are from, as in `EngineRow`."""


class ForkAdapter(VllmAdapter):
    """One server of a fork."""

    fork: ClassVar[Fork]
    from_documentation = True

    def __init__(self) -> None:
        super().__init__()
        self._renaming = Renaming(self.fork.prefix, _VLLM, self.fork.names)

    @classmethod
    def claims(cls, page: FirstAnswer) -> bool:
        """Whether vLLM's adapter would claim the page if it had vLLM's names."""
        own_names = [name for name in page.names if name.startswith(cls.prefixes)]
        renaming = Renaming(cls.fork.prefix, _VLLM, cls.fork.names)
        return super().claims(page._replace(names=frozenset(map(renaming.table_name, own_names))))

    @property
    def wanted_names(self) -> frozenset[str]:
        """Names of vLLM's samples, as this engine has them."""
        return self._renaming.page_names(super().wanted_names)

    def page_names(self, name: str) -> frozenset[str]:
        """Names that this engine has for one of vLLM's."""
        return self._renaming.page_names((name,))

    def read(
        self, scan: Scan, bodies: Bodies = NO_BODIES, part: str = "", started_wall_s: float = 0.0
    ) -> EngineReading:
        """The page as a reading by vLLM's rules. Sources in `live` are named as on the page."""
        return self._renaming.rename_sources(
            super().read(self._renaming.rename_page(scan), bodies, part, started_wall_s)
        )


def _fork_tables(row: Fork) -> Tables:
    """The tables of vLLM, with the rank's label of this engine, and when it counts what."""
    counters = []
    for counted in TABLES.counters:
        if counted.quantity in row.at_end:
            metrics = tuple(metric._replace(advance=Advance.END) for metric in counted.metrics)
            counters.append(counted._replace(metrics=metrics))
        else:
            counters.append(counted)
    return TABLES._replace(rank_label=row.rank_label, counters=tuple(counters))


def _make_adapter(row: Fork) -> type[Adapter]:
    """A class of adapters for the servers of one row."""

    class OneFork(ForkAdapter):
        """The servers of one row."""

        fork = row
        kind = row.kind
        prefixes = (row.prefix,)
        tables = _fork_tables(row)

    return OneFork


FORKS: Final = (
    Fork(
        kind=EngineKind.APHRODITE,
        title="Aphrodite",
        prefix="aphrodite:",
        port=2242,
        form=LaunchForm(
            EngineKind.APHRODITE,
            "Aphrodite",
            ("aphrodite run", "aphrodite serve", "aphrodite.entrypoints.openai.api_server"),
            options=VLLM_OPTIONS,
            variables={"key": "APHRODITE_API_KEY"},
            abbreviates=True,
            positional=True,
            catches=CATCHES,
        ),
        names_from="b42eeec, April 2026",
    ),
    Fork(
        kind=EngineKind.TOKENSPEED,
        title="TokenSpeed",
        prefix="tokenspeed:",
        port=8000,
        form=LaunchForm(
            EngineKind.TOKENSPEED,
            "TokenSpeed",
            ("ts serve", "tokenspeed serve", "tokenspeed.cli serve", "smg_grpc_servicer.tokenspeed.server"),
            options={
                "host": "--metrics-host",
                "port": "--metrics-port",
                "model": "--model",
                "served_name": "--served-model-name",
                "tp": "--tensor-parallel-size --tp",
                "dp": "--data-parallel-size",
                "quantization": "--quantization",
                "kv_dtype": "--kv-cache-dtype",
                "on": "--enable-metrics",
            },
            positional=True,
            takes_usual_port=False,
            why_no_port="its gateway has no page of its engine: start it with --enable-metrics and --metrics-port PORT",
        ),
        rank_label="dp_rank",
        names={
            # All that ended; the other leaves out aborted ones.
            "tokenspeed:num_requests_total": "vllm:request_success_total",
            "tokenspeed:request_success_total": "",
            # Of requests that ended; vLLM's own hits are counted at admission.
            "tokenspeed:prefix_cache_hits_total": "vllm:prompt_tokens_cached_total",
            # It takes in each token up to three times: by the clock of the server, by that of the scheduler, and once
            # more when the request ends.
            **{f"tokenspeed:inter_token_latency_seconds_{end}": "" for end in ("bucket", "sum", "count")},
            # The whole latency of a request by its tokens, queue and prefill included.
            **{f"tokenspeed:request_time_per_output_token_seconds_{end}": "" for end in ("bucket", "sum", "count")},
        },
        at_end=(q.PROMPT_TOKENS, q.PREFILL_CACHED, q.DECODE_TOKENS),
        switch="start it with --enable-metrics",
        names_from="0.1.1, October 2026",
    ),
)
"""All forks."""
FORK_ROWS: Final = tuple(
    EngineRow(
        fork.title,
        _make_adapter(fork),
        port=fork.port,
        switch=fork.switch,
        names_from=fork.names_from,
        version_path="/version",
        forms=(fork.form,),
    )
    for fork in FORKS
)
