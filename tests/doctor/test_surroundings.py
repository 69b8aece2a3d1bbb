"""Versions, backends and processor."""

import platform
import sys

import numpy as np
import pytest

import truenorm as tn
from api.test_settings import (
    DENORMALS_ARE_ZERO,
    FLUSH_TO_ZERO,
    GLIBC,
    ROUND_DOWN,
    ROUND_TO_ZERO,
    ROUND_UP,
    control_bits,
)
from truenorm import doctor
from truenorm.api import backends
from truenorm.doctor import UNTESTED, Section, backend_lines, examine, processor, versions

ONLY_REFERENCE = [
    backends.BackendStatus("native", False, "the C core was not built"),
    backends.BackendStatus("reference", True, "needs NumPy alone"),
]


def values(section: Section) -> dict[str, str]:
    return {line.name: line.value for line in section.lines}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BACKEND", "THREADS", "ROUNDING"):
        monkeypatch.delenv(f"TRUENORM_{name}", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not installed is no problem."""
    monkeypatch.setitem(sys.modules, "flint", None)
    found = values(versions())
    assert found["truenorm"] == tn.__version__
    assert found["python"].endswith(platform.python_version())
    assert found["numpy"] == np.__version__
    text = "not installed; it is for proofs of gradients: pip install 'truenorm[verify]'"
    assert found["python-flint"] == text
    assert versions().problems == []


class TestBackends:
    def test_all_are_named_with_their_reasons(self) -> None:
        found = values(backend_lines())
        for status in tn.backends():
            how = "usable: " if status.usable else "not usable: "
            assert found[status.name] == how + status.reason

    @pytest.mark.parametrize(
        ("name", "taken", "remedy"),
        [
            ("", "reference, the first that is usable", ""),
            ("reference", "reference, by TRUENORM_BACKEND", ""),
            ("abacus", "abacus, by TRUENORM_BACKEND", "or set it to reference"),
            ("native", "native, by TRUENORM_BACKEND", "or set it to reference"),
        ],
    )
    def test_which_is_taken(
        self, monkeypatch: pytest.MonkeyPatch, name: str, taken: str, remedy: str
    ) -> None:
        monkeypatch.setattr(backends, "backends", lambda: ONLY_REFERENCE)
        monkeypatch.setenv("TRUENORM_BACKEND", name)
        section = backend_lines()
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
        assert text in values(backend_lines())[name]

    @pytest.mark.parametrize(
        ("name", "value", "accepted"),
        [
            ("THREADS", "some", "a whole number of at least 1"),
            ("ROUNDING", "up", "correct or fast"),
        ],
    )
    def test_a_variable_that_means_nothing(
        self, monkeypatch: pytest.MonkeyPatch, name: str, value: str, accepted: str
    ) -> None:
        monkeypatch.setenv(f"TRUENORM_{name}", value)
        (problem,) = backend_lines().problems
        assert problem.value == f"TRUENORM_{name} is {value!r}"
        assert problem.remedy == f"unset TRUENORM_{name}, or set it to {accepted}"


def test_a_processor_as_it_should_be() -> None:
    section = processor()
    assert section.problems == []
    for name in np.show_config(mode="dicts")["SIMD Extensions"]["found"]:
        assert name in values(section)["features"]


@pytest.mark.skipif(
    not (GLIBC and platform.machine() == "x86_64"), reason="sets the register as glibc does"
)
@pytest.mark.parametrize(
    ("mask", "undo"),
    [
        (FLUSH_TO_ZERO, "torch.set_flush_denormal(False)"),
        (DENORMALS_ARE_ZERO, "torch.set_flush_denormal(False)"),
        *((mask, "FE_TONEAREST") for mask in (ROUND_DOWN, ROUND_UP, ROUND_TO_ZERO)),
    ],
)
def test_a_processor_as_it_should_not_be(
    monkeypatch: pytest.MonkeyPatch, mask: int, undo: str
) -> None:
    """Nothing can be tested in this state, and nothing is."""
    monkeypatch.delattr(doctor, "self_test")
    with control_bits(mask):
        diagnosis = examine()
    (problem,) = diagnosis.problems
    assert problem.value == "not IEEE's"
    assert undo in problem.remedy
    assert diagnosis.sections[-1] is UNTESTED
