"""Rules of wrong indices, on an axis of 10 elements in blocks of 4."""

import numpy as np
import pytest

from truenorm.verify.formulas.indices import averaged_in_blocks, divisors, places, weights

WEIGHTS = {
    "the last row is left out": [1, 1, 1, 1, 1, 1, 1, 1, 1, 0],
    "the first row is left out": [0, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    "the second half of the rows is left out": [1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
    "every second row is left out": [1, 0, 1, 0, 1, 0, 1, 0, 1, 0],
    "the first row is counted twice": [2, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    "the last row is counted twice": [1, 1, 1, 1, 1, 1, 1, 1, 1, 2],
    "the last, partial block of 4 rows is left out": [1, 1, 1, 1, 1, 1, 1, 1, 0, 0],
    "every second block of 4 rows is left out": [1, 1, 1, 1, 0, 0, 0, 0, 1, 1],
    "rows beyond the first 4 are left out": [1, 1, 1, 1, 0, 0, 0, 0, 0, 0],
    "the rows from N - N % 4 on are left out": [1, 1, 1, 1, 1, 1, 1, 1, 0, 0],
    "only the last block of 4 rows is summed": [0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
    "the last of every 4 rows is left out": [1, 1, 1, 0, 1, 1, 1, 0, 1, 1],
    "a last, partial block of 4 begins at N - 4 and counts rows twice": [1] * 6 + [2, 2, 1, 1],
    "the last row is counted again, up to a multiple of 4": [1] * 9 + [3],
}
PLACES = {
    "the next row": [1, 2, 3, 4, 5, 6, 7, 8, 9, 0],
    "the row before": [9, 0, 1, 2, 3, 4, 5, 6, 7, 8],
    "the first row": [0] * 10,
    "the last row": [9] * 10,
    "the other row of a pair": [1, 0, 3, 2, 5, 4, 7, 6, 9, 8],
    "the row before, within blocks of 4 rows": [0, 0, 1, 2, 4, 4, 5, 6, 8, 8],
    "the first row of each block of 4": [0, 0, 0, 0, 4, 4, 4, 4, 8, 8],
    "the last row of each block of 4": [3, 3, 3, 3, 7, 7, 7, 7, 9, 9],
    "row i % 4, not i": [0, 1, 2, 3, 0, 1, 2, 3, 0, 1],
}


@pytest.mark.parametrize("words", WEIGHTS)
def test_weights(words: str) -> None:
    found = dict(weights("row", "rows", "N"))[words](10)
    assert found.dtype == np.float64
    assert found.tolist() == WEIGHTS[words]


@pytest.mark.parametrize("words", PLACES)
def test_places(words: str) -> None:
    found = dict(places("row", "rows", "it is that"))[f"it is that of {words}"](10)
    assert found.tolist() == PLACES[words]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_short_axes(size: int) -> None:
    """No index is beyond the end; a short axis is no partial block behind a whole one."""
    for words, rule in places("row", "rows", "it is that"):
        assert ((rule(size) >= 0) & (rule(size) < size)).all(), words
    whole = dict(weights("row", "rows", "N"))["the last, partial block of 8 rows is left out"]
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
