"""Versions, backends, processor, and where kernels are kept."""

import os
import platform
import sys
from pathlib import Path

import numpy as np
import pytest

import truenorm as tn
from ops.test_environment import (
    DENORMALS_ARE_ZERO,
    FLUSH_TO_ZERO,
    GLIBC,
    ROUND_DOWN,
    ROUND_TO_ZERO,
    ROUND_UP,
    control_bits,
)
from truenorm import dispatch
from truenorm.doctor import examination
from truenorm.doctor.examination import UNTESTED, examine
from truenorm.doctor.report import Section
from truenorm.doctor.surroundings import (
    NOT_KEPT,
    PROBE,
    backends,
    kept_kernels,
    processor,
    versions,
)

ONLY_REFERENCE = [
    dispatch.BackendStatus("fused", False, "needs Numba"),
    dispatch.BackendStatus("reference", True, "needs NumPy alone"),
]


def values(section: Section) -> dict[str, str]:
    return {line.name: line.value for line in section.lines}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BACKEND", "THREADS", "ROUNDING", "CACHE_DIR"):
        monkeypatch.delenv(f"TRUENORM_{name}", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


class TestVersions:
    def test_what_is_installed(self) -> None:
        found = values(versions())
        assert found["truenorm"] == tn.__version__
        assert found["python"].endswith(platform.python_version())
        assert found["numpy"] == np.__version__

    def test_what_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "flint", None)
        section = versions()
        text = "not installed; it is for proofs of gradients: pip install 'truenorm[verify]'"
        assert values(section)["python-flint"] == text
        assert section.problems == []


class TestBackends:
    def test_all_are_named_with_their_reasons(self) -> None:
        found = values(backends())
        for status in tn.backends():
            how = "usable: " if status.usable else "not usable: "
            assert found[status.name] == how + status.reason

    @pytest.mark.parametrize(
        ("name", "taken", "remedy"),
        [
            ("", "reference, the first that is usable", ""),
            ("reference", "reference, by TRUENORM_BACKEND", ""),
            ("abacus", "abacus, by TRUENORM_BACKEND", "or set it to reference"),
            ("fused", "fused, by TRUENORM_BACKEND", "or set it to reference"),
        ],
    )
    def test_which_is_taken(
        self, monkeypatch: pytest.MonkeyPatch, name: str, taken: str, remedy: str
    ) -> None:
        monkeypatch.setattr(dispatch, "backends", lambda: ONLY_REFERENCE)
        monkeypatch.setenv("TRUENORM_BACKEND", name)
        section = backends()
        assert values(section)["taken"] == taken
        said = [line.remedy for line in section.problems]
        assert said == ([f"unset TRUENORM_BACKEND, {remedy}"] if remedy else [])

    @pytest.mark.parametrize(
        ("variables", "text"),
        [
            ({"TRUENORM_THREADS": "3"}, "3, by TRUENORM_THREADS"),
            ({"OMP_NUM_THREADS": "5,2"}, "5, by OMP_NUM_THREADS"),
            ({"TRUENORM_THREADS": "3", "OMP_NUM_THREADS": "5"}, "3, by TRUENORM_THREADS"),
            ({"OMP_NUM_THREADS": "zero"}, "one for each core"),
            ({}, "one for each core"),
        ],
    )
    def test_threads(
        self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], text: str
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert text in values(backends())["threads"]

    @pytest.mark.parametrize(
        ("name", "value", "remedy"),
        [("THREADS", "some", "whole number of at least 1"), ("ROUNDING", "up", "correct or fast")],
    )
    def test_a_variable_that_means_nothing(
        self, monkeypatch: pytest.MonkeyPatch, name: str, value: str, remedy: str
    ) -> None:
        monkeypatch.setenv(f"TRUENORM_{name}", value)
        (problem,) = backends().problems
        assert problem.value == f"TRUENORM_{name} is {value!r}"
        assert problem.remedy.startswith(f"unset TRUENORM_{name}")
        assert remedy in problem.remedy

    def test_a_mode_for_every_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRUENORM_ROUNDING", "fast")
        assert values(backends())["rounding"] == "fast in every call, by TRUENORM_ROUNDING"


class TestProcessor:
    def test_as_it_should_be(self) -> None:
        section = processor()
        assert section.problems == []
        found = values(section)
        assert found["subnormal results"] == found["subnormal operands"] == "kept"
        assert found["rounding mode"] == "to nearest"
        simd = np.show_config(mode="dicts")["SIMD Extensions"]
        for name in simd["found"]:
            assert name in found["features"]

    @pytest.mark.skipif(
        not (GLIBC and platform.machine() == "x86_64"), reason="sets the register as glibc does"
    )
    @pytest.mark.parametrize(
        ("mask", "name", "value"),
        [
            (FLUSH_TO_ZERO, "subnormal results", "flushed to zero"),
            (DENORMALS_ARE_ZERO, "subnormal operands", "taken as zero"),
            (ROUND_DOWN, "rounding mode", "down"),
            (ROUND_UP, "rounding mode", "up"),
            (ROUND_TO_ZERO, "rounding mode", "toward zero"),
        ],
    )
    def test_as_it_should_not_be(
        self, monkeypatch: pytest.MonkeyPatch, mask: int, name: str, value: str
    ) -> None:
        def fail(*_: object) -> Section:
            raise AssertionError("nothing can be tested in this state")

        monkeypatch.setattr(examination, "self_test", fail)
        with control_bits(mask):
            diagnosis = examine()
        assert [(line.name, line.value) for line in diagnosis.problems] == [(name, value)]
        undo = "FE_TONEAREST" if name == "rounding mode" else "torch.set_flush_denormal(False)"
        assert undo in diagnosis.problems[0].remedy
        assert diagnosis.sections[-1] is UNTESTED


class TestKeptKernels:
    def test_without_a_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dispatch, "backends", lambda: ONLY_REFERENCE)
        section = kept_kernels()
        assert "no backend that compiles" in values(section)["kept in"]
        assert section.problems == []

    def test_a_folder_of_ours(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        compiling = pytest.importorskip("truenorm.kernels.fused.compiling")
        place = tmp_path / "cache"
        for version, size in ((compiling.IMPORTED, 1_000_000), ("kernels-0123456789abcdef", 5000)):
            (place / version).mkdir(parents=True, mode=0o700)
            (place / version / "kernel").write_bytes(bytes(size))
        place.chmod(0o700)
        monkeypatch.setenv("TRUENORM_CACHE_DIR", str(place))
        monkeypatch.setenv("HOME", str(tmp_path))
        section = kept_kernels()
        assert section.problems == []
        assert values(section) == {
            "kept in": f"~{os.sep}cache (writable)",
            "for this version": "1 functions, 1.0 MB",
            "for all versions": "2 functions, 1.0 MB",
        }
        assert not [path for path in place.rglob("*") if PROBE in path.name]

    @pytest.mark.skipif(sys.platform == "win32", reason="there, owner and mode say nothing")
    def test_a_folder_that_others_can_write_to(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        pytest.importorskip("numba")
        tmp_path.chmod(0o777)
        monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path))
        (problem,) = kept_kernels().problems
        assert problem.value == "no folder can be written to"
        assert problem.remedy == NOT_KEPT
        assert list(tmp_path.iterdir()) == []
