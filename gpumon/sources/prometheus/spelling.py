"""Labels as lines of the config, and those that tell targets apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.readings.fleet import LabelsLine
from gpumon.readings.text import clean
from gpumon.sources.prometheus.queries import LABEL_NAME

OF_SCRAPING: Final = frozenset({"job", "endpoint", "service", "container", "__name__"})
"""Labels that never name a machine."""


def to_add(line: LabelsLine) -> str:
    """The words of a notice that propose a line of the config."""
    return f"add to [prometheus]: {line.key} = {json.dumps([clean(name, 80) for name in line.labels])}"


def telling_labels(targets: Sequence[Mapping[str, str]]) -> list[str]:
    """Labels that all of these targets have, each with a value of its own. Those are left out whose name is none in the
    config or in a query without quotes, as OpenTelemetry has them (`k8s.node.name`)."""
    names = set(filter(LABEL_NAME.fullmatch, targets[0])).intersection(*targets[1:])
    names -= OF_SCRAPING | {"instance", "pod"}
    return sorted(name for name in names if len({target[name] for target in targets}) == len(targets))
