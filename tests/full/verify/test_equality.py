"""Two subjects are compared bit by bit: a planted difference is found, and nothing else."""

import io
import json
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rich.console import Console

import truenorm.verify as tv
from shared.cli.recording import run
from shared.verify.fake_report import wide
from shared.verify.quantized.kernels import Kernel, quantized_norm
from shared.verify.workers import kernels
from truenorm.verify import equality, suite
from truenorm.verify.calls import Call
from truenorm.verify.equality import output_difference, ulp_distances
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.report.terminal import describe_difference, equality_conclusion, show_equality
from truenorm.verify.running.records import GaveUpError, Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import FORMATS, Array


@cache
def example() -> Case:
    return tv.case("float32-normal-4x17")


def right() -> Array:
    value = expected(example()).values["y"]
    assert value is not None
    return value.copy()


def difference_of(case: tv.Case, output: str, one: Array, other: Array) -> tv.Difference:
    difference = output_difference(case, output, one, other)
    assert difference is not None
    return difference


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
def test_distances_in_ulp(dtype: str) -> None:
    kind = np.dtype(dtype)
    tiny = np.array([1], f"u{kind.itemsize}").view(dtype)[0]
    ulp = 2.0 ** (1 - FORMATS[kind.name].precision)
    ones = np.ones(7, dtype)
    second = np.array([1, 1 + ulp, 1 - ulp / 2, -1, np.inf, np.nan, 1], dtype)
    apart = ulp_distances(ones, second)
    assert apart.tolist() == [0, 1, 0.5, 2 / ulp, np.inf, np.inf, 0]
    zeros = np.array([0.0, 0.0, tiny], dtype)
    assert ulp_distances(zeros, np.array([-0.0, tiny, -tiny], dtype)).tolist() == [0, 1, 2]
    assert ulp_distances(second[4:6], second[4:6]).tolist() == [0, 0]
    largest = np.array([2.0 ** (FORMATS[kind.name].limit - 1)], dtype)
    assert ulp_distances(largest, -largest).tolist() == [2 / ulp]


def test_equal_bits_and_two_nans() -> None:
    one, other = right(), right()
    assert output_difference(example(), "y", one, other) is None
    one[0, 0], other[0, 0] = np.nan, -np.float32(np.nan)
    assert one.tobytes() != other.tobytes()
    assert output_difference(example(), "y", one, other) is None


def test_zeros_of_both_signs() -> None:
    one, other = right(), right()
    one[1, 2], other[1, 2] = 0.0, -0.0
    difference = difference_of(example(), "y", one, other)
    assert (difference.elements, difference.ulp, difference.at) == (1, 0.0, (1, 2))
    assert (difference.first_nearer, difference.second_nearer) == (0, 0)


def test_location_size_and_nearer_subject() -> None:
    one, other = right(), right()
    one[2, 5] = np.nextafter(one[2, 5], np.float32(np.inf))
    other[3, 1] *= np.float32(1.5)
    other[0, 0] = np.nan
    difference = difference_of(example(), "y", one, other)
    assert (difference.elements, difference.total, difference.judged) == (3, one.size, 3)
    assert (difference.ulp, difference.at) == (np.inf, (0, 0))
    assert difference.first == difference.exact == right()[0, 0]
    assert np.isnan(difference.second)
    # The second is right where the first is off by an ulp; the first where the second is far off.
    assert (difference.first_nearer, difference.second_nearer) == (2, 1)
    assert 0.5 <= difference.first_ulp <= 1.5
    assert difference.second_ulp == np.inf


def test_nan_is_nearer_to_nan() -> None:
    case = tv.case("float32-nan-in-x")
    exact = expected(case).values["y"]
    assert exact is not None
    at = tuple(map(int, np.argwhere(np.isnan(exact))[0]))
    other = exact.copy()
    other[at] = 0.0
    difference = difference_of(case, "y", exact, other)
    assert (difference.at, difference.ulp) == (at, np.inf)
    assert (difference.first_nearer, difference.second_nearer) == (1, 0)


def test_shapes_and_types() -> None:
    for other, words in (
        (right()[:1], "y is float32 of shape (4, 17) from the first, float32 of shape (1, 17)"),
        (right().astype(np.float64), "y is float32 of shape (4, 17) from the first, float64"),
    ):
        difference = difference_of(example(), "y", right(), other)
        assert difference.words.startswith(words)
    whole = np.arange(68).reshape(4, 17)
    assert output_difference(example(), "y", whole, whole) is None
    difference = difference_of(example(), "y", whole, whole + 1)
    assert difference.words.startswith("y is int64 of shape (4, 17) from both, which is wrong")
    flat = right()[0, :5]
    assert output_difference(example(), "y", flat, flat.copy()) is None
    difference = difference_of(example(), "y", flat, flat + 1)
    assert difference.words.startswith("y is float32 of shape (5,) from both, which is wrong")


def test_gradient_of_an_absent_parameter() -> None:
    case, *_ = (each for each in tv.cases("float32", also=["no-gamma"]) if each.gamma is None)
    one = np.ones(case.shape[1], np.float32)
    assert output_difference(case, "dgamma", one, one) is None
    difference = difference_of(case, "dgamma", one, 2 * one)
    assert "which is wrong" in difference.words


def test_large_case_is_compared_in_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equality, "EXACT_ELEMENTS", 2 * 16)
    case = tv.case_of_shape((8, 16))
    exact = {name: value for name, value in expected(case).values.items() if value is not None}
    other = exact["y"] * np.float32(1.5)
    other[6, 3] *= -1
    difference = difference_of(case, "y", exact["y"], other)
    assert (difference.elements, difference.judged, difference.first_nearer) == (128, 32, 32)
    assert (difference.at, difference.exact) == ((6, 3), exact["y"][6, 3])
    difference = difference_of(case, "dgamma", exact["dgamma"], exact["dgamma"] + 1)
    assert (difference.elements, difference.total, difference.judged) == (16, 16, 0)
    assert difference.exact is None
    assert len(difference.at) == 1


WIDE = tv.Subject(wide, name="wide")
NAMES = ("float32-normal-4x17", "float32-normal-4x64", "float32-nan-in-x")


def some_cases() -> list[tv.Case]:
    return [tv.case(name) for name in NAMES]


def shown(equality: tv.Equality) -> str:
    stream = io.StringIO()
    show_equality(equality, Console(file=stream, width=100, highlight=False))
    return stream.getvalue()


def planted(change: Any) -> tv.Subject:
    """Return the same kernel with a change of y."""

    def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        y = wide(x, gamma, beta, eps)
        changed: Array = change(y)
        return changed

    return tv.Subject(forward, name="planted [bold]")


def one_bit_at_64(y: Array) -> Array:
    if y.shape[1] == 64:
        y[3, 7] = np.nextafter(y[3, 7], np.float32(np.inf))
    return y


def test_equal_subjects() -> None:
    equality = tv.compare(WIDE, planted(lambda y: y), cases=some_cases())
    assert equality.passed
    assert [(each.cases, each.cases_that_differ) for each in equality.summaries] == [(3, 0)]
    assert equality_conclusion(equality) == "All bits are equal."
    assert "PASS: All bits are equal." in shown(equality)


def test_one_bit_differs() -> None:
    equality = tv.compare(WIDE, planted(one_bit_at_64), cases=some_cases())
    assert not equality.passed
    (difference,) = equality.differences
    assert difference.case == "float32-normal-4x64"
    assert (difference.output, difference.at) == ("y", (3, 7))
    assert (difference.elements, difference.total, difference.ulp) == (1, 256, 1.0)
    assert (difference.first_nearer, difference.second_nearer) == (1, 0)
    (summary,) = equality.summaries
    assert (summary.cases, summary.cases_that_differ, summary.elements) == (3, 1, 1)
    assert summary.worst_case == "float32-normal-4x64"
    assert equality_conclusion(equality) == "Bits differ in 1 of 3 cases: y in float32."
    assert "1.0 ulp apart; the exact answer is" in describe_difference(difference)
    text = shown(equality)
    assert "planted [bold] (second)" in text
    assert "the first is nearer in 1, the second in 0" in " ".join(text.split())


def raises_at_17(y: Array) -> Array:
    if y.shape == (4, 17):
        raise ValueError("no such width")
    return y


def test_subjects_that_fail() -> None:
    equality = tv.compare(WIDE, planted(raises_at_17), cases=some_cases())
    assert [each.words for each in equality.differences] == [
        "the second raised ValueError: no such width, the other returned"
    ]
    assert "the second raised ValueError" in shown(equality)
    both = tv.compare(planted(raises_at_17), planted(raises_at_17), cases=some_cases())
    assert (both.passed, both.cases, both.failed) == (True, 2, 1)
    assert equality_conclusion(both) == "All bits are equal. Neither returned in 1 case."
    never = tv.Subject(lambda *_: 1 / 0)
    none = tv.compare(never, never, cases=some_cases()[2:])
    assert not none.passed
    assert equality_conclusion(none).startswith("Nothing could be compared")


def test_skipped_cases_do_not_pass() -> None:
    class GivesUp(InProcess):
        def run(self, case: tv.Case, call: Call) -> Record:
            if case.family != "normal":
                raise GaveUpError
            return super().run(case, call)

    report = equality.compare_runners(InProcess(WIDE), GivesUp(WIDE), some_cases())
    assert (report.passed, report.cases, report.not_run) == (False, 2, 1)
    assert "1 case did not run: one crashed or hung too often" in equality_conclusion(report)
    assert "FAIL" in shown(report)


def test_gradients_of_both_subjects() -> None:
    def forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Array]:
        return wide(x, gamma, beta, eps), gamma

    def backward(dy: Array, gamma: Array) -> tuple[Array | None, Array, Array]:
        return dy * gamma, dy.sum(axis=0), dy.sum(axis=0)

    def another(dy: Array, _: Array) -> tuple[Array | None, Array, Array]:
        return None, dy[::-1].sum(axis=0), dy.sum(axis=0)

    one, other = tv.Subject(forward, backward), tv.Subject(forward, another)
    equality = tv.compare(one, other, cases=some_cases()[:1])
    assert {each.output for each in equality.differences} == {"dx", "dgamma"}
    assert equality.differences[0].words == "dx is None from the second only"
    assert [each.output for each in tv.compare(one, WIDE, cases=some_cases()[:1]).summaries] == [
        "y"
    ]


def test_non_finite_difference() -> None:
    equality = tv.compare(WIDE, planted(lambda y: y * np.float32(np.nan)), cases=some_cases()[:1])
    text = describe_difference(equality.differences[0])
    assert "nan from the second; the exact answer is" in text
    assert "inf" not in text


def test_subjects_without_common_cases() -> None:
    rms = tv.Subject(wide, name="other", operation=tv.RMS_NORM)
    with pytest.raises(ValueError, match="wide is layer_norm, other is rms_norm"):
        tv.compare(WIDE, rms)
    half = tv.Subject(wide, name="half", dtypes=["float16"])
    with pytest.raises(ValueError, match="wide and half have no type in common"):
        tv.compare(WIDE, half)


def test_common_domain_and_extensions() -> None:
    bounded = tv.Subject(wide, domain=tv.Domain(largest=0.5))
    assert tv.compare(WIDE, bounded, cases=some_cases()[:2]).left_out == 2
    ranks = tv.Subject(wide, also=["ranks"])
    assert equality.common_cases(ranks, WIDE, "quick") == suite.cases("float32")


def test_codes_of_quantized_norms() -> None:
    """The codes of NaN are equal as well."""
    norm = quantized_norm("rms_norm,quant=e4m3fn")
    one, other = Kernel(norm).subject(), Kernel(norm, via="direct").subject()
    assert tv.compare(one, Kernel(norm).subject()).passed
    equality = tv.compare(one, other)
    assert not equality.passed
    worst = equality.differences[0]
    assert 0 < worst.elements < worst.total / 20
    assert worst.words == f"{worst.elements} of {worst.total} codes differ"


@pytest.mark.slow(reason="two full verdicts in processes")
def test_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each subject runs in its own process; user cases are compared as well."""
    few = [tv.case("float32-normal-4x17")]
    monkeypatch.setattr(equality, "cases_of", lambda *_, **__: few)
    one, two = f"{kernels.__file__}:right", f"{kernels.__file__}:odd_width"
    done = run("compare", one, two, "--shape", "4x8")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "All bits are equal." in done.stdout
    done = run("compare", one, two, "--shape", "4x8", "--shape", "4x11", "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert (report["passed"], report["first"]) == (False, "two passes")
    assert [each["case"] for each in report["differences"]] == ["float32-own-4x11"]
