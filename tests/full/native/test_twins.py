"""No call costs many times as much as its ordinary twin: the table of `benchmarks.twins`."""

from collections.abc import Callable, Iterator

import pytest

from benchmarks.common import read_results
from benchmarks.twins import (
    FAMILIES,
    FILES,
    GATHERED,
    LATER,
    LIMIT,
    SHAPES,
    Twins,
    all_twins,
)
from shared.promise.checking import BACKENDS

pytestmark = pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core")

BUSY = 2.0
"""Other processes share the caches and the cores. A cliff is a factor of 40 and more."""

TRIES = 3


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_cliff(
    family: Callable[[tuple[int, ...]], Iterator[Twins]],
    shape: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRUENORM_THREADS", "1")
    for each in family(shape):
        if each.waits in (LATER, GATHERED):
            continue
        factor = min(each.factor() for _ in range(TRIES))
        assert factor <= BUSY * LIMIT, (each.name, each.what, factor)


def test_the_page_has_all_twins() -> None:
    """What takes longer than the limit says why."""
    recorded = {
        (each["name"], each["what"], tuple(each["shape"])): each
        for each in read_results(FILES[0])["twins"]
    }
    assert list(recorded) == [(each.name, each.what, each.shape) for each in all_twins()]
    for each in recorded.values():
        assert each["factor"] <= LIMIT or each["waits"], each
