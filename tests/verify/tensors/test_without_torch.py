"""Where PyTorch is not installed: nothing imports it, and who needs it is told what to do."""

import subprocess
import sys

import pytest

import truenorm.verify as tv
from truenorm.verify.running.loading import NotThereError, dotted_path, load


@pytest.fixture
def _no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


def test_the_judge_imports_no_framework() -> None:
    script = "import sys, truenorm.verify; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.usefixtures("_no_torch")
def test_what_is_to_be_installed() -> None:
    with pytest.raises(ValueError, match=r"needs PyTorch.*: pip install torch"):
        tv.torch_subject(print, operation="rms_norm")


@pytest.mark.usefixtures("_no_torch")
@pytest.mark.parametrize(
    ("target", "operation", "said"),
    [
        ("torch:torch.nn.functional.rms_norm", "rms_norm", "there is no module 'torch'"),
        ("torch:math.sqrt", "rms_norm", "needs PyTorch"),
        ("torch:math.root", "rms_norm", "math has no 'root'"),
        ("torch:math.sqrt", "", "give --operation rms_norm"),
        ("torch:sqrt", "rms_norm", "is no path such as torch:package.module.function"),
        ("torch:my-kernels.norm", "rms_norm", "is no path such as"),
        ("torch:no_such_package.norm", "rms_norm", "is it installed in this environment"),
    ],
)
def test_targets(target: str, operation: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(NotThereError, match=said):
        load(target, operation)


def test_a_file_is_no_path() -> None:
    assert dotted_path("torch:a.b") == "a.b"
    assert dotted_path("torch.py:a") == dotted_path("folder/torch:a") == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"operation": "rms_norm", "form": "in place"}, "one of functional, out, inplace, module"),
        ({"operation": "rms"}, "operation is 'rms'; it is one of layer_norm"),
    ],
)
def test_what_is_refused_before_it_is_needed(options: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tv.torch_subject(print, **options)  # type: ignore[arg-type]
