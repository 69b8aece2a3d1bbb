"""Scores of kernels: honest ones get at least 0.8, wrong ones at most 0.1, with every seed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SLOW = pytest.mark.slow(reason="each kernel is scored for many seeds")

torch = pytest.importorskip("torch")
if not hasattr(os, "memfd_create"):
    pytest.skip("a score needs Linux", allow_module_level=True)

import truenorm.verify as tv
from needs_torch.scored_bugs import BUGS
from needs_torch.scored_forgers import FATAL, FORGERS
from truenorm.verify.operations import as_operation
from truenorm.verify.running.scored import Server
from truenorm.verify.scores import Score, score_submission
from truenorm.verify.submission import Submission

HERE = Path(__file__).parent
FEW, MANY = 1, 20
SEEDS = [FEW, pytest.param(MANY, marks=SLOW)]
HONEST: dict[str, dict[str, Any]] = {
    "in_float64": {},
    "two_passes": {},
    "two_passes_wide": {"dtypes": ("bfloat16",)},
    "by_var_mean": {},
    "corrected": {},
    "in_blocks": {},
    "by_hand": {},
    "by_einsum": {},
    "forward": {"backward": "gradients"},
    "compiled": {},
    "rms_norm": {"operation": "rms_norm", "dtypes": ("float32", "bfloat16")},
    "rms_norm_out": {"operation": "rms_norm", "form": "out"},
    "add_rms_norm": {"operation": "add_rms_norm"},
    "RMSNorm": {"operation": "rms_norm", "form": "module"},
}
ALWAYS = ("cached_by_shape", "without_last_block", "no_mean_of_g", "in_float16")
"""Planted bugs that are scored in each run of the tests; others when slow."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(sys.executable) as server:
        yield server


def scored(file: str, name: str, seed: int, server: Server, **options: Any) -> Score:
    operation = as_operation(options.pop("operation", "layer_norm"))
    target = f"{HERE / file}.py:{name}"
    return score_submission(Submission(target, operation, seed, **options), server)


def values(file: str, name: str, seeds: int, server: Server, **options: Any) -> list[float]:
    """Return the scores of a kernel with the first seeds."""
    return [scored(file, name, seed, server, **options).value for seed in range(1, seeds + 1)]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("name", HONEST)
def test_honest(name: str, seeds: int, server: Server) -> None:
    file = "recorded_kernels" if "operation" in HONEST[name] else "scored_kernels"
    found = values(file, name, seeds, server, **HONEST[name])
    assert min(found) >= 0.8
    assert max(found) - min(found) <= 0.03 + 1e-9


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in ALWAYS else SLOW) for each in BUGS]
)
def test_planted_bug(name: str, seeds: int, server: Server) -> None:
    assert max(values("scored_bugs", name, seeds, server)) <= 0.1


@pytest.mark.parametrize("name", [each.__name__ for each in FORGERS])
def test_forging_changes_no_value(name: str, server: Server) -> None:
    """The value is that of the zeros that the kernel returns, or less if calls fail."""
    plain = scored("scored_forgers", "zeros", 1, server).value
    assert scored("scored_forgers", name, 1, server).value <= max(plain, 1e-3)


@pytest.mark.parametrize("name", [each.__name__ for each in FATAL])
def test_a_fatal_kernel(name: str, server: Server) -> None:
    """The next kernel is scored as ever, and nothing is left of this one."""
    result = scored("scored_forgers", name, 1, server, seconds=1.0)
    assert result.value == 0
    assert result.reasons
    assert name != "hangs" or "no answer within 4 s" in result.reasons[0]
    if name in ("crashes", "hangs"):
        assert scored("scored_kernels", "two_passes", 1, server).value >= 0.8


@SLOW
def test_200_kernels_in_a_row() -> None:
    """Every tenth one crashes, hangs or floods; the others get the same value each time."""
    names = [FATAL[k // 10 % len(FATAL)].__name__ if k % 10 == 5 else "" for k in range(200)]
    fatal, honest = f"{HERE / 'scored_forgers'}.py", f"{HERE / 'scored_kernels'}.py:two_passes"
    lines = [
        {"target": f"{fatal}:{name}" if name else honest, "seed": 7, "seconds": 1.0, "cases": 40}
        for name in names
    ]
    answers = serve([json.dumps(line) for line in lines])
    assert len(answers) == 200
    found = [each["value"] for each, name in zip(answers, names, strict=True) if not name]
    assert len(set(found)) == 1
    assert found[0] >= 0.8
    assert all(each["value"] == 0 for each, name in zip(answers, names, strict=True) if name)


def serve(lines: list[str]) -> list[dict[str, Any]]:
    """Return the answers of the command to some lines."""
    command = [sys.executable, "-m", "truenorm", "score", "--serve"]
    done = subprocess.run(
        command, input="".join(f"{line}\n" for line in lines), stdout=-1, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_norms_of_pytorch(server: Server) -> None:
    """They are reported, and forbidden on request."""
    allowed = scored("scored_kernels", "calls_pytorch", 1, server)
    assert allowed.value > 0.7
    assert any("layer_norm" in each for each in allowed.norms)
    refused = scored("scored_kernels", "calls_pytorch", 1, server, norms="forbidden")
    assert refused.value == 0
    assert "which is forbidden" in refused.reasons[0]


def test_lost_nan(server: Server) -> None:
    assert values("scored_kernels", "removes_nan", 1, server) == [0.5]


def test_causes(server: Server) -> None:
    result = scored("scored_forgers", "zeros", 1, server, causes=True)
    assert any("Likely cause: nothing is written: it is 0" in each for each in result.reasons)


def test_command_line(tmp_path: Path) -> None:
    """One kernel, and several in a loop, have the score that Python returns."""
    file = tmp_path / "random.py"  # a name of a module is no difficulty
    file.write_text((HERE / "scored_kernels.py").read_text(encoding="utf-8"), encoding="utf-8")
    target = f"{file}:two_passes"
    value = tv.score(target, seed=5).value
    lines = [{"target": target, "seed": 5}, {"target": target}, {"target": "no.py:x", "seed": 6}]
    nested, first, error, missing = serve(["[" * 10**5, *map(json.dumps, lines)])
    assert "recursion" in nested["error"]
    assert first["value"] == value >= 0.8
    assert first["schema"] == "truenorm/score-1"
    assert error["error"].startswith("a line must be a JSON object with target and seed")
    assert (missing["value"], len(missing["reasons"])) == (0, 1)
