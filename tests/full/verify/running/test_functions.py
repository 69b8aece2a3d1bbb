"""Plain functions as targets: arguments by name or in order, arrays or tensors, and messages."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import truenorm.verify as tv
from truenorm.tools.user_files import NotThereError
from truenorm.verify.calls import Call
from truenorm.verify.judge import verify_target
from truenorm.verify.running import records
from truenorm.verify.running.functions import function_subject
from truenorm.verify.running.loading import load
from truenorm.verify.running.records import CannotRunError, traceback_of, triton_advice
from truenorm.verify.running.runners import InProcess

pytestmark = pytest.mark.usefixtures("without_long_calls")

KERNELS = """
import truenorm as tn

def rms_norm(hidden_states, weight, eps=1e-6):
    return tn.rms_norm(hidden_states, weight, eps=eps)

def layer_norm(eps, x, scale, b):
    return tn.layer_norm(x, scale, b, eps=eps)

def in_order(a, g, b, e):
    return tn.layer_norm(a, g, b, eps=e)

def without_beta(x, g, e):
    return tn.layer_norm(x, g, eps=e)

def add_rms_norm(x, residual, weight, eps):
    return tn.rms_norm(x + residual, weight, eps=eps), x + residual

def with_shape(x, normalized_shape, weight, bias, eps):
    assert normalized_shape == x.shape[-1:]
    return tn.layer_norm(x, weight, bias, eps=eps)

def without_eps(x, weight):
    return x

def swapped(weight, x, e):
    return x

def raises(x, weight, eps):
    raise ValueError("the kernel's own words")

def returns_a_list(x, weight, eps):
    return x.tolist()

def without_gpu(x, weight, eps):
    raise RuntimeError("0 active drivers ([]). There should only be one.")

number = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of kernels, where there is no PyTorch."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "my_kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "operation", "spec"), [
    ("rms_norm", "rms_norm", "rms_norm"),
    ("layer_norm", "layer_norm", "layer_norm"),
    ("in_order", "layer_norm", "layer_norm"),
    ("without_beta", "layer_norm", "layer_norm,beta=false"),
    ("add_rms_norm", "add_rms_norm", "add_rms_norm"),
    ("with_shape", "layer_norm", "layer_norm"),
])  # fmt: skip
def test_functions_on_arrays(file: Path, name: str, operation: str, spec: str) -> None:
    subject = load(f"{file}:{name}", operation)
    assert subject.name == f"{name} on NumPy arrays"
    assert (subject.operation.spec, list(subject.dtypes)) == (spec, ["float32"])
    case = tv.case("float32-normal-4x17", operation=subject.operation)
    tv.check(subject, case, require="correct")
    wider = load(f"{file}:{name}", operation, ["bfloat16", "float64"])
    assert list(wider.dtypes) == ["bfloat16", "float64"]


@pytest.mark.parametrize(("name", "operation", "messages"), [
    ("rms_norm", "", ["my_kernels.py:rms_norm is a function: give --operation rms_norm"]),
    ("nothing", "rms_norm", ["no subject or function 'nothing'; it has rms_norm, layer_norm"]),
    ("number", "rms_norm", ["has no subject or function 'number'"]),
    ("without_eps", "rms_norm", ["expected the arguments x, gamma, eps; got x, weight"]),
    ("swapped", "rms_norm", ["expected the arguments x, gamma, eps; got weight, x, e"]),
    (
        "raises",
        "rms_norm",
        [
            "my_kernels.py:raises cannot be called:",
            "with NumPy arrays of 4x64 ones: ValueError: the kernel's own words",
            "with PyTorch tensors: this subject needs PyTorch",
            'subject = tv.Subject(forward, operation="rms_norm", dtypes=["float32"])',
        ],
    ),
    ("returns_a_list", "rms_norm", ["NumPy arrays of 4x64 ones: TypeError: it returned list"]),
    ("without_gpu", "rms_norm", ["Triton found no GPU: set TRITON_INTERPRET=1"]),
])  # fmt: skip
def test_messages(file: Path, name: str, operation: str, messages: list[str]) -> None:
    with pytest.raises(NotThereError) as error:
        load(f"{file}:{name}", operation)
    for message in messages:
        assert message in str(error.value)


def test_types_of_the_command_line(file: Path) -> None:
    """They reach the process of the subject, where a function has no types of its own."""
    report = verify_target(f"{file}:rms_norm", operation="rms_norm", dtypes=["float16"])
    assert {each.dtype for each in report.grades} == {"float16"}
    assert report.subject == "rms_norm on NumPy arrays"


def test_modules_are_not_called_with_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a class of modules, and before anything is called; PyTorch is imitated."""
    torch = ModuleType("torch")
    torch.nn = SimpleNamespace(Module=type("Module", (), {}))  # type: ignore[attr-defined]
    torch.device = str  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(ValueError, match="expected a class of modules"):
        function_subject(torch.nn.Module(), "rms_norm", "norm")


def test_traceback_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is refused has none; that of a deep one shows its last calls."""
    monkeypatch.setattr(records, "PACKAGE", __file__)
    kernel: dict[str, Any] = {}
    lines = ["def divide(x):", "    return 1 // x", "def start(x):", "    return divide(x)"]
    lines += ["def deep(n):", "    return deep(n - 1) if n else divide(0)", ""]
    exec(compile("\n".join(lines), "folder/kernel.py", "exec"), kernel)
    with pytest.raises(ZeroDivisionError) as inside:
        kernel["start"](0)
    frame = '  File "folder/kernel.py", line {}, in {}'
    shown = [frame.format(4, "start"), frame.format(2, "divide")]
    assert traceback_of(inside.value).splitlines() == shown
    with pytest.raises(ZeroDivisionError) as deep:
        kernel["deep"](50)
    last = traceback_of(deep.value).splitlines()
    assert last[-1] == frame.format(2, "divide")
    assert last[-2] == f"  [Previous line repeated {records.MOST_FRAMES - 1 - 3} more times]"
    with pytest.raises(TypeError) as refused:
        kernel["divide"]()
    assert traceback_of(refused.value) == ""


def test_triton_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)

    def forward(*_: object) -> None:
        raise RuntimeError("0 active drivers ([]). There should only be one.")

    failure = InProcess(tv.Subject(forward)).run(tv.case("float32-normal-4x5"), Call()).failure
    assert failure.endswith("set TRITON_INTERPRET=1 to run the kernel on the CPU")
    assert not triton_advice("2 active drivers")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not triton_advice("0 active drivers")


def test_triton_while_the_file_is_executed(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("raise RuntimeError('0 active drivers ([]).')\n", encoding="utf-8")
    with pytest.raises(CannotRunError, match="set TRITON_INTERPRET=1"):
        verify_target(str(path))
