"""The examples by MPI run, and say what they promise."""

import re
from functools import cache
from pathlib import Path

import pytest

from ranks.starting import EXAMPLES, RANKS, ROOT, on_ranks, start

PAGE = ROOT / "docs" / "scale-ranks.md"
TRAINING = EXAMPLES / "data_parallel.py"


def weights(lines: list[str]) -> str:
    return lines[-1].removeprefix("weights ")


@cache
def undisturbed() -> str:
    return weights(on_ranks(1, TRAINING))


@pytest.mark.parametrize("ranks", RANKS)
def test_digests_are_those_of_the_page(ranks: int) -> None:
    """Partials are mathematics, the same on every machine; so is what they round to."""
    (line,) = on_ranks(ranks, EXAMPLES / "mpi_allreduce.py")
    exact, _, _ = line.partition(", float32 ")
    assert f"{exact}," in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("ranks", "micro_batches"), [(1, 3), (2, 1), (3, 2), (4, 5), (2, 16)])
def test_training_has_the_same_weights(ranks: int, micro_batches: int) -> None:
    """Also where micro-batches have fewer sequences than there are ranks."""
    found = on_ranks(ranks, TRAINING, "--micro-batches", micro_batches)
    assert weights(found) == undisturbed()


def test_norms_that_are_rounded_rank_by_rank_have_others() -> None:
    found = {weights(on_ranks(ranks, TRAINING, "--plain")) for ranks in (2, 3)}
    assert len(found | {undisturbed()}) == 3


def test_training_goes_on_after_a_kill(tmp_path: Path) -> None:
    """Killed in the middle of a step, with three ranks; resumed with two."""
    kept = tmp_path / "half.npz"
    died = start(3, TRAINING, "--checkpoint", kept, "--kill-at", 13)
    assert died.returncode != 0
    assert "weights" not in died.stdout
    assert kept.exists()
    lines = on_ranks(2, TRAINING, "--checkpoint", kept, "--micro-batches", 4)
    assert "steps 11 to 20" in lines[0]
    assert weights(lines) == undisturbed()


@pytest.mark.parametrize("ranks", RANKS)
def test_rows_that_are_split(ranks: int) -> None:
    lines = on_ranks(ranks, EXAMPLES / "sharded_features.py")
    assert lines[0] == f"ranks {ranks}: the bits of whole rows: yes"
    assert re.fullmatch(r"bytes a row: \d+, in float32 16", lines[1])
