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
from api.test_settings import (
    DENORMALS_ARE_ZERO,
    FLUSH_TO_ZERO,
    ON_GLIBC,
    ROUND_DOWN,
    ROUND_TO_ZERO,
    ROUND_UP,
    control_bits,
)
from cli.recording import record
from truenorm import doctor
from truenorm.api import backends
from truenorm.doctor import Card, Diagnosis, Line, Section
from truenorm.tools import strict_json
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.types import FORMATS
from verify.fake_report import failing_report, passing_report

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
    text = "not installed; it is for proofs of gradients: pip install 'truenorm[verify]'"
    assert lines["python-flint"] == text
    assert doctor.versions().problems == []


class TestBackends:
    def test_all_backends_with_reasons(self) -> None:
        lines = values(doctor.backend_lines())
        for status in tn.backends():
            how = "usable: " if status.usable else "not usable: "
            assert lines[status.name] == how + status.reason

    @pytest.mark.parametrize(
        ("name", "taken", "remedy"),
        [
            ("", "reference, the first that is usable", ""),
            ("reference", "reference, by TRUENORM_BACKEND", ""),
            ("abacus", "abacus, by TRUENORM_BACKEND", "or set it to reference"),
            ("native", "native, by TRUENORM_BACKEND", "or set it to reference"),
        ],
    )
    def test_chosen_backend(
        self, monkeypatch: pytest.MonkeyPatch, name: str, taken: str, remedy: str
    ) -> None:
        monkeypatch.setattr(backends, "backends", lambda: ONLY_REFERENCE)
        monkeypatch.setenv("TRUENORM_BACKEND", name)
        section = doctor.backend_lines()
        assert values(section)["taken"] == taken
        said = [line.remedy for line in section.problems]
        assert said == ([f"unset TRUENORM_BACKEND, {remedy}"] if remedy else [])

    @pytest.mark.parametrize(
        ("variables", "name", "text"),
        [
            ("THREADS=3", "threads", "3, by TRUENORM_THREADS"),
            ("OMP=5,2", "threads", "5, by OMP_NUM_THREADS"),
            ("THREADS=3 OMP=5", "threads", "3, by TRUENORM_THREADS"),
            ("OMP=zero", "threads", "one for each core"),
            ("", "threads", "one for each core"),
            ("", "rounding", "correct, unless a call asks for fast"),
            ("ROUNDING=fast", "rounding", "fast in every call, by TRUENORM_ROUNDING"),
        ],
    )
    def test_settings(
        self, monkeypatch: pytest.MonkeyPatch, variables: str, name: str, text: str
    ) -> None:
        for variable, _, value in (each.partition("=") for each in variables.split()):
            full = "OMP_NUM_THREADS" if variable == "OMP" else f"TRUENORM_{variable}"
            monkeypatch.setenv(full, value)
        assert text in values(doctor.backend_lines())[name]

    @pytest.mark.parametrize(
        ("variable", "value", "accepted"),
        [
            ("TRUENORM_THREADS", "some", "an integer from 1 to 2147483647"),
            ("TRUENORM_ROUNDING", "up", "correct or fast"),
        ],
    )
    def test_invalid_variable(
        self, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, accepted: str
    ) -> None:
        monkeypatch.setenv(variable, value)
        (problem,) = doctor.backend_lines().problems
        assert problem.value == f"{variable} is {value!r}"
        assert problem.remedy == f"unset {variable}, or set it to {accepted}"


def test_processor() -> None:
    section = doctor.processor()
    assert section.problems == []
    for name in np.show_config(mode="dicts")["SIMD Extensions"]["found"]:
        assert name in values(section)["features"]


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
    assert diagnosis.sections[-1] is doctor.UNTESTED


USABLE = [each.name for each in tn.backends() if each.usable and each.name != "gpu"]


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "usable_backends", lambda: ["reference"])


def values(section: Section) -> dict[str, str]:
    return {line.name: line.value for line in section.lines}


class TestSelfTest:
    @pytest.mark.parametrize("backend", USABLE)
    def test_healthy(self, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
        monkeypatch.setattr(doctor, "usable_backends", lambda: [backend])
        steps: list[tuple[int, int, str]] = []
        section = doctor.self_test(lambda *step: steps.append(step))
        passed = f"correct to the bit ({len(doctor.CASES)} cases, forward and backward)"
        assert values(section) == {f"{backend}, {dtype}": passed for dtype in FORMATS}
        assert section.problems == []
        assert section.seconds
        assert [done for done, _, _ in steps] == list(range(len(FORMATS)))
        assert steps[0][2] == f"{backend}, float16"

    @pytest.mark.usefixtures("reference")
    @pytest.mark.parametrize("output", ["y", "dx", "dgamma", "dbeta"])
    def test_wrong_bit(self, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
        def spoilt(case: Case) -> Any:
            right: dict[str, Any] = {**expected(case).values}
            right[output] = right[output].copy()
            right[output].reshape(-1).view(np.uint8)[0] ^= 1
            return SimpleNamespace(values=right)

        monkeypatch.setattr(doctor, "expected", spoilt)
        section = doctor.self_test()
        assert [line.remedy for line in section.problems] == [doctor.REPORT] * len(FORMATS)
        wrong = "; ".join(f"{output} of float32-{name}" for name in doctor.CASES)
        assert values(section)["reference, float32"] == f"WRONG: {wrong}"

    @pytest.mark.usefixtures("reference")
    def test_missing_results(self, monkeypatch: pytest.MonkeyPatch) -> None:
        record(monkeypatch, "truenorm.doctor.layer_norm_backward", (None, None, None))
        first = doctor.self_test().lines[0]
        assert first.value.startswith("WRONG: dx of float16-normal-4x67; dgamma of ")
        assert first.remedy == doctor.REPORT

    @pytest.mark.usefixtures("reference")
    def test_crash(self, monkeypatch: pytest.MonkeyPatch) -> None:
        record(monkeypatch, "truenorm.doctor.layer_norm_forward", OSError("cannot load libm"))
        section = doctor.self_test()
        assert [line.remedy for line in section.problems] == [doctor.REPORT] * len(FORMATS)
        assert section.lines[0].value == "FAILED: OSError: cannot load libm"

    @pytest.mark.usefixtures("reference")
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
            assert doctor.self_test().problems == []
        assert {name: os.environ[f"TRUENORM_{name}"] for name in variables} == variables


class TestJudgement:
    def test_correct_rounding_is_required(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = record(monkeypatch, "truenorm.doctor.verify", failing_report(), passing_report())
        section = doctor.judgement()
        assert [line.name for line in section.lines] == list(FORMATS)
        assert [(list(subject.dtypes), options) for (subject,), options in asked] == [
            ([dtype], {"require": "correct", "strict": True, "progress": None})
            for dtype in FORMATS
        ]
        assert asked[0][0][0].outputs == ("y", "dx", "dgamma", "dbeta")
        (problem,) = section.problems
        assert problem.name == "float16"
        assert problem.value.startswith("WRONG: ")
        assert failing_report().findings[0].case in problem.value

    @pytest.mark.slow
    def test_truenorm_is_judged_correct(self) -> None:
        section = doctor.judgement()
        assert section.problems == []
        right = "correct: y, dx, dgamma and dbeta"
        assert all(line.value.startswith(right) for line in section.lines)


def test_full(monkeypatch: pytest.MonkeyPatch) -> None:
    section = Section("Any", (Line("a", "b"),))
    for name in ("self_test", "judgement"):
        monkeypatch.setattr(doctor, name, lambda *_: section)
    short, long = doctor.examine(), doctor.examine(full=True)
    assert len(long.sections) == len(short.sections) + 1
    assert (short.full, long.full) == (False, True)


HAS_GPU = {status.name: status.usable for status in tn.backends()}["gpu"]


def card(put: Any = lambda array: array, *, is_gpu: bool = False) -> Card:
    """Return a fake device whose arrays are NumPy's."""
    return Card(
        interface="none",
        is_gpu=is_gpu,
        types=("float16", "float32"),
        facts=(Line("none", "NumPy"),),
        put=put,
        get=lambda array: array,
    )


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that examines a card with small arrays."""
    monkeypatch.setattr(doctor, "SIZES", {True: (5, 64), False: (64,)})
    monkeypatch.setattr(doctor, "COMPARED", 256)
    monkeypatch.setattr(doctor, "by_cuda", lambda: Line("CUDA", doctor.CUDA_NEEDS))

    def examined(card: Card) -> list[Section]:
        monkeypatch.setattr(doctor, "by_opencl", lambda: card)
        return doctor.devices()

    return examined


def test_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason and the installation are named, and nothing else is examined."""
    missing = backends.BackendStatus("gpu", False, "needs pyopencl")
    monkeypatch.setattr(backends, "backends", lambda: [*tn.backends()[:2], missing])
    monkeypatch.setitem(sys.modules, "cupy", None)
    diagnosis = doctor.examine(gpu=True)
    (problem,) = diagnosis.problems
    assert problem == Line("OpenCL", "no device: needs pyopencl", doctor.INSTALL)
    assert diagnosis.sections[-1].lines == (problem, Line("CUDA", doctor.CUDA_NEEDS))
    assert "Self-test" not in [section.title for section in diagnosis.sections]
    assert diagnosis.as_dict()["gpu"] is True


def test_correct_bits(monkeypatch: pytest.MonkeyPatch, examined: Any) -> None:
    """An invalid variable is ignored."""
    monkeypatch.setenv("TRUENORM_ROUNDING", "up")
    facts, bits = examined(card())
    assert [line.name for line in facts.lines] == ["none", "CUDA"]
    scope = "1,216 numbers, both norms, forward and backward, D = 64"
    assert [line.value for line in bits.lines] == [f"correct to the bit ({scope})"] * 2
    assert not bits.problems


def test_missing_type_of_a_device(monkeypatch: pytest.MonkeyPatch, examined: Any) -> None:
    record(monkeypatch, "truenorm.doctor.dtype_of", ValueError("needs a package"))
    _, bits = examined(card())
    for line in bits.lines:
        assert line.value == "not tested: needs a package"
    assert not bits.problems


def test_gpu_has_more_cases(examined: Any) -> None:
    _, bits = examined(card(is_gpu=True))
    assert all(line.value.endswith("D = 5, 64)") for line in bits.lines)


def test_wrong_bit_of_a_device(examined: Any) -> None:
    def put(array: Any) -> Any:
        changed = np.copy(array)
        if changed.ndim == 1:  # of gamma, or beta
            changed[-1] = np.nextafter(changed[-1], changed.dtype.type(9))
        return changed

    _, bits = examined(card(put))
    assert [line.remedy for line in bits.problems] == [doctor.DIFFERENT] * 2
    assert all(line.value.startswith("WRONG: ") for line in bits.lines)


def test_failing_driver(examined: Any) -> None:
    def put(_: Any) -> Any:
        raise RuntimeError("out of memory")

    _, bits = examined(card(put))
    assert [each.value for each in bits.problems] == ["FAILED: RuntimeError: out of memory"] * 2


class TestCuda:
    """With a fake CuPy that has only what is called."""

    def install(self, monkeypatch: pytest.MonkeyPatch, properties: Any) -> None:
        runtime = SimpleNamespace(
            getDeviceProperties=properties,
            driverGetVersion=lambda: 13010,
        )
        cupy = SimpleNamespace(
            cuda=SimpleNamespace(runtime=runtime),
            asarray=np.asarray,
            asnumpy=np.asarray,
            __spec__=SimpleNamespace(),
        )
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setitem(sys.modules, "cuda", cupy)

    def test_card(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.install(
            monkeypatch,
            lambda _: {"name": b"H100", "multiProcessorCount": 132, "totalGlobalMem": 80 * 10**9},
        )
        device = doctor.by_cuda()
        assert isinstance(device, Card)
        assert [line.value for line in device.facts] == [
            "H100, experimental",
            "of CUDA 13.1",
            "132, 80.0 GB",
        ]

    def test_no_card(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_: int) -> None:
            raise RuntimeError("no driver")

        self.install(monkeypatch, refuse)
        assert doctor.by_cuda() == Line("CUDA", "no card: RuntimeError: no driver")


@pytest.mark.skipif(
    not (HAS_GPU or os.environ.get("TRUENORM_NEEDS_GPU")), reason="there is no device"
)
class TestDevice:
    def test_facts(self) -> None:
        device = doctor.by_opencl()
        assert isinstance(device, Card)
        assert [line.name for line in device.facts] == ["OpenCL", "driver", "version", "units"]
        x = np.arange(6, dtype=np.float32)
        assert device.get(device.put(x).copy()).tolist() == x.tolist()

    @pytest.mark.slow
    def test_bits(self) -> None:
        diagnosis = doctor.examine(gpu=True)
        assert not diagnosis.problems
        sections = {section.title: section for section in diagnosis.sections}
        assert len(sections["Bits, OpenCL"].lines) == 3


HEALTHY = Section("Versions", (Line("numpy", "2.0"),))
PROBLEM = Section("Self-test", (Line("native, float32", "WRONG: y\n\x1b[2J", "mend\nit"),), 61.2)


def diagnosis(*sections: Section) -> Diagnosis:
    return Diagnosis("2026-01-02", True, sections)


def test_text() -> None:
    assert doctor.report_text(diagnosis(HEALTHY, PROBLEM), json=False).splitlines() == [
        "```text",
        "truenorm doctor --full, 2026-01-02",
        "",
        "Versions",
        "  numpy               2.0",
        "",
        "Self-test (1 min 1 s)",
        r"  native, float32     WRONG: y \x1b[2J",
        "                      -> mend it",
        "",
        "PROBLEM: 1 thing is wrong (native, float32); the lines with -> say what to do.",
        "```",
    ]


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ((HEALTHY,), "HEALTHY: nothing is wrong."),
        ((PROBLEM, PROBLEM), "PROBLEM: 2 things are wrong (native, float32, native, float32)"),
    ],
)
def test_conclusion(sections: tuple[Section, ...], words: str) -> None:
    assert doctor.report_text(diagnosis(*sections), json=False).splitlines()[-2].startswith(words)


def test_json() -> None:
    ill = {"name": "native, float32", "value": "WRONG: y\n\x1b[2J", "remedy": "mend\nit"}
    well = {"name": "numpy", "value": "2.0", "remedy": ""}
    assert strict_json.loads(strict_json.dumps(diagnosis(HEALTHY, PROBLEM).as_dict())) == {
        "healthy": False,
        "date": "2026-01-02",
        "full": True,
        "gpu": False,
        "problems": [ill],
        "sections": {
            "Versions": {"seconds": None, "lines": [well]},
            "Self-test": {"seconds": 61.2, "lines": [ill]},
        },
    }
