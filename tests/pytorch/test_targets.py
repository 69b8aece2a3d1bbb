"""``truenorm verify torch:...`` in a process of its own, and what finds the subject again."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import truenorm.verify as tv
from truenorm.verify.judge import verify_target

RMS_NORM = "torch:torch.nn.functional.rms_norm"


def verify(*arguments: str, folder: Path) -> tuple[int, str]:
    command = [sys.executable, "-P", "-m", "truenorm", "verify", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_a_function_on_the_command_line(tmp_path: Path) -> None:
    code, said = verify(
        RMS_NORM, "--operation", "rms_norm", "--dtype", "bfloat16", folder=tmp_path
    )
    assert code == 1  # squares of 1e30 overflow
    assert "torch.nn.functional.rms_norm: RMS normalization" in said
    assert "late: bits of late in 100.00 %" in said
    assert f"tv.load('{RMS_NORM}', operation='rms_norm')" in said


def test_a_module_that_is_no_file_of_ours(tmp_path: Path) -> None:
    """In the folder where the command is given, as for ``python -m``."""
    source = Path(__file__).with_name("kernels.py").read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    options = ("--operation", "rms_norm", "--dtype", "bfloat16", "--require", "wrong")
    code, said = verify("torch:mine.RMSNorm", *options, folder=tmp_path)
    assert "bits of late in 100.00 %" in said, said
    assert code != 2


@pytest.mark.parametrize(
    ("target", "operation", "said"),
    [
        (RMS_NORM, "", "give --operation rms_norm"),
        ("torch:torch.nn.functional.rms", "rms_norm", "torch.nn.functional has no 'rms'"),
        ("torch:no_such_package.norm", "rms_norm", "there is no module 'no_such_package'"),
        (RMS_NORM, "layer_norm", "beta is none of its arguments"),
    ],
)
def test_what_is_not_there(target: str, operation: str, said: str, tmp_path: Path) -> None:
    options = ["--operation", operation] if operation else []
    code, printed = verify(target, *options, folder=tmp_path)
    assert code == 2
    assert said in " ".join(printed.split())
    assert "Traceback" not in printed


def test_types_and_reproducers() -> None:
    report = verify_target(RMS_NORM, operation="rms_norm")
    assert list(dict.fromkeys(each.dtype for each in report.grades)) == ["float32", "bfloat16"]
    finding = report.findings[0]
    done = subprocess.run(
        [sys.executable, "-c", finding.reproducer], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


def test_loaded() -> None:
    subject = tv.load("torch:torch.nn.RMSNorm", operation="rms_norm")
    assert subject.name == "torch.nn.RMSNorm"
    assert len(subject.dtypes) == 4
    tv.check(subject, tv.case("float16-normal-4x17", operation=tv.RMS_NORM))
