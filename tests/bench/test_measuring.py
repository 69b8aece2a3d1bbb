"""A whole run, on little arrays, and what it refuses."""

import os
import platform
from pathlib import Path

import pytest

from truenorm.bench import machine, measure, measuring, shape_of
from truenorm.bench.measuring import label


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to be compiled for these."""
    monkeypatch.setenv("TRUENORM_BACKEND", "reference")


def test_every_shape_direction_and_contestant() -> None:
    told: list[tuple[int, int, str]] = []
    report = measure([(3, 8), (5,)], rounds=2, progress=lambda *step: told.append(step))
    assert report.shapes == [(3, 8), (5,)]
    assert len(report.figures) == 2 * 2 * 5
    for figure in report.figures:
        assert figure.seconds > 0
        assert figure.first_call > 0
        assert (figure.times_floor == 1) == (figure.contestant in ("copy", "triad"))
    assert (report.backend, report.threads, report.rounds) == ("reference", 1, 2)
    assert [done for done, _, _ in told] == [0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8]
    assert {total for _, total, _ in told} == {8}
    assert (told[0][2], told[-1][2]) == ("3x8 forward", "5 backward")


def test_float64_has_no_wider_textbook() -> None:
    report = measure([(2, 4)], dtype="float64", rounds=1)
    assert len(report.figures) == 2 * 4
    assert "itself for this type" in report.notes[0]


def test_bfloat16_says_what_numpy_does() -> None:
    assert "float32" in measure([(2, 4)], dtype="bfloat16", rounds=1).notes[0]


@pytest.mark.parametrize("text", ["", "x", "3x", "2x-1", "2x0x3", "2*3", "1.5", "2x 3"])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(ValueError, match="such as 2x128x1024"):
        shape_of(text)


def test_shapes_are_written_as_they_are_read() -> None:
    for shape in measuring.DEFAULT_SHAPES:
        assert shape_of(label(shape)) == shape
    assert shape_of("4X5") == (4, 5)


def test_too_large_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(ValueError, match="1000000x1000000 has 1,000,000,000,000 elements"):
        measure([(10**6, 10**6)])


def test_nothing_to_do() -> None:
    with pytest.raises(ValueError, match="no shape"):
        measure([])
    with pytest.raises(ValueError, match="rounds is 0"):
        measure([(2, 2)], rounds=0)


def test_unknown_type() -> None:
    with pytest.raises(ValueError, match="float8"):
        measure([(2, 2)], dtype="float8")


def test_a_variable_that_would_make_both_modes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUENORM_ROUNDING", "fast")
    with pytest.raises(ValueError, match="unset it"):
        measure([(2, 2)])


def test_a_variable_that_overrides_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUENORM_THREADS", "1")
    with pytest.raises(ValueError, match="TRUENORM_THREADS is set"):
        measure([(2, 2)], threads=2)
    assert measure([(2, 2)], threads=1, rounds=1).threads == 1


def test_where_it_ran() -> None:
    found = machine.where()
    assert list(found)[:3] == ["date", "cpu", "cores"]
    assert found["python"] == platform.python_version()
    assert all(found.values())


def test_a_system_that_says_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError

    monkeypatch.setattr(machine, "CPUS", tmp_path / "none")
    monkeypatch.setattr(os, "getloadavg", refuse)
    monkeypatch.setattr(platform, "processor", lambda: "")
    found = machine.where()
    assert found["cpu"] == platform.machine()
    assert "load" not in found


def test_the_name_of_the_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Abacus: 3\nprocessor\t: 1\n")
    monkeypatch.setattr(machine, "CPUS", tmp_path / "cpuinfo")
    assert machine.where()["cpu"] == "Abacus: 3"


def test_a_core_that_is_not_for_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3}, raising=False)
    assert machine.where()["cores"] == "2 of 8"
