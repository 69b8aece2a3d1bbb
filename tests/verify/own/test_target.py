"""--shape and --data: what they add to a judgement, and what they refuse before it."""

from pathlib import Path

import numpy as np
import pytest

from truenorm.verify.judge import SubjectOptions, verify_target
from truenorm.verify.running.records import CannotRunError

KERNEL = """
import numpy as np
import truenorm.verify as tv


def forward(x, gamma, beta, eps):
    wide = x.astype(np.float64)
    c = wide - wide.mean(axis=-1, keepdims=True)
    y = gamma * c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps) + beta
    y = y.astype(x.dtype)
    if len(x) in (3000, 21):  # wrong for the last row alone, and of these shapes alone
        y[-1] *= np.float32(1.001)
    return y


subject = tv.Subject(forward, dtypes=["float32"])
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "kernel.py").write_text(KERNEL, encoding="utf-8")
    return str(tmp_path / "kernel.py")


@pytest.mark.slow
def test_shapes_and_data_beside_the_usual_cases(target: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 7, 32)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", hidden_states=rows)
    plain = verify_target(target)
    assert plain.passed
    asked: list[tuple[SubjectOptions, int, str, int]] = [
        ({"shapes": ["60x50x64", "4x64"]}, 2, "float32-own-60x50x64", 2999),
        ({"data": [tmp_path / "rows.npz"]}, 1, "float32-own-rows-3x7x32", 20),
    ]
    for options, more, case, row in asked:
        report = verify_target(target, **options)
        (finding,) = report.findings
        assert finding.case == case
        assert finding.symptom.startswith(f"y[{row}, ")
        assert report.cases == plain.cases + more
        assert report.grades[0].grade == "wrong"


def test_what_cannot_be_judged_is_said_before_anything_is_run(target: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", x=np.ones((4, 8)))
    with pytest.raises(CannotRunError, match=r"your data, wide\.npz is float64, and subject is"):
        verify_target(target, data=[tmp_path / "wide.npz"])
    with pytest.raises(ValueError, match="shape is '4by5'; write it like 4096x5120"):
        verify_target(target, shapes=["4by5"])
    with pytest.raises(ValueError, match=r"cannot read .*none\.npz"):
        verify_target(target, data=[tmp_path / "none.npz"])
