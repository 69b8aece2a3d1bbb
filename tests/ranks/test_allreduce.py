"""The same bytes on one, two, three and four real ranks, and on one process without MPI."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from ranks.rows import WRONG, data, digests, partials
from ranks.starting import RANKS, on_ranks

PROGRAM = Path(__file__).with_name("merging.py")


MERGED, REFUSED = ("even", "uneven", "special", "backends"), ("count", "order")


@cache
def found_by(ranks: int) -> Any:
    """Return what comes of all scenes: to start ranks takes longer than what they do here."""
    return json.loads("".join(on_ranks(ranks, PROGRAM, *MERGED, *REFUSED, *WRONG)))


@cache
def alone(special: bool) -> Any:
    """Return what one call for all rows gives, and see that it rounds as backward does."""
    whole = partials(slice(None), special, "reference")
    for k, ((x, dy, gamma), each) in enumerate(zip(data(special), whole, strict=True)):
        if k == 1:
            right = tn.rms_norm_backward(dy, tn.rms_norm_forward(x, gamma)[1])
        else:
            right = tn.layer_norm_backward(dy, tn.layer_norm_forward(x, gamma, gamma)[1])
        np.testing.assert_array_equal(each.rounded().dgamma, right.dgamma)
        np.testing.assert_array_equal(each.rounded().dbeta, right.dbeta)
    return digests(whole)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("scene", MERGED)
def test_the_bytes_of_one_process(scene: str, ranks: int) -> None:
    """Rows spread evenly; all on the last rank; with NaN and infinities; by other backends."""
    found = found_by(ranks)[scene]
    assert {name: found[name] for name in ("rows", "bytes", "rounded")} == alone(
        scene == "special"
    )


def test_sums_in_float32_depend_on_the_ranks() -> None:
    """Or else the data would show nothing."""
    assert len({found_by(ranks)["even"]["plain"] for ranks in RANKS}) == len(RANKS)


@pytest.mark.parametrize("scene", REFUSED)
def test_partials_of_other_norms_are_refused_on_every_rank(scene: str) -> None:
    result = found_by(3)[scene]
    part = "lengths from 2 to 3" if scene == "count" else "in one order, on all ranks"
    assert [part in message for message in result["errors"]] == [True] * 3
    assert result["after"] == 3


@pytest.mark.parametrize("ranks", RANKS[1:])
@pytest.mark.parametrize("scene", WRONG)
def test_a_wrong_argument_of_one_rank_is_refused_on_every_rank(scene: str, ranks: int) -> None:
    """The ranks are left in step: an all-reduce after it counts all of them."""
    result = found_by(ranks)[scene]
    own = {
        "none": "TypeError: partials must be a sequence of PartialGradients, got NoneType",
        "bare": "TypeError: partials must be a sequence of PartialGradients, got PartialGradients",
        "element": "TypeError: partials[1] must be a PartialGradients, got NoneType",
        "iterator": "OSError: no disk",
    }[scene]
    others = "ValueError: all ranks must pass a sequence of PartialGradients, rank 1 did not"
    expected = [own if rank == 1 else others for rank in range(ranks)]
    pairs = zip(result["errors"], expected, strict=True)
    assert all(error.startswith(start) for error, start in pairs), result["errors"]
    assert result["after"] == ranks
