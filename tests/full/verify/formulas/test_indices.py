"""Rules of wrong indices, on an axis of 10 elements in blocks of 4."""

import numpy as np
import pytest

from truenorm.verify.causes import Cause
from truenorm.verify.formulas.indices import averaged_in_blocks, divisors, places, weights

WEIGHTS = {
    "no-last(row)": [1, 1, 1, 1, 1, 1, 1, 1, 1, 0],
    "no-first(row)": [0, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    "no-second-half(row)": [1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
    "no-every-second(row)": [1, 0, 1, 0, 1, 0, 1, 0, 1, 0],
    "first-twice(row)": [2, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    "last-twice(row)": [1, 1, 1, 1, 1, 1, 1, 1, 1, 2],
    "no-partial-block(row, 4)": [1, 1, 1, 1, 1, 1, 1, 1, 0, 0],
    "no-every-second-block(row, 4)": [1, 1, 1, 1, 0, 0, 0, 0, 1, 1],
    "none-beyond(row, 4)": [1, 1, 1, 1, 0, 0, 0, 0, 0, 0],
    "none-from-last-multiple(row, 4)": [1, 1, 1, 1, 1, 1, 1, 1, 0, 0],
    "last-block-alone(row, 4)": [0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
    "no-last-of-every(row, 4)": [1, 1, 1, 0, 1, 1, 1, 0, 1, 1],
    "last-block-overlaps(row, 4)": [1] * 6 + [2, 2, 1, 1],
    "last-repeated(row, 4)": [1] * 9 + [3],
}
PLACES = {
    "of-next(row)": [1, 2, 3, 4, 5, 6, 7, 8, 9, 0],
    "of-before(row)": [9, 0, 1, 2, 3, 4, 5, 6, 7, 8],
    "of-first(row)": [0] * 10,
    "of-last(row)": [9] * 10,
    "of-other-of-pair(row)": [1, 0, 3, 2, 5, 4, 7, 6, 9, 8],
    "of-before-in-blocks(row, 4)": [0, 0, 1, 2, 4, 4, 5, 6, 8, 8],
    "of-first-of-block(row, 4)": [0, 0, 0, 0, 4, 4, 4, 4, 8, 8],
    "of-last-of-block(row, 4)": [3, 3, 3, 3, 7, 7, 7, 7, 9, 9],
    "of-modulo(row, 4)": [0, 1, 2, 3, 0, 1, 2, 3, 0, 1],
}


@pytest.mark.parametrize("cause", WEIGHTS)
def test_weights(cause: str) -> None:
    found = dict(weights("row", "rows", "N"))[Cause(cause, "")](10)
    assert found.dtype == np.float64
    assert found.tolist() == WEIGHTS[cause]


@pytest.mark.parametrize("cause", PLACES)
def test_places(cause: str) -> None:
    found = dict(places("row", "rows", "it is that"))[Cause(cause, "")](10)
    assert found.tolist() == PLACES[cause]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_short_axes(size: int) -> None:
    """No index is beyond the end; a short axis is no partial block behind a whole one."""
    for cause, rule in places("row", "rows", "it is that"):
        assert ((rule(size) >= 0) & (rule(size) < size)).all(), cause
    whole = dict(weights("row", "rows", "N"))[Cause("no-partial-block(row, 8)", "")]
    assert whole(size).tolist() == [1] * size


def test_means_of_blocks() -> None:
    values = np.arange(10.0).reshape(5, 2)
    expected = [[1, 2], [1, 2], [5, 6], [5, 6], [8, 9]]
    assert averaged_in_blocks(2, values).tolist() == expected


def test_divisors() -> None:
    found = {words: size([3, 5]) for words, size in divisors(["channels", "places"]).items()}
    assert found == {
        "n - 1": 14,
        "n + 1": 16,
        "the next power of two": 16,
        "the number of channels": 3,
        "n less the number of channels": 12,
        "the number of places": 5,
        "n less the number of places": 10,
    }
    assert {*divisors(["columns"])} == {"n - 1", "n + 1", "the next power of two"}
