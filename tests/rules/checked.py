"""Rules that promtool evaluates on made series."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gpumon.efficiency.promql import model_constants, peak_constants, untold_constants
from gpumon.outputs.rules import ModelFacts, RuleInputs, Scope, quoted, rules_yaml
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llm import LlmSpec
from tests.fakes.prometheus import promtool
from tests.rules.loads import BANDWIDTH, PEAK, Load

SCOPE = Scope("", ("Hostname", "instance"), 15.0)
AT = "6m"
"""The longest windows are 5 min."""
EVALUATED = "3m"
"""Time between two evaluations. Groups are evaluated in their order, so a rule has what the ones before it gave."""
NAN = float("nan")


def spec(name: str) -> LlmSpec:
    found = llm_catalogue().find(name)
    assert found is not None
    return found


def facts(llm: LlmSpec, name: str, load: Load, context: float = 0.0, pool: float | None = None) -> ModelFacts:
    told = untold_constants(load.pool if pool is None else pool, context, load.ranks)
    return ModelFacts(name, "test", (*model_constants(llm, load.gpus), *peak_constants(PEAK, BANDWIDTH), *told), "x")


def check(
    folder: Path,
    ruled: RuleInputs,
    series: list[str],
    values: dict[str, float],
    at: str = AT,
    *,
    every: str = "15s",
    evaluated: str = EVALUATED,
    groups: tuple[str, ...] = (),
) -> None:
    """Each expression has this value, to a millionth; NaN: it has none. `groups`: those that count, in order."""
    check_times(folder, ruled, series, {at: values}, every=every, evaluated=evaluated, groups=groups)


def check_times(
    folder: Path,
    ruled: RuleInputs,
    series: list[str],
    values_at: dict[str, dict[str, float]],
    *,
    every: str = "15s",
    evaluated: str = EVALUATED,
    groups: tuple[str, ...] = (),
) -> None:
    """Check the values of several times, which promtool reaches in one go: time -> expression -> value."""
    rules = rules_yaml(ruled)
    head, *texts = re.split("(?m)^  - name: ", rules)
    texts_by_group = {text.split()[0]: f"  - name: {text}" for text in texts}
    groups = groups or tuple(texts_by_group)
    (folder / "rules.yml").write_text(head + "".join(texts_by_group[group] for group in groups))
    lines = [
        "rule_files: [rules.yml]",
        f"evaluation_interval: {evaluated}",
        f"group_eval_order: [{', '.join(groups)}]",
        "tests:",
        f"- interval: {every}",
    ]
    lines += ["  input_series:", *series, "  promql_expr_test:"]
    for at, values in values_at.items():
        for expr, value in values.items():
            there = value == value
            near = f"abs({expr} - {value!r}) <= {abs(value) * 1e-6!r}" if there else expr
            lines += [f"  - expr: {quoted(f'count({near})')}", f"    eval_time: {at}"]
            lines.append(f"    exp_samples: {'[{value: 1}]' if there else '[]'}")
    (folder / "test.yml").write_text("\n".join(lines) + "\n")
    result = promtool("test", "rules", str(folder / "test.yml"))
    assert result.returncode == 0, result.stdout + result.stderr


def expressions(dashboard: dict[str, Any]) -> list[str]:
    """The queries of all panels of a dashboard."""
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
