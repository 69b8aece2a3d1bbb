"""``truenorm verify torch:...``, recipes of published kernels, and the examples with PyTorch."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import truenorm as tn
import truenorm.verify as tv
from shared.programs import python
from truenorm.verify.calls import Call
from truenorm.verify.grading.grades import grade
from truenorm.verify.judge import verify_target
from truenorm.verify.running.runners import InProcess

ROOT = Path(__file__).parents[2]
RMS_NORM = "torch:torch.nn.functional.rms_norm"
MODELS = "torch:transformers.models"
WIDE = "rms_norm,parameters=float32,result=float32"
ZERO_CENTRED = "rms_norm,gain=zero-centred"


def verify(*arguments: str, folder: Path) -> tuple[int, str]:
    done = python("-P", "-m", "truenorm", "verify", *arguments, folder=folder)
    return done.returncode, done.stdout + done.stderr


def test_function(tmp_path: Path) -> None:
    options = ("--operation", "rms_norm", "--dtype", "bfloat16")
    assert verify(RMS_NORM, *options, folder=tmp_path)[0] == 0
    code, message = verify(RMS_NORM, *options, "--strict", folder=tmp_path)
    assert code == 1  # squares of 1e30 overflow
    assert "torch.nn.functional.rms_norm: RMS normalization" in message
    assert "late: bits of late in 100.00 %" in message
    assert f"tv.load('{RMS_NORM}', operation='rms_norm')" in message


@pytest.mark.parametrize(("target", "title"), [
    ("torch:mine.RMSNorm", "mine.RMSNorm: RMS"),  # imported as by ``python -m``
    ("mine.py:rms_norm", "rms_norm on PyTorch tensors: RMS"),  # arrays are tried first
    ("mine.py:RMSNorm", "RMSNorm: "),
])  # fmt: skip
def test_modules_and_functions_of_the_current_folder(
    target: str, title: str, tmp_path: Path
) -> None:
    source = Path(__file__).with_name("kernels.py").read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    options = ("--operation", "rms_norm", "--dtype", "bfloat16", "--require", "wrong")
    code, message = verify(target, *options, folder=tmp_path)
    assert title in message
    assert "bits of late in 100.00 %" in message, message
    assert code != 2


def test_types_and_reproducers() -> None:
    report = verify_target(RMS_NORM, operation="rms_norm", strict=True)
    assert list(dict.fromkeys(each.dtype for each in report.grades)) == ["float32", "bfloat16"]
    finding = report.findings[0]
    done = python("-c", finding.reproducer)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


def test_load() -> None:
    subject = tv.load("torch:torch.nn.RMSNorm", operation="rms_norm")
    assert subject.name == "torch.nn.RMSNorm"
    assert len(subject.dtypes) == 4
    tv.check(subject, tv.case("float16-normal-4x17", operation=tv.RMS_NORM))


def recipe_of(subject: tv.Subject, dtype: str) -> Any:
    """Return the recipe that ordinary rows show."""
    operation = subject.operation
    suite = [each for each in tv.cases(dtype, operation=operation) if each.family == "normal"]
    records = [InProcess(subject).run(each, Call()) for each in suite]
    assert [each.failure for each in records if each.failure] == []
    (recipe,) = grade("", suite, records, outputs=["y"], require="wrong").recipes
    return recipe


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("target", "operation", "name"), [
    (RMS_NORM, "rms_norm", "late"),
    ("torch:torch.nn.functional.layer_norm", "layer_norm", "late"),
    (f"{MODELS}.llama.modeling_llama.LlamaRMSNorm", "rms_norm", "early"),
    (f"{MODELS}.llama.modeling_llama.LlamaRMSNorm", WIDE, "early"),
    (f"{MODELS}.t5.modeling_t5.T5LayerNorm", "rms_norm", "early"),
    (f"{MODELS}.gemma.modeling_gemma.GemmaRMSNorm", ZERO_CENTRED, "late"),
])  # fmt: skip
def test_recipes_of_published_kernels(target: str, operation: str, name: str, dtype: str) -> None:
    if "transformers" in target:
        pytest.importorskip("transformers")
    recipe = recipe_of(tv.load(target, operation), dtype)
    assert recipe.name == name
    assert recipe.shares[name] > 0.999


def report_of(example: str, *options: str) -> dict[str, Any]:
    file = ROOT / "examples" / "verify" / example
    command = ("-P", "-m", "truenorm", "verify", str(file), "--json", *options)
    done = python(*command, seconds=600, TRITON_INTERPRET="1")
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_triton_example() -> None:
    """Its recipe is late, and its rows may be padded."""
    pytest.importorskip("triton")
    report = report_of("triton_check.py", "--dtype", "float16")
    assert report["findings"] == []
    assert [each["name"] for each in report["recipes"]] == ["late"]
    assert [each["output"] for each in report["grades"]] == ["y"]


@pytest.mark.parametrize(("target", "recipe", "identified"), [
    ("quantized_check.py", "late/T", "late/direct"),
    ("quantized_check.py:mended", "late/T", "late/T"),
    ("triton_quantized_check.py", "late/T, divide", "late/T"),
])  # fmt: skip
def test_quantized_examples(target: str, recipe: str, identified: str) -> None:
    """The rounding that is left out is the only finding."""
    if target.startswith("triton"):
        pytest.importorskip("triton")
    report = report_of(target, "--recipe", recipe)
    assert [each["name"] for each in report["recipes"]] == [identified]
    guards = [] if recipe.startswith(identified) else ["recipe"]
    assert [each["guard"] for each in report["findings"]] == guards


def test_triton_interpreter_truncates() -> None:
    """The example says so of bfloat16; a Triton that rounds fails here."""
    pytest.importorskip("triton")
    report = report_of("triton_check.py", "--dtype", "bfloat16")
    (recipe,) = report["recipes"]
    assert recipe["name"] == ""
    assert 0.4 < recipe["shares"]["late"] < 0.6
    assert report["verdicts"]["subnormals kept"] == "fail"


def test_torch_example() -> None:
    report = report_of("torch_check.py", "--dtype", "float32")
    assert report["verdicts"]["runs"] == "pass"
    assert [each["output"] for each in report["grades"]] == ["y", "dx", "dgamma", "dbeta"]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_allreduce_example(ranks: int) -> None:
    """The digests are those of MPI, as the page has them."""
    program = ROOT / "examples" / "ranks" / "torch_allreduce.py"
    ran = python(program, str(ranks), seconds=600, PYTHONPATH=str(Path(tn.__file__).parents[1]))
    assert ran.returncode == 0, ran.stderr
    exact, _, _ = ran.stdout.partition(", float32 ")
    assert f"{exact}," in (ROOT / "docs" / "use" / "ranks.md").read_text(encoding="utf-8")
