"""Shapes of one's own: what is right passes, and one wrong row of many is found."""

import tracemalloc
from itertools import product

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify import oracle as answering
from truenorm.verify.enclosures import row_blocks
from truenorm.verify.grading import user_cases as measuring
from truenorm.verify.grading.user_cases import sampled_rows
from truenorm.verify.operation import Case
from truenorm.verify.operations import parse_operation
from truenorm.verify.types import FORMATS, Array, Float64s, unit_roundoff
from truenorm.verify.user_cases import parse_shape
from verify.own.kernels import subject

OPERATIONS = (
    *("layer_norm", "rms_norm", "add_layer_norm", "rms_norm,gain=zero-centred,beta=true"),
    "add_rms_norm,parameters=float32",
)


@pytest.mark.parametrize("dtype", [each for each in FORMATS if each != "float64"])
@pytest.mark.parametrize("words", OPERATIONS)
def test_float64_inside_is_faithful(words: str, dtype: str) -> None:
    operation = parse_operation(words)
    case = tv.case_of_shape((3, 50, 67), dtype, operation=operation)
    assert case.shape == (150, 67)
    tv.check(subject(operation, dtype), case, require="faithful")


def test_float64_is_stable_by_float64() -> None:
    tv.check(subject(dtype="float64"), tv.case_of_shape((50, 300), "float64"))


@pytest.mark.parametrize(
    ("output", "dtype"),
    [
        # The gate has each output and each type.
        pytest.param(*each, marks=() if "float32" in each or "dx" in each else pytest.mark.slow)
        for each in product(("y", "dx", "dgamma", "dbeta"), FORMATS)
    ],
)
def test_one_element_of_a_late_row_is_found(output: str, dtype: str) -> None:
    """Off by some tolerances, in a row that integers are not asked for."""
    case = tv.case_of_shape((1000, 130), dtype)
    row = 997
    assert row not in sampled_rows(case)
    at = (row, 7) if output in ("y", "dx") else (7,)

    off = (200 if output in ("y", "dx") else 50_000) * unit_roundoff(dtype)

    def change(found: dict[str, Array]) -> None:
        if output in found:
            before = found[output][at].astype(np.float64)
            found[output][at] = before * (1 + off) + off
            assert found[output][at] != before

    tv.check(subject(dtype=dtype), case)
    with pytest.raises(AssertionError, match=rf"{dtype}-own-1000x130 .*: {output}\[{at[0]}"):
        tv.check(subject(dtype=dtype, change=change), case)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_what_is_no_number_is_found(value: float) -> None:
    def change(found: dict[str, Array]) -> None:
        if "dx" in found:
            found["dx"][-1, 3] = value

    with pytest.raises(AssertionError, match=r"dx\[599, 3\] is "):
        tv.check(subject(change=change), tv.case_of_shape((600, 64)))


@pytest.mark.slow
def test_one_ulp_is_not_correct_anywhere() -> None:
    """Bounds tell a rounding from its neighbour; beside a tie alone they do not."""
    case = tv.case_of_shape((300, 130))
    row = 201
    right = subject(dtype="float32")

    def change(found: dict[str, Array]) -> None:
        if "y" in found:
            found["y"][row, 5] = np.nextafter(found["y"][row, 5], np.float32(np.inf))

    assert row not in sampled_rows(case)
    with pytest.raises(AssertionError, match="y is off by "):
        tv.check(subject(change=change), case, require="correct")
    report = tv.verify(right, own=[case])
    mine = [each for each in report.results if each.family == "own"]
    assert {each.output: each.correct for each in mine} == dict.fromkeys(
        ("y", "dx", "dgamma", "dbeta"), True
    )
    assert all(each.ulp <= 0.5 for each in mine)


def test_too_large_for_the_type_is_infinite() -> None:
    gamma = np.full(64, 60000.0, np.float16)
    rows = np.random.default_rng(0).normal(size=(9, 64)).astype(np.float16)
    case = tv.case_from({"x": rows, "gamma": gamma})
    tv.check(subject(dtype="float16"), case)

    def change(found: dict[str, Array]) -> None:
        if "y" in found:
            np.clip(found["y"], -65504, 65504, out=found["y"])

    with pytest.raises(AssertionError, match=r"is -?65504\.0, the exact answer -?inf"):
        tv.check(subject(dtype="float16", change=change), case)


def test_growth_is_told_from_a_mistake() -> None:
    """A mean that is rounded once is conditional, on one's own data as on the judge's."""
    rows = np.random.default_rng(0).normal(size=(40, 128)) + 1e4
    case = tv.case_from({"x": rows.astype(np.float32)})

    def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        c = x - x.mean(axis=1, keepdims=True)
        return np.asarray(
            gamma * c / np.sqrt((c * c).mean(axis=1, keepdims=True) + np.float32(eps)) + beta
        )

    with pytest.raises(AssertionError, match="off by"):
        tv.check(tv.Subject(forward), case)
    tv.check(tv.Subject(forward), case, require="conditional")


def test_other_bits_another_shape_and_another_type_are_found() -> None:
    case = tv.case_of_shape((40, 64))
    calls = iter(range(9))

    def unsteady(found: dict[str, Array]) -> None:
        if "y" in found:
            found["y"][0, 0] = np.nextafter(found["y"][0, 0], np.float32(next(calls) % 2 * 9 - 4))

    def short(found: dict[str, Array]) -> None:
        found["dx"] = found["dx"][:-1] if "dx" in found else np.empty(0)

    def wide(found: dict[str, Array]) -> None:
        found.update({name: array.astype(np.float64) for name, array in found.items()})

    for change, said in (
        (unsteady, "y has different bits when the call is repeated"),
        (short, r"dx is shape \(39, 64\); it should have the shape \(40, 64\)"),
        (wide, "y is float64; it should be float32"),
    ):
        with pytest.raises(AssertionError, match=said):
            tv.check(subject(change=change), case)


@pytest.mark.slow
def test_a_report_with_a_shape_and_its_reproducer() -> None:
    def change(found: dict[str, Array]) -> None:
        if "y" in found and len(found["y"]) == 2000:
            found["y"][-1] *= np.float32(1.001)

    told: list[str] = []
    report = tv.verify(
        subject(change=change),
        own=[tv.case_of_shape((2000, 66))],
        progress=lambda _, __, what: told.append(what),
    )
    (finding,) = report.findings
    assert finding.case == "float32-own-2000x66"
    assert finding.why == "your shape, 2000x66"
    assert finding.symptom.startswith("y[1999, ")
    assert "case = tv.case_of_shape((2000, 66), 'float32')\n" in finding.reproducer
    assert {each.output: each.grade for each in report.grades}["y"] == "wrong"
    assert "float32-own-2000x66: row 1,984 of 2,000" in told
    scope = {"subject": None}
    script = finding.reproducer.replace("subject = ...", "pass").replace("# your", "# ")
    scope["subject"] = subject(change=change)  # type: ignore[assignment]
    with pytest.raises(AssertionError, match="got "):
        exec(script, scope)  # what a reader would paste


def test_beyond_the_domain_it_is_left_out() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 64)) + 1e3
    case = tv.case_from({"x": rows.astype(np.float32)})
    for domain, out in (
        (tv.Domain(kappa=10), True),
        (tv.Domain(largest=100), True),
        (tv.Domain(largest=1e4, kappa=1e4), False),
    ):
        claimed = tv.Subject(lambda x, *_: x, domain=domain)
        report = tv.verify(claimed, own=[case])
        assert any(each.family == "own" for each in report.results) != out


@pytest.mark.parametrize(
    "shape", [(700, 512), pytest.param((2, 2**15 + 5), marks=pytest.mark.slow)]
)
def test_no_exact_answer_is_larger_than_a_row(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And few rows have one; beside inputs and results, memory does not grow with the rows."""
    asked: list[tuple[int, int]] = []

    def counting(case: Case) -> dict[str, Float64s]:
        asked.append(case.shape)
        return answering.compute_exact(case)

    monkeypatch.setattr(measuring, "compute_exact", counting)
    monkeypatch.setattr(measuring, "load_or_compute", lambda case, compute: compute(case))
    case = tv.case_of_shape(shape)
    assert max((part.stop - part.start) * shape[1] for part in row_blocks(case)) <= max(
        2**15, shape[1]
    )
    monkeypatch.setattr(measuring, "sampled_rows", lambda case: [0, case.shape[0] - 1])
    tv.check(subject(), case)
    assert asked == [(1, shape[1])] * 2


def test_memory_beside_results_does_not_grow_with_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "sampled_rows", lambda _: [])
    peaks = []
    for rows in (500, 4000):
        case = tv.case_of_shape((rows, 128))
        results = {"y": case.x, "dx": case.dy, "dgamma": case.gamma, "dbeta": case.beta}
        tracemalloc.start()
        measuring._measure_all(case, results, lambda _: None)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 100 * 2**15 * 8  # some arrays of what is looked at at once


@pytest.mark.parametrize("text", ["4096", "8x16x32"])
def test_shapes_are_read(text: str) -> None:
    assert "x".join(map(str, parse_shape(text))) == text


@pytest.mark.parametrize("text", ["", "x", "4x", "0x5", "-3x4", "4*5", "4x5.0"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 4096x5120"):
        parse_shape(text)
