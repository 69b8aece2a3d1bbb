"""Each hypothesis is named for a kernel that does just that, and none for another kernel."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import truenorm.verify as tv
from shared.choosing import few
from truenorm.verify.diagnosis.accuracy import MIN_CASES, MIN_ELEMENTS, Diagnosis, diagnose
from truenorm.verify.diagnosis.matches import Evidence
from truenorm.verify.grading.symptoms import UNEXPLAINED, measure
from truenorm.verify.norms.steps import Steps
from truenorm.verify.operation import Case, Operation
from truenorm.verify.oracle import expected
from truenorm.verify.types import Float64s, dtype_of, unit_roundoff

MINUTES = "all hypotheses of all types take minutes"
SLOW = pytest.mark.slow(reason=MINUTES)

SMALL = 2**12
Kernel = Callable[[Case], Float64s]
ADD_RMS_NORM = tv.norm("add_rms_norm")


def evidence_of(operation: Operation, dtype: str, output: str, kernel: Kernel) -> list[Evidence]:
    """Return the results of a kernel with a float32 rounding error in each element."""
    random = np.random.default_rng(17)
    unit = min(2.0**-24, unit_roundoff(dtype))
    evidence = []
    for case in tv.cases(dtype, operation=operation):
        if case.kind != "ordinary" or case.x.size > SMALL:
            continue
        exact = expected(case)
        with np.errstate(all="ignore"):
            noise = 1 + unit * random.uniform(-1, 1, exact.wide[output].shape)
            result = (kernel(case) * noise).astype(dtype_of(exact.types[output]))
        correct = measure(exact, output, result).needs < UNEXPLAINED
        evidence.append(Evidence(case, output, result, correct))
    return evidence


def shows_a_bug(case: Case, output: str, kernel: Kernel) -> bool:
    """Return True if several elements are off by more than is allowed, before they are rounded."""
    exact = expected(case)
    with np.errstate(all="ignore"):
        right = np.abs(kernel(case) - exact.wide[output]) <= exact.allowed(output)
    return int((~right).sum()) >= MIN_ELEMENTS


def diagnosed(operation: Operation, dtype: str, output: str, kernel: Kernel) -> Diagnosis:
    evidence = evidence_of(operation, dtype, output, kernel)
    return diagnose(evidence, operation.knowledge.hypotheses(output), by_size=True)


PLACES = [
    *((tv.LAYER_NORM, "float32", output) for output in ("y", "dx", "dgamma", "dbeta")),
    *((ADD_RMS_NORM, "bfloat16", output) for output in ("y", "sum", "dx", "dgamma")),
    (tv.norm("rms_norm", gain="zero-centred"), "float16", "y"),
]
PARTS = 135
"""Of the hypotheses, of which few parts are tested: the time grows with the square of them."""
SOME_TYPES = [pytest.param("float16", marks=SLOW), "bfloat16", "float32"]


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=SLOW) for part in range(1, 15))])
@pytest.mark.parametrize(("operation", "dtype", "output"), few(PLACES, reason=MINUTES, count=2))
def test_hypotheses_are_named_for_their_own_kernels(
    operation: Operation, dtype: str, output: str, part: int, subtests: pytest.Subtests
) -> None:
    for words in list(operation.knowledge.hypotheses(output))[part::PARTS]:
        with subtests.test(words):
            assert_named(operation, dtype, output, words)


def assert_named(operation: Operation, dtype: str, output: str, words: str) -> None:
    """Check the cause, unless fewer than two of these cases show it, each in several elements."""
    hypotheses = operation.knowledge.hypotheses(output)
    evidence = evidence_of(operation, dtype, output, hypotheses[words])
    cause = diagnose(evidence, hypotheses, by_size=False).cause
    if not cause:
        shown = [
            shows_a_bug(each.case, output, hypotheses[words])
            for each in evidence
            if not each.correct
        ]
        assert sum(shown) < MIN_CASES, "it should have been named"
        return
    same = {
        other
        for other, each in hypotheses.items()
        if all(_equal(each(one.case), hypotheses[words](one.case)) for one in evidence)
    }
    assert words in same
    # The output stands for "it", and a common beginning is written once.
    endings = {each.removeprefix("eps is ").removeprefix("it ") for each in same}
    endings = {each.partition(" ")[2] if each.startswith("its ") else each for each in endings}
    if "TF32" in cause:  # named after float16, which has the same precision
        endings |= {each.replace("TF32", "float16") for each in endings}
    assert any(each.removeprefix("terms ") in cause for each in endings), cause


def _equal(one: Float64s, other: Float64s) -> bool:
    """Return True if two hypotheses are the same computation."""
    return bool(np.isclose(one, other, rtol=1e-12, atol=0.0, equal_nan=True).all())


def reversed_rows(case: Case) -> Float64s:
    return expected(case).wide["y"][:, ::-1]


def one_more(case: Case) -> Float64s:
    return expected(case).wide["y"] + 1


def noisy(case: Case) -> Float64s:
    y = expected(case).wide["y"]
    return y * (1 + 0.05 * np.random.default_rng(3).standard_normal(y.shape))


@pytest.mark.parametrize("kernel", [reversed_rows, one_more, noisy])
@pytest.mark.parametrize("dtype", SOME_TYPES)
@pytest.mark.parametrize("operation", [tv.LAYER_NORM, tv.RMS_NORM])
def test_kernel_without_a_hypothesis(operation: Operation, dtype: str, kernel: Kernel) -> None:
    diagnosis = diagnosed(operation, dtype, "y", kernel)
    assert diagnosis == Diagnosis("", len(operation.knowledge.hypotheses("y")))


@pytest.mark.parametrize(("dtype", "named"), [("bfloat16", 3500), ("float32", 3500.5)])
def test_the_limit_of_a_clamp_has_the_digits_that_the_type_can_tell(
    dtype: str, named: float
) -> None:
    clamped = partial(tv.LAYER_NORM.knowledge.error_patterns("dx").clamped["x"], 3500.5)
    cause = diagnosed(tv.LAYER_NORM, dtype, "dx", clamped).cause
    assert cause.startswith(f"x is clamped to +-{named:g} (matches dx within ")


@pytest.mark.parametrize(
    ("output", "words", "limit"),
    [("y", "x - mean", 500), ("dx", "xhat", 2), ("y", "x + residual", 9000)],
)
def test_clamped_step(output: str, words: str, limit: float) -> None:
    norm = tv.norm("add_layer_norm") if "residual" in words else tv.LAYER_NORM
    kernel = partial(norm.knowledge.error_patterns(output).clamped[words], limit)
    cause = diagnosed(norm, "float32", output, kernel).cause
    assert cause.startswith(f"{words} is clamped to +-{limit} (matches {output} within ")


def softly_limited(case: Case) -> Float64s:
    """Return the norm of 1000*tanh(x/1000), which is no clamp."""
    x = 1000 * np.tanh(case.x.astype(np.float64) / 1000)
    return Steps(case.operation, case, {"rows": lambda _: x})["y"]  # type: ignore[arg-type]


def test_a_soft_limit_is_not_called_a_clamp() -> None:
    assert "clamped" not in diagnosed(tv.RMS_NORM, "bfloat16", "y", softly_limited).cause


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("output", ["y", "dx", "dgamma", "dbeta"])
def test_right_kernel_has_no_cause(dtype: str, output: str) -> None:
    assert not diagnosed(tv.LAYER_NORM, dtype, output, lambda case: expected(case).wide[output])[0]


def test_a_large_case_among_those_of_some_sizes() -> None:
    """It is compared as well: a hypothesis that fits small cases alone is not named."""
    hypotheses = tv.LAYER_NORM.knowledge.hypotheses("y")

    def kernel(case: Case) -> Float64s:
        by_fours = hypotheses["beta is left out"](case)
        return by_fours if case.shape[1] % 4 == 0 else expected(case).wide["y"]

    small = evidence_of(tv.LAYER_NORM, "float32", "y", kernel)
    large = tv.case("float32-row-limit-65600x4")
    causes = [
        diagnose([*small, Evidence(large, "y", result, correct=False)], hypotheses, by_size=True)
        for result in (kernel(large), hypotheses["gamma is left out"](large))
    ]
    assert causes[0].cause.startswith("where D is a multiple of 4, beta is left out (matches y")
    assert not causes[1].cause


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("operation", "output", "words"),
    [
        (operation, output, words)
        for operation, output in ((tv.LAYER_NORM, "dx"), (ADD_RMS_NORM, "sum"))
        for words in operation.knowledge.hypotheses(output)
        if "read as though" in words
    ],
)
def test_misread_layout(operation: Operation, dtype: str, output: str, words: str) -> None:
    hypotheses = operation.knowledge.hypotheses(output)
    evidence = []
    for case in tv.cases(dtype, also=["strides", "padded-rows"], operation=operation):
        if case.kind == "ordinary" and case.x.size <= SMALL:
            exact = expected(case)
            result = np.asarray(hypotheses[words](case)).astype(dtype_of(exact.types[output]))
            correct = np.array_equal(result.astype(np.float64), exact.wide[output])
            evidence.append(Evidence(case, output, result, correct or case.layout == "rows"))
    cause = diagnose(evidence, hypotheses, by_size=False).cause
    assert cause.startswith(f"{words} (matches {output} within ")


def test_contiguous_rows_are_read_right() -> None:
    case = tv.case("float32-normal-4x17")
    for words, hypothesis in tv.LAYER_NORM.knowledge.hypotheses("y").items():
        if "read as though" in words:
            assert np.allclose(hypothesis(case), expected(case).wide["y"], rtol=1e-6, atol=1e-6)
