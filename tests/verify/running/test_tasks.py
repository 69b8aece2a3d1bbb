"""Submissions to other harnesses, as far as they need no PyTorch."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import truenorm.verify as tv
from truenorm.verify.running.tasks import LAYOUTS, NOT_JUDGED, _Reference

NAMED = {
    "gemm.weight": "identity",
    "gemm.bias": "zero",
    "group_norm.weight": "gamma",
    "group_norm.bias": "beta",
    "multiply_weight": "other",
}
MATRICES = ("gemm.weight", "fc.weight")
NORM = {"gn.weight": "gamma", "gn.bias": "beta"}


def reference(roles: dict[str, str]) -> _Reference:
    made = _Reference.__new__(_Reference)
    made.roles, made.axes = roles, axes_of(roles)
    return made


def axes_of(names: Iterable[str]) -> dict[str, int]:
    """Return one axis for all but a matrix, which has two."""
    return {name: 2 if name in MATRICES else 1 for name in names}


@pytest.mark.parametrize(
    ("roles", "others"),
    [
        (NAMED, list(NAMED)),
        (NAMED, ["multiply_weight", "group_norm_weight", "group_norm_bias", "fc.weight", "bias"]),
        (NAMED, ["fc.weight", "fc.bias", "gamma", "beta", "multiply_weight"]),
        (NORM, ["weight", "bias"]),
        (NORM, ["norm.gamma", "norm.beta"]),
        (NORM, ["bias"]),
        (NORM, []),
    ],
)
def test_parameters_by_the_ends_of_their_names(roles: dict[str, str], others: list[str]) -> None:
    words = {"bias": ("zero", "beta"), "beta": ("beta",), "gamma": ("gamma",)}
    matched = reference(roles).matched(axes_of(others))
    assert sorted(matched) == sorted(others)
    assert len(set(matched.values())) == len(others)
    for name, role in matched.items():
        if name in roles:
            assert role == roles[name]
        last = name.replace("_", ".").split(".")[-1]
        assert role in words.get(last, ("identity", "gamma", "other"))
    for name in ("group_norm_weight", "group_norm_bias"):
        assert matched.get(name, "gamma") in ("gamma", "beta")
    assert matched.get("multiply_weight", "other") == "other"


def test_axes_decide_between_equal_ends() -> None:
    """The bias that is added last has four axes."""
    roles = {"bias": "other", "gemm.bias": "zero", "gn.bias": "beta"}
    made = reference(roles)
    made.axes["bias"] = 4
    matched = made.matched({"beta": 1, "shift_bias": 4, "fc.bias": 1})
    assert matched == {"beta": "beta", "shift_bias": "other", "fc.bias": "zero"}


def test_an_unknown_parameter() -> None:
    with pytest.raises(ValueError, match=r"a parameter scores; those of Model are gn\.weight"):
        reference(NORM).matched(axes_of(["weight", "bias", "scores"]))


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_refused_problems(name: str) -> None:
    with pytest.raises(ValueError, match=f"7_{name}_.py cannot be judged: {NOT_JUDGED[name]}"):
        tv.kernelbench(f"7_{name}_.py", "solution.py")
    assert name not in LAYOUTS


def test_an_unknown_problem() -> None:
    with pytest.raises(ValueError, match="expected a problem of KernelBench with one of Instance"):
        tv.kernelbench("1_Softmax.py", "solution.py")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spec": None}, "must have spec and sources"),
        ({"spec": {"language": "cuda"}}, "it is of python or triton; got cuda"),
        ({"spec": {"languages": ["python", "cuda"]}}, "got python, cuda"),
        ({"sources": [{"path": "../main.py", "content": ""}]}, "a source outside of its folder"),
    ],
)
def test_refused_solutions(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    content = {
        "spec": {"language": "python", "entry_point": "main.py::run"},
        "sources": [{"path": "main.py", "content": "def run(): ..."}],
    }
    file = tmp_path / "solution.json"
    file.write_text(json.dumps(content | changes))
    with pytest.raises(ValueError, match=message):
        tv.flashinfer_bench("definition.json", file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op_type": "gemm"}, "op_type must be rmsnorm, fused_add_rmsnorm; got 'gemm'"),
        ({"reference": "def run(): pass"}, "its reference has no line EPS"),
    ],
)
def test_refused_definitions(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    output = {"output": {"shape": ["n", "d"], "dtype": "float32"}}
    definition = {"op_type": "rmsnorm", "inputs": {}, "outputs": output, "reference": "EPS = 1e-5"}
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(definition | changes))
    with pytest.raises(ValueError, match=message):
        tv.flashinfer_bench(file, "solution.py")
