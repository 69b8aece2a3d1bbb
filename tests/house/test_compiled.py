"""The folder of compiled code holds compiled functions and what they share, and nothing else."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import truenorm

FOLDER = Path(truenorm.__file__).parent / "kernels" / "fused" / "compiled"
FILES = sorted(FOLDER.rglob("*.py"))
ALLOWED = (
    "truenorm.kernels.fused.compiled",
    "truenorm.kernels.fused.compiling",
    "truenorm.kernels.ground",
)
COMPILED = {"compiled", "kernel", "overload", "intrinsic"}


def named(path: Path) -> str:
    return str(path.relative_to(FOLDER))


def decorators(function: ast.FunctionDef) -> set[str]:
    calls = [each.func if isinstance(each, ast.Call) else each for each in function.decorator_list]
    return {each.id for each in calls if isinstance(each, ast.Name)}


def names_in(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_imports(path: Path) -> None:
    """A change elsewhere would not be noticed by the cache."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("truenorm"):
            assert (node.module or "").startswith(ALLOWED), ast.unparse(node)


@pytest.mark.parametrize("path", FILES, ids=named)
def test_functions(path: Path) -> None:
    """Each is compiled, or has a compiled twin, or is what one of those is made of."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    made = {
        name
        for node in module.body
        for name in names_in(node)
        if not isinstance(node, ast.FunctionDef) or decorators(node) & COMPILED
    }
    for function in functions:
        assert decorators(function) & COMPILED or function.name in made, function.name


def test_there_are_some() -> None:
    assert len(FILES) > 15
