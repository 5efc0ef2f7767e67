"""What makes a reader stop, over the whole program: there is none of it.

Branches are those of McCabe's count; a nested conditional is a conditional expression inside another; paired
assignments give several names their own values in one line; a fragment is a docstring that begins in the middle of a
sentence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from tests.architecture.parsed import MODULES, PACKAGE, nodes_of
from tests.each_row import each_row

MOST_BRANCHES = 15
BRANCHING = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.comprehension)
MIDDLE_OF_A_SENTENCE = re.compile(r"(Of|That|Those|Whose|What|Where|Because)\b")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def functions() -> Iterator[tuple[str, ast.AST]]:
    """Every function of the program, with its place."""
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, FUNCTIONS):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}", node


def branches(function: ast.AST) -> int:
    """Ways through a function, of the functions in it those of the outer one only."""
    count = 1
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if isinstance(node, FUNCTIONS):
            continue
        if isinstance(node, BRANCHING):
            count += 1
        if isinstance(node, ast.comprehension):
            count += len(node.ifs)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        pending.extend(ast.iter_child_nodes(node))
    return count


def nested(nodes: Iterable[ast.AST]) -> list[int]:
    """Lines of conditional expressions inside other ones."""
    return [
        inner.lineno
        for outer in nodes
        if isinstance(outer, ast.IfExp)
        for part in (outer.body, outer.orelse, outer.test)
        for inner in ast.walk(part)
        if isinstance(inner, ast.IfExp)
    ]


def paired(nodes: Iterable[ast.AST]) -> list[int]:
    """Lines that assign several values to several names; an exchange of two is none."""
    lines: list[int] = []
    for node in nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        if not any(isinstance(target, ast.Tuple) for target in node.targets):
            continue
        given = {ast.dump(value) for value in node.value.elts}
        taken = {ast.dump(name).replace("Store()", "Load()") for name in node.targets[0].elts}  # type: ignore[attr-defined]
        if given != taken:
            lines.append(node.lineno)
    return lines


def fragments(nodes: Iterable[ast.AST]) -> list[int]:
    """Lines of texts that stand alone, as docstrings do, and begin in the middle of a sentence: with Of, That, What."""
    lines: list[int] = []
    for node in nodes:
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        text = node.value.value
        if isinstance(text, str) and MIDDLE_OF_A_SENTENCE.match(text):
            lines.append(node.lineno)
    return lines


def test_no_function_has_many_branches() -> None:
    found = [place for place, function in functions() if branches(function) > MOST_BRANCHES]
    assert found == [], f"more than {MOST_BRANCHES} ways through a function"


@each_row("count", [nested, paired, fragments], named=["nested", "paired", "fragments"])
def test_a_line_has_one_decision_and_one_assignment_and_a_docstring_is_a_sentence(
    count: Callable[[Iterable[ast.AST]], list[int]],
) -> None:
    found = [f"{path.relative_to(PACKAGE)}:{line}" for path in MODULES for line in count(nodes_of(path))]
    assert found == [], count.__doc__


def test_the_counts_see_what_they_count() -> None:
    """A function of each kind, so that an empty list above means something."""
    tree = ast.parse("def f(a, b):\n    c, d = a, b\n    c, d = d, c\n    return 1 if a else 2 if b else d and c\n")
    nodes = list(ast.walk(tree))
    assert paired(nodes) == [2]
    assert nested(nodes) == [4]
    assert branches(tree.body[0]) == 4
    assert fragments(ast.walk(ast.parse('"""That it is."""\nSIZE = 1\n"""Whatever it is."""\n'))) == [1]
