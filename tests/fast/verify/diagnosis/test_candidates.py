"""What rules a hypothesis out: another one that is as close, and control cases."""

import sys
from collections.abc import Callable

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.causes import Cause
from truenorm.verify.diagnosis.accuracy import (
    Candidate,
    Diagnosis,
    best,
    candidates,
    kinds_of_sums,
    with_common_causes,
)
from truenorm.verify.diagnosis.matches import Evidence, Match
from truenorm.verify.distinctions import distinguishing_size
from truenorm.verify.norms.quantized.causes import BY_RIGHT_SCALES, Fit, most_likely
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.types import Float64s


def candidate(name: str, value: float, distance: float, lacks: int = 0) -> Candidate:
    """Return a candidate whose three elements are equal, with a tolerance of 1.

    Of the results, it lacks the bits of some.
    """
    values, tolerance, same = np.full(3, value), np.ones(3), np.arange(9) >= lacks
    match = Match(
        *(values, tolerance, True, True, True),
        telling=3,
        distance=distance,
        contrast=9.0,
        ulp=1.0,
        same=same,
    )
    return Candidate(Cause(name, f"{name} is wrong"), {"a case": match})


@pytest.mark.parametrize(("value", "distance", "lacks", "named"), [
    (12.0, 0.1, 0, []),  # another value, as close
    (12.0, 0.1, 9, []),
    (12.0, 0.19, 0, []),  # within a factor of two
    (12.0, 0.21, 0, ["first"]),
    (10.5, 0.1, 0, ["first", "second"]),  # equal within the tolerance
    (10.5, 0.1, 7, ["first", "second"]),
    (10.5, 0.1, 8, ["first"]),  # without the bits of results that the first has
])  # fmt: skip
def test_no_hypothesis_is_named_beside_one_that_is_as_close(
    value: float, distance: float, lacks: int, named: list[str]
) -> None:
    second = candidate("second", value, distance, lacks)
    chosen = best(iter([candidate("first", 10.0, 0.1), second]))
    assert [each.cause.id for each in chosen] == named


ONE, ANOTHER = Cause("one", ""), Cause("another", "")


@pytest.mark.parametrize(("other", "wrong", "wrong_of_other", "named"), [
    (ANOTHER, 0, 8, (ONE,)),
    (ANOTHER, 0, 7, (ONE, ANOTHER)),  # too few elements differ
    (ANOTHER, 7, 0, (ONE, ANOTHER)),
    (ANOTHER, 4, 4, ()),  # the results are those of neither
    (BY_RIGHT_SCALES, 0, 7, (BY_RIGHT_SCALES,)),
])  # fmt: skip
def test_bits_distinguish_causes_of_codes(
    other: Cause, wrong: int, wrong_of_other: int, named: tuple[Cause, ...]
) -> None:
    places, decided = np.arange(100_000), np.ones(100_000, bool)
    fits = (places >= wrong, (places < wrong) | (places >= wrong + wrong_of_other))
    every = zip((ONE, other), (1 - wrong / 1e5, 1 - wrong_of_other / 1e5), fits, strict=True)
    chosen = most_likely(
        [Fit(each, share, np.array([fit, decided])) for each, share, fit in every]
    )
    assert chosen == named


def test_outputs_and_types_have_one_cause() -> None:
    """Of hypotheses that explain a result alike, that of most results is named."""
    one, other, third = (
        candidate(name, value, 0.1) for name, value in (("eps", 10.0), ("x", 10.2), ("y", 9.8))
    )
    checks = [("ordinary", "float32", "y"), ("growth", "float32", "dx")]
    checks += [("ordinary", "bfloat16", name) for name in ("y", "dx")]
    diagnoses = {
        checks[0]: Diagnosis((), 9, output="y").naming([one]),
        checks[1]: Diagnosis((Cause("overflow", "an overflow"),), 9),
        checks[2]: Diagnosis((), 9, output="y").naming([third, other, one]),
        checks[3]: Diagnosis((), 9, output="dx", where="D is 7").naming([other]),
    }
    assert diagnoses[checks[2]].words() == (
        "y is wrong, or x is wrong, or eps is wrong (matches y within 1 ulp)"
    )
    named = [each.words() for each in with_common_causes(diagnoses).values()]
    assert named == [
        "eps is wrong (matches y within 1 ulp)",
        "an overflow",
        "x is wrong, or eps is wrong (matches y within 1 ulp)",
        "where D is 7, x is wrong (matches dx within 1 ulp; dx is right in other ordinary cases)",
    ]


def test_a_computation_is_named_once() -> None:
    first, second = (candidate(name, 10.0, 0.1) for name in ("means", "r"))
    alone, beside = (
        Diagnosis((), 9, output="y").naming(chosen) for chosen in ([second, first], [first])
    )
    assert alone.ids == ("r",)
    shared = with_common_causes({("a", "b", "y"): alone, ("a", "b", "dx"): beside})
    assert {each.ids for each in shared.values()} == {("means",)}


@pytest.mark.parametrize(("control", "remains"), [
    (None, True),
    ("float32-no-beta-6x67", True),  # without beta, the hypothesis is right as well
    ("float32-normal-4x64", False),
])  # fmt: skip
def test_a_control_case_rules_out_a_hypothesis_that_differs(
    control: str | None, remains: bool
) -> None:
    without_beta = tv.LAYER_NORM.knowledge.hypotheses("y")[Cause("no-term(beta)", "")]
    evidence = [
        Evidence(case, "y", without_beta(case).astype(np.float32), correct=False)
        for case in map(tv.case, ("float32-normal-4x12", "float32-normal-4x17"))
    ]
    if control:
        case = tv.case(control)
        right = expected(case).values["y"]
        assert right is not None
        evidence.append(Evidence(case, "y", right, correct=True))
    found = candidates([(Cause("no-term(beta)", ""), without_beta)], evidence)
    assert [each.cause.id for each in found] == ["no-term(beta)"] * remains


def test_sizes_in_words() -> None:
    by_size = {case.shape[1]: case for case in tv.cases("float32") if case.family == "normal"}

    def described(wrong: Callable[[int], bool]) -> str:
        return distinguishing_size(
            [case for size, case in by_size.items() if wrong(size)],
            [case for size, case in by_size.items() if not wrong(size)],
        )

    assert described(lambda size: size == 12) == "D is 12"
    assert described(lambda size: 1024 <= size <= 4096) == "D is from 1024 to 4096"
    assert described(lambda size: size >= 3072) == "D is 3072 or more"
    assert described(lambda size: size % 64 == 0) == "D is a multiple of 64"
    both = "D is 12 and the number of rows is 4"
    assert distinguishing_size([by_size[12]], [by_size[1025]]) == both
    right = [by_size[12]]
    for wrong in (right, [*right, by_size[17]]):
        assert not distinguishing_size(wrong, right)


def test_a_hypothesis_may_say_nothing_of_a_failing_case() -> None:
    """It is NaN in a case whose sums it cannot compute."""
    cases = [tv.case(f"float32-normal-4x{size}") for size in (12, 17, 64)]

    def doubled(case: Case) -> Float64s:
        return (np.nan if case is cases[2] else 2.0) * expected(case).wide["y"]

    evidence = [
        Evidence(case, "y", (2.0 * expected(case).wide["y"]).astype(np.float32), correct=False)
        for case in cases
    ]
    (found,) = candidates([(Cause("doubled", ""), doubled)], evidence)
    assert found.shares.keys() == {case.name for case in cases[:2]}


def test_sums_are_tried_in_types_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "bfloat16" in kinds_of_sums("float32")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert kinds_of_sums("float32") == ["float32", "float16"]
