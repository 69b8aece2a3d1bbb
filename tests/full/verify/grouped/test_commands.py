"""Grouped norms in other parts of the judge: what is judged, and messages on what is not."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import truenorm.verify as tv
from truenorm.cli.app import app

ROWS = np.ones((4, 64), np.float32)
GATED, GROUPED = "rms_norm,groups=4,gate=silu", "group_norm,groups=2"
MESSAGES: dict[str, tuple[Callable[[], Any], str]] = {
    "a shape": (
        lambda: tv.case_of_shape((4, 64), "float32", operation=GATED),
        "a case of your own shape or data needs a norm without groups=",
    ),
    "data": (
        lambda: tv.case_from({"x": ROWS}, operation=GATED),
        "a case of your own shape or data needs a norm without groups=",
    ),
    "bound": (lambda: tv.bound(GATED, ROWS), "bound needs a norm without groups="),
    "a command": (
        lambda: tv.Subject(command=["./kernel"], operation=GROUPED),
        "the folder of a command needs a norm of rows, "
        "not of a shape such as (N, C, S); got group",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    call, message = MESSAGES[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vectors", "new", "--operation", GROUPED), "truenorm vectors needs a norm of rows"),
        (
            ("audit", "test_x.py", "--replace", "kernels:norm", "--operation", GATED),
            "truenorm audit needs a norm without groups=",
        ),
    ],
)
def test_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_x.py").write_text("def test_nothing(): pass\n", encoding="utf-8")
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.usefixtures("no_flint")
def test_gates_need_a_package() -> None:
    """Without python-flint, groups can be judged."""
    with pytest.raises(ValueError, match="a formula needs the package python-flint"):
        tv.norm("rms_norm", gate="silu-first", eps=0.25)
    assert tv.norm("rms_norm", groups=4, eps=0.25).groups == 4


def test_a_gate_of_one_row() -> None:
    """Four rows are the groups of one: z is not finite in it."""
    case = tv.case("float32-gate-nan-4x67", operation=GATED)
    assert case.shape == (1, 268)
    assert np.isnan(case.z).sum() == 1


def test_a_function_by_its_arguments(tmp_path: Path) -> None:
    """Constants of the operation are passed by name; the message of a mismatch names z."""
    (tmp_path / "kernels.py").write_text(
        "import numpy as np\n"
        "def norm(x, num_groups, weight, bias, eps):\n"
        "    units = x.astype(np.float64).reshape(len(x), num_groups, -1)\n"
        "    c = units - units.mean(-1, keepdims=True)\n"
        "    y = (c / np.sqrt((c * c).mean(-1, keepdims=True) + eps)).reshape(x.shape)\n"
        "    w, b = (each.reshape(-1, *[1] * (x.ndim - 2)) for each in (weight, bias))\n"
        "    return (w * y + b).astype(x.dtype)\n",
        encoding="utf-8",
    )
    target = f"{tmp_path}/kernels.py:norm"
    tv.check(tv.load(target, GROUPED), tv.case("float32-normal-4x67", operation=GROUPED))
    with pytest.raises(Exception, match="expected the arguments x, z, gamma, eps; got"):
        tv.load(target, "rms_norm,gate=silu")
