"""Partials merged by torch.distributed: the digests of MPI, as the page has them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import truenorm as tn

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ranks" / "torch_allreduce.py"


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_digests_of_the_page(ranks: int) -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLE, str(ranks)],
        env={**os.environ, "PYTHONPATH": str(Path(tn.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    exact, _, _ = ran.stdout.partition(", float32 ")
    assert f"{exact}," in (ROOT / "docs" / "scale-ranks.md").read_text(encoding="utf-8")
