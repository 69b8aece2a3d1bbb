"""Malformed extents are refused by to_words and from_words, before anything is allocated."""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from partials.damage.forging import error_of, forged

frombuffer = tn.PartialGradients.frombuffer

NOWHERE = -(2**31)
EXTENTS: dict[str, tuple[Any, type[Exception], str]] = {
    "None": (None, TypeError, "extent must be an array of integers, got object"),
    "text": ("12345", TypeError, "extent must be an array of integers, got <U5"),
    "float64": (np.ones(5), TypeError, "extent must be an array of integers, got float64"),
    "bool": (np.ones(5, bool), TypeError, "extent must be an array of integers, got bool"),
    "huge": ([10**30] * 5, TypeError, "extent must be an array of integers, got object"),
    "empty": (np.zeros(0, np.int64), ValueError, r"extent must have shape \(5,\), got \(0,\)"),
    "four": ([2, 1, 1, 1], ValueError, r"extent must have shape \(5,\), got \(4,\)"),
    "six": ([2, 1, 1, 1, 0, 0], ValueError, r"extent must have shape \(5,\), got \(6,\)"),
    "scalar": (7, ValueError, r"extent must have shape \(5,\), got \(\)"),
    "table": ([[2, 1, 1, 1, 0]] * 2, ValueError, r"extent must have shape \(5,\), got \(2, 5\)"),
    "80 TiB": ([2, 2**41, 1, 1, 0], ValueError, "number of places of dgamma must be .* got"),
    "low": ([11, 1, 1, 1, 0], ValueError, "first place of dgamma must be from -10 to 7, got -11"),
    "high": ([2, 1, -8, 9, 0], ValueError, "first place of dbeta must be from -10 to 7, got 8"),
    "many": ([2, 1, 1, 8 + 1, 0], ValueError, "places of dbeta must be from 0 to 9, got 10"),
    "backwards": ([2, -3, 1, 1, 0], ValueError, "places of dgamma must be from 0 to 10, got -1"),
    "int64": ([-(2**63)] * 5, ValueError, f"first place of dgamma .* got {2**63}"),
    "uint64": (np.full(5, 2**64 - 1, np.uint64), ValueError, "first place of dgamma must be"),
    "half": ([2, NOWHERE, 1, 1, 0], ValueError, "places of dgamma must be from 0 to 10, got"),
    "other half": ([NOWHERE, 1, 1, 1, 0], ValueError, "first place of dgamma must be"),
    "flag": ([2, 1, 1, 1, 2], ValueError, r"extent\[4\] must be from 0 to 1, got 2"),
    "negative flag": ([2, 1, 1, 1, -1], ValueError, r"extent\[4\] must be from 0 to 1, got -1"),
}


@pytest.mark.parametrize("name", EXTENTS)
def test_malformed_extents_are_refused(name: str) -> None:
    extent, kind, message = EXTENTS[name]
    mine = frombuffer(forged())
    words = mine.to_words(mine.extent())
    for call in (partial(mine.to_words, extent), partial(mine.from_words, words, extent)):
        assert re.search(message, error_of(call, kind=kind))


def test_extents_may_be_any_integers() -> None:
    mine = frombuffer(forged())
    for extent in ([2, 1, 1, 1, 0], np.array([2, 1, 1, 1, 0], np.int32), [10, 8, 10, 8, 1]):
        assert mine.from_words(mine.to_words(extent), extent) == mine  # type: ignore[arg-type]
