"""The root task in one file: what the README and Learn print, and what its checks can see."""

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks import transcripts
from truenorm import textbook

FILE = Path(__file__).parents[3] / "examples" / "from_scratch.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FILE.parent)
    return importlib.import_module("from_scratch")


@pytest.mark.parametrize("name", ["scratch", "scratch front"])
def test_pages_show_what_is_printed(name: str) -> None:
    """If this fails: `python -m benchmarks.transcripts "scratch" "scratch front"`."""
    printed = transcripts.run(name)
    assert printed.count("PASS") == 3
    assert transcripts.masked(printed) == transcripts.masked(transcripts.shown(name))


def test_it_needs_numpy_alone() -> None:
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
        elif isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
    assert imported - set(sys.stdlib_module_names) == {"numpy"}


def test_it_computes_what_the_textbook_computes(example: ModuleType) -> None:
    rng = np.random.default_rng(1)
    x, dy = rng.standard_normal((2, 3, 5, 7))
    gamma, beta = rng.standard_normal((2, 7))
    y, saved = example.forward(x, gamma, beta)
    y_of_textbook, saved_of_textbook = textbook.forward(x, gamma, beta)
    results = y, *example.backward(dy, saved)
    others = y_of_textbook, *textbook.backward(dy, saved_of_textbook)
    for result, other in zip(results, others, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("place", range(3))
def test_its_check_fails_for_each_wrong_gradient(
    example: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: int,
) -> None:
    right = example.backward

    def wrong(*arguments: object) -> tuple[object, ...]:
        gradients = list(right(*arguments))
        gradients[place] = gradients[place] * (1 + 1e-7)
        return tuple(gradients)

    monkeypatch.setattr(example, "backward", wrong)
    assert not example.check_gradients()
    verdicts = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert verdicts == ["FAIL" if at == place else "PASS" for at in range(3)]


def test_large_means_and_long_sums_lose_no_digits_in_float32(example: ModuleType) -> None:
    """Each line fails if `centre` subtracts one mean, or if sums over rows are in float32."""
    one = np.ones(3, np.float32)
    row = np.array([1e7, 1e7 + 1, 1e7 + 1], dtype=np.float32)
    y, _ = example.forward(row, one, 0 * one)
    np.testing.assert_allclose(y, np.array([-2, 1, 1]) / np.sqrt(2 + 9e-5), rtol=1e-6)
    _, saved = example.forward(np.array([[[0, 1, 5]]], np.float32), one, one)
    dx, _, _ = example.backward(row[None, None], saved)
    np.testing.assert_allclose(dx[0, 0], [-0.1763468, 0.2204330, -0.0440862], rtol=1e-6)
    _, saved = example.forward(np.zeros((1, 2**24 + 2, 1), np.float32), one[:1], one[:1])
    _, _, dbeta = example.backward(np.ones((1, 2**24 + 2, 1), np.float32), saved)
    assert dbeta == 2**24 + 2
