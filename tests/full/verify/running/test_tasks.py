"""Submissions to other harnesses, as far as they need no PyTorch."""

import json
from pathlib import Path
from typing import Any

import pytest

import truenorm.verify as tv
from truenorm.verify.running.tasks import LAYOUTS, NOT_JUDGED


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_refused_problems(name: str) -> None:
    with pytest.raises(ValueError, match=f"7_{name}_.py cannot be judged: {NOT_JUDGED[name]}"):
        tv.kernelbench(f"7_{name}_.py", "solution.py")
    assert name not in LAYOUTS


def test_an_unknown_problem() -> None:
    with pytest.raises(ValueError, match="expected a problem of KernelBench with one of Instance"):
        tv.kernelbench("1_Softmax.py", "solution.py")


@pytest.mark.parametrize(("changes", "message"), [
    ({"spec": None}, "must have spec and sources"),
    ({"spec": {"language": "cuda"}}, "it is of python or triton; got cuda"),
    ({"spec": {"languages": ["python", "cuda"]}}, "got python, cuda"),
    ({"sources": [{"path": "../main.py", "content": ""}]}, "a source outside of its folder"),
])  # fmt: skip
def test_refused_solutions(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    content = {
        "spec": {"language": "python", "entry_point": "main.py::run"},
        "sources": [{"path": "main.py", "content": "def run(): ..."}],
    }
    file = tmp_path / "solution.json"
    file.write_text(json.dumps(content | changes))
    with pytest.raises(ValueError, match=message):
        tv.flashinfer_bench("definition.json", file)


@pytest.mark.parametrize(("changes", "message"), [
    ({"op_type": "gemm"}, "op_type must be rmsnorm, fused_add_rmsnorm; got 'gemm'"),
    ({"reference": "def run(): pass"}, "its reference has no line EPS"),
])  # fmt: skip
def test_refused_definitions(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    output = {"output": {"shape": ["n", "d"], "dtype": "float32"}}
    definition = {"op_type": "rmsnorm", "inputs": {}, "outputs": output, "reference": "EPS = 1e-5"}
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(definition | changes))
    with pytest.raises(ValueError, match=message):
        tv.flashinfer_bench(file, "solution.py")
