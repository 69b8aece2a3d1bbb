"""`truenorm doctor`: surroundings, self-tests, devices, and how the diagnosis is printed."""

import os
import platform
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from fast.api.test_settings import (
    DENORMALS_ARE_ZERO,
    FLUSH_TO_ZERO,
    ON_GLIBC,
    ROUND_DOWN,
    ROUND_TO_ZERO,
    ROUND_UP,
    control_bits,
)
from shared.cli.recording import record
from shared.verify.fake_report import failing_report, passing_report
from truenorm import doctor
from truenorm.api import backends
from truenorm.doctor import Line, Lines, Place
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.types import FORMATS

SLOW = pytest.mark.slow(reason="doctor judges the package")

ONLY_REFERENCE = [
    backends.BackendStatus("native", False, "the C core was not built"),
    backends.BackendStatus("reference", True, "needs NumPy alone"),
]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BACKEND", "THREADS", "ROUNDING"):
        monkeypatch.delenv(f"TRUENORM_{name}", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is not a problem."""
    monkeypatch.setitem(sys.modules, "flint", None)
    lines = values(doctor.versions())
    assert lines["truenorm"] == tn.__version__
    assert lines["python"].endswith(platform.python_version())
    assert lines["numpy"] == np.__version__
    assert lines["python-flint"] == "not installed: pip install 'truenorm[verify]'"
    assert problems(doctor.versions()) == []


class TestBackends:
    @pytest.mark.parametrize(
        ("name", "taken", "remedy"),
        [
            ("", "reference, the first usable one", ""),
            ("reference", "reference, by TRUENORM_BACKEND", ""),
            ("abacus", "TRUENORM_BACKEND is 'abacus'", "or set it to reference"),
            ("native", "TRUENORM_BACKEND is 'native'", "or set it to reference"),
        ],
    )
    def test_chosen_backend(
        self, monkeypatch: pytest.MonkeyPatch, name: str, taken: str, remedy: str
    ) -> None:
        monkeypatch.setattr(backends, "backends", lambda: ONLY_REFERENCE)
        monkeypatch.setenv("TRUENORM_BACKEND", name)
        lines = doctor.backend_lines()
        assert values(lines)["backend"] == taken
        said = [line.remedy for line in problems(lines)]
        assert said == ([f"unset TRUENORM_BACKEND, {remedy}"] if remedy else [])

    @pytest.mark.parametrize(
        ("variables", "name", "text"),
        [
            ("THREADS=3", "threads", "3, by TRUENORM_THREADS"),
            ("OMP=5,2", "threads", "5, by OMP_NUM_THREADS"),
            ("THREADS=3 OMP=5", "threads", "3, by TRUENORM_THREADS"),
            ("OMP=zero", "threads", "one for each usable core"),
            ("", "threads", "one for each usable core"),
            ("", "rounding", "correct, unless a call asks for fast"),
            ("ROUNDING=fast", "rounding", "fast in every call, by TRUENORM_ROUNDING"),
            ("THREADS=some", "threads", "TRUENORM_THREADS is 'some'"),
            ("ROUNDING=up", "rounding", "TRUENORM_ROUNDING is 'up'"),
        ],
    )
    def test_settings(
        self, monkeypatch: pytest.MonkeyPatch, variables: str, name: str, text: str
    ) -> None:
        for variable, _, value in (each.partition("=") for each in variables.split()):
            full = "OMP_NUM_THREADS" if variable == "OMP" else f"TRUENORM_{variable}"
            monkeypatch.setenv(full, value)
        lines = doctor.backend_lines()
        assert text in values(lines)[name]
        assert [line.name for line in problems(lines)] == ([name] if " is " in text else [])


def test_processor() -> None:
    lines = doctor.processor()
    assert problems(lines) == []
    for name in np.show_config(mode="dicts")["SIMD Extensions"]["found"]:
        assert name in values(lines)["features"]


@ON_GLIBC
@pytest.mark.parametrize(
    ("mask", "undo"),
    [
        (FLUSH_TO_ZERO, "torch.set_flush_denormal(False)"),
        (DENORMALS_ARE_ZERO, "torch.set_flush_denormal(False)"),
        *((mask, "FE_TONEAREST") for mask in (ROUND_DOWN, ROUND_UP, ROUND_TO_ZERO)),
    ],
)
def test_processor_with_other_arithmetic(
    monkeypatch: pytest.MonkeyPatch, mask: int, undo: str
) -> None:
    """Nothing is tested in this state."""
    monkeypatch.delattr(doctor, "self_test")
    with control_bits(mask):
        diagnosis = doctor.examine()
    (problem,) = diagnosis.problems
    assert problem.value == "not IEEE's"
    assert undo in problem.remedy
    assert diagnosis.sections["Self-test"] == (doctor.UNTESTED,)


USABLE = [each.name for each in tn.backends() if each.usable and each.name != "gpu"]
REFERENCE = Place("reference", backend="reference")


def values(lines: Lines) -> dict[str, str]:
    return {line.name: line.value for line in lines}


def problems(lines: Lines) -> list[Line]:
    return [line for line in lines if line.remedy]


class TestSelfTest:
    @pytest.mark.parametrize("backend", USABLE)
    def test_healthy(self, backend: str) -> None:
        steps: list[tuple[int, int, str]] = []
        place = Place(backend, backend=backend)
        lines = doctor.self_test([place], lambda *step: steps.append(step))
        # Four results of five cases of layer norm, and three of two cases of RMSNorm.
        passed = "correct to the bit (26 results, forward and backward)"
        assert values(lines) == {f"{backend}, {dtype}": passed for dtype in FORMATS}
        assert problems(lines) == []
        assert [done for done, _, _ in steps] == list(range(len(FORMATS)))
        assert steps[0][2] == f"{backend}, float16"

    @pytest.mark.parametrize("output", ["y", "dx", "dgamma", "dbeta"])
    def test_wrong_bit(self, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
        def spoilt(case: Case) -> Any:
            right: dict[str, Any] = {**expected(case).values}
            if output in right:
                right[output] = right[output].copy()
                right[output].reshape(-1).view(np.uint8)[0] ^= 1
            return SimpleNamespace(values=right)

        monkeypatch.setattr(doctor, "expected", spoilt)
        lines = doctor.self_test([REFERENCE])
        assert [line.remedy for line in lines] == [doctor.REPORT] * len(FORMATS)
        wrong = values(lines)["reference, float32"]
        assert wrong.startswith(f"WRONG: {output} of float32-normal-4x67, layer_norm")
        of_rms_norm = f"{output} of float32-nan-in-x, rms_norm"
        assert wrong.endswith(of_rms_norm) is (output != "dbeta")

    def test_crash(self, monkeypatch: pytest.MonkeyPatch) -> None:
        record(monkeypatch, "truenorm.doctor.layer_norm_forward", OSError("cannot load libm"))
        lines = doctor.self_test([REFERENCE])
        assert [line.remedy for line in lines] == [doctor.REPORT] * len(FORMATS)
        assert lines[0].value == "FAILED: OSError: cannot load libm"

    @pytest.mark.parametrize("interrupted", [False, True])
    def test_variables_are_ignored_and_restored(
        self, monkeypatch: pytest.MonkeyPatch, interrupted: bool
    ) -> None:
        """Each of these would make the test fail, or test something else."""
        variables = {"BACKEND": "abacus", "ROUNDING": "up", "THREADS": "some"}
        for name, value in variables.items():
            monkeypatch.setenv(f"TRUENORM_{name}", value)
        if interrupted:
            record(monkeypatch, "truenorm.doctor.case", KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt) if interrupted else nullcontext():
            assert problems(doctor.self_test([REFERENCE])) == []
        assert {name: os.environ[f"TRUENORM_{name}"] for name in variables} == variables


class TestJudgement:
    def test_correct_rounding_is_required(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = record(monkeypatch, "truenorm.doctor.verify", failing_report(), passing_report())
        lines = doctor.judgement()
        assert [line.name for line in lines] == list(FORMATS)
        assert [(list(subject.dtypes), options) for (subject,), options in asked] == [
            ([dtype], {"require": "correct", "strict": True, "progress": None})
            for dtype in FORMATS
        ]
        assert asked[0][0][0].outputs == ("y", "dx", "dgamma", "dbeta")
        (problem,) = problems(lines)
        assert problem.name == "float16"
        assert problem.value.startswith("WRONG: ")
        assert failing_report().findings[0].case in problem.value

    @SLOW
    def test_truenorm_is_judged_correct(self) -> None:
        right = "correct: y, dx, dgamma and dbeta"
        assert all(line.value.startswith(right) for line in doctor.judgement())


HAS_GPU = {status.name: status.usable for status in tn.backends()}["gpu"]


def device(put: Any = lambda array: array) -> Place:
    """Return a fake device whose arrays are NumPy's."""
    cases = {"layer_norm": ("normal-4x64",), "rms_norm": ("normal-4x64",)}
    return Place("none", "NumPy", put, cases=cases, types=("float16", "float32"))


def test_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason and the installation are named, and nothing else is examined."""
    missing = backends.BackendStatus("gpu", False, "needs pyopencl")
    monkeypatch.setattr(backends, "backends", lambda: [*tn.backends()[:2], missing])
    monkeypatch.setitem(sys.modules, "cupy", None)
    diagnosis = doctor.examine(gpu=True)
    (problem,) = diagnosis.problems
    assert problem == Line("OpenCL", "no device: needs pyopencl", doctor.INSTALL)
    assert diagnosis.sections["Devices"] == (problem, Line("CUDA", doctor.CUDA_NEEDS))
    assert "Self-test" not in diagnosis.sections
    assert diagnosis.as_dict()["gpu"] is True


def test_devices_are_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid variable is ignored."""
    monkeypatch.setenv("TRUENORM_ROUNDING", "up")
    monkeypatch.setattr(doctor, "by_opencl", device)
    monkeypatch.setattr(doctor, "by_cuda", lambda: Line("CUDA", doctor.CUDA_NEEDS))
    sections = doctor.examine(gpu=True).sections
    assert sections["Devices"] == (Line("none", "NumPy"), Line("CUDA", doctor.CUDA_NEEDS))
    passed = "correct to the bit (7 results, forward and backward)"
    assert values(sections["Bits of devices"]) == {
        "none, float16": passed,
        "none, float32": passed,
    }


def test_wrong_bit_of_a_device() -> None:
    def put(array: Any) -> Any:
        changed = np.copy(array)
        if changed.ndim == 1:  # of gamma, or beta
            changed[-1] = np.nextafter(changed[-1], changed.dtype.type(9))
        return changed

    lines = doctor.self_test([device(put)])
    assert [line.remedy for line in lines] == [doctor.REPORT] * 2
    assert all(line.value.startswith("WRONG: y of ") for line in lines)


@pytest.mark.skipif(
    not (HAS_GPU or os.environ.get("TRUENORM_NEEDS_GPU")), reason="there is no device"
)
class TestDevice:
    def test_arrays(self) -> None:
        place = doctor.by_opencl()
        assert isinstance(place, Place)
        assert ", driver " in place.description
        x = np.arange(6, dtype=np.float32)
        assert place.get(place.put(x).copy()).tolist() == x.tolist()

    @SLOW
    def test_bits(self) -> None:
        diagnosis = doctor.examine(gpu=True)
        assert not diagnosis.problems
        lines = diagnosis.sections["Bits of devices"]
        assert len([line for line in lines if line.name.startswith("OpenCL")]) == 3
