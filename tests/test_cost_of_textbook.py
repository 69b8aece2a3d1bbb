"""docs/time-and-memory.md against what NumPy is really asked to do."""

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from truenorm import textbook

PAGE = Path(__file__).parents[1] / "docs" / "time-and-memory.md"
Step = tuple[int, int, int]
"""FLOPs, reads and writes, in arrays of N elements."""


class Watched(np.ndarray[tuple[Any, ...], np.dtype[np.float64]]):
    """An array that writes every operation on N elements into a list they share."""

    steps: list[Step]

    def __array_finalize__(self, parent: object) -> None:
        self.steps = getattr(parent, "steps", [])

    def __array_ufunc__(self, ufunc: np.ufunc, method: Any, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(value) for value in inputs]
        if "out" in options:
            options["out"] = tuple(np.asarray(value) for value in options["out"])
        result = getattr(ufunc, method)(*plain, **options)
        whole = {id(value) for value in inputs if np.size(value) == self.whole_size()}
        if whole:
            self.steps.append((1, len(whole), int(np.size(result) == self.whole_size())))
        watched = np.asarray(result).view(Watched)
        watched.steps = self.steps
        return watched

    @staticmethod
    def whole_size() -> int:
        return 2 * 3 * 5


def watch(array: NDArray[np.float64], steps: list[Step]) -> Watched:
    watched = array.view(Watched)
    watched.steps = steps
    return watched


def arrays(cell: str) -> int:
    """Read a cell of the page: nothing, 'N' or '2 N'."""
    match = re.fullmatch(r"(\d*) ?N|", cell.strip(" *"))
    assert match, f"not a number of arrays: {cell!r}"
    return 0 if not match[0] else int(match[1] or 1)


def table_under(heading: str) -> tuple[list[Step], Step]:
    """Return the steps and the total of the first table under a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    rows = [tuple(arrays(cell) for cell in line.split("|")[3:6]) for line in lines]
    steps = [(flops, reads, writes) for flops, reads, writes in rows]
    return steps[:-1], steps[-1]


@pytest.fixture
def performed() -> dict[str, list[Step]]:
    random = np.random.default_rng(0)
    forward: list[Step] = []
    backward: list[Step] = []
    x, dy = random.standard_normal((2, 2, 3, 5))
    gamma, beta = random.standard_normal((2, 5))
    _, saved = textbook.forward(watch(x, forward), gamma, beta)
    saved = textbook.Saved(*(watch(np.asarray(array), backward) for array in saved))
    textbook.backward(watch(dy, backward), saved)
    return {"Forward": forward, "Backward": backward}


@pytest.mark.parametrize("heading", ["Forward", "Backward"])
def test_every_step_of_the_page_is_performed(
    heading: str, performed: dict[str, list[Step]]
) -> None:
    steps, total = table_under(heading)
    assert performed[heading] == steps
    assert total == tuple(sum(column) for column in zip(*steps, strict=True))


def test_peak_memory() -> None:
    """Four arrays of N elements in each pass, of which NumPy may save one by reusing it."""
    x, dy = np.random.default_rng(0).standard_normal((2, 16, 64, 1024))
    gamma, beta = np.ones((2, 1024))
    small = 0.05 * x.nbytes  # one number a row, one a column, and Python's own

    def peak_during(call: Any, *arguments: Any) -> tuple[float, Any]:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = call(*arguments)
        return tracemalloc.get_traced_memory()[1] - before, result

    tracemalloc.start()
    try:
        forward_peak, (_, saved) = peak_during(textbook.forward, x, gamma, beta)
        backward_peak, _ = peak_during(textbook.backward, dy, saved)
    finally:
        tracemalloc.stop()
    for peak in (forward_peak, backward_peak):
        assert 3 * x.nbytes <= peak <= 4 * x.nbytes + small


def test_kept_memory_at_the_size_of_the_page() -> None:
    """The bytes the page states, a thousand times what forward keeps of (8, 1024, 4096)/1024."""
    x = np.zeros((8, 1, 4096), dtype=np.float32)
    _, saved = textbook.forward(x, np.ones(4096, np.float32), np.zeros(4096, np.float32))
    text = PAGE.read_text(encoding="utf-8")
    assert f"| xhat | N | {1024 * saved.xhat.nbytes:,} |" in text
    assert f"| rstd | R | {1024 * saved.rstd.nbytes:,} |" in text
