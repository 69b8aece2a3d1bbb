"""The same bytes on one, two, three and four real ranks, and on one process without MPI."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from ranks.rows import data, digests, partials
from ranks.starting import RANKS, on_ranks

PROGRAM = Path(__file__).with_name("merging.py")


MERGED, REFUSED = ("even", "uneven", "special", "backends"), ("count", "order")


@cache
def found_by(ranks: int) -> Any:
    """Return what comes of all scenes: to start ranks takes longer than what they do here."""
    return json.loads("".join(on_ranks(ranks, PROGRAM, *MERGED, *REFUSED)))


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
    found = found_by(3)[scene]
    says = "ranks have from 2 to 3: pass one" if scene == "count" else "in one order, on all ranks"
    assert [says in told for told in found["told"]] == [True] * 3
    assert found["after"] == 3
