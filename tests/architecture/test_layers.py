"""The house rules that a static graph cannot see: what a fresh interpreter really loads, and names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

from tests.architecture.parsed import MODULES, PACKAGE, nodes_of, tree_of
from tests.each_row import each_row

FORBIDDEN_WORDS = ("Manager", "Helper", "Utils", "Handler", "Misc")


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


@each_row(
    ("statement", "absent"),
    [
        ("import gpumon.cli", {"textual", "httpx", "pynvml", "psutil", "rich", "prometheus_client"}),
        ("import gpumon.efficiency.deriver", {"textual", "httpx", "pynvml", "psutil", "asyncio", "subprocess", "rich"}),
        ("import gpumon.tui.app", {"httpx", "pynvml", "psutil", "gpumon.sources", "gpumon.collector", "sqlite3"}),
        ("import gpumon.outputs.json", {"textual", "httpx", "pynvml", "psutil", "gpumon.sources", "rich"}),
        ("import gpumon.outputs.plain", {"textual", "httpx", "pynvml", "psutil", "gpumon.sources"}),
        ("import gpumon.session.host, gpumon.session.fleet", {"textual", "httpx", "pynvml", "prometheus_client"}),
        ("import gpumon.sources.driver.worker", {"textual", "httpx", "asyncio", "rich"}),
    ],
)
def test_a_module_loads_only_what_its_layer_may(statement: str, absent: set[str]):
    assert not loaded_after(statement) & absent


def test_a_file_says_what_lives_there():
    for path in MODULES:
        assert ast.get_docstring(tree_of(path)), f"{path} opens with a line saying what lives there"
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                assert not node.name.endswith(FORBIDDEN_WORDS), (path, node.name)


def test_every_file_that_the_docs_name_is_there():
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:tests/)?[a-z_]+/[a-z_/]*\.(?:py|csv))`", text))
    assert len(named) > 40
    assert not [name for name in named if not (PACKAGE.parent / name).exists() and not (PACKAGE / name).exists()]
