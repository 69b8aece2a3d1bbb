"""Each hypothesis is named for a kernel that does just that, and none for another kernel."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import truenorm.verify as tv
from shared.choosing import few
from truenorm.verify.causes import Cause
from truenorm.verify.diagnosis.accuracy import MIN_CASES, MIN_ELEMENTS, Diagnosis, diagnose
from truenorm.verify.diagnosis.matches import Evidence, sizes_of
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
    for cause in list(operation.knowledge.hypotheses(output))[part::PARTS]:
        with subtests.test(cause.id):
            assert_named(operation, dtype, output, cause)


def assert_named(operation: Operation, dtype: str, output: str, cause: Cause) -> None:
    """Check the cause, unless fewer than two of these cases show it, each in several elements."""
    hypotheses = operation.knowledge.hypotheses(output)
    evidence = evidence_of(operation, dtype, output, hypotheses[cause])
    named = diagnose(evidence, hypotheses, by_size=False).causes
    if not named:
        shown = [
            shows_a_bug(each.case, output, hypotheses[cause])
            for each in evidence
            if not each.correct
        ]
        assert sum(shown) < MIN_CASES, "it should have been named"
        return
    same = {
        other
        for other, each in hypotheses.items()
        if all(_equal(each(one.case), hypotheses[cause](one.case)) for one in evidence)
    }
    assert cause in same
    # TF32 is named after float16, which has the same precision.
    of_half = {Cause(each.id.replace("TF32", "float16"), "") for each in same}
    assert (same | of_half) & {*named}, named


def _equal(one: Float64s, other: Float64s) -> bool:
    """Return True if two hypotheses are the same computation, in another order of operations.

    An element may cancel, as where beta is near -gamma*xhat: it has the errors of its row.
    """
    with np.errstate(all="ignore"):
        room = 1e-12 * np.where(np.isfinite(one), sizes_of(one), 0.0)
    return bool(np.isclose(one, other, rtol=1e-12, atol=room, equal_nan=True).all())


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
    assert diagnosis == Diagnosis((), len(operation.knowledge.hypotheses("y")))


CLAMPED = {step: Cause(f"clamped({step})", "") for step in ("rows", "c", "xhat")}


@pytest.mark.parametrize(("dtype", "named"), [("bfloat16", 3500), ("float32", 3500.5)])
def test_the_limit_of_a_clamp_has_the_digits_that_the_type_can_tell(
    dtype: str, named: float
) -> None:
    clamped = partial(
        tv.LAYER_NORM.knowledge.error_patterns("dx").clamped[CLAMPED["rows"]], 3500.5
    )
    (cause,) = diagnosed(tv.LAYER_NORM, dtype, "dx", clamped).causes
    assert cause == CLAMPED["rows"]
    assert cause.words.endswith(f" to +-{named:g}")


@pytest.mark.parametrize(
    ("norm", "output", "step", "limit"),
    [
        (tv.LAYER_NORM, "y", "c", 500),
        (tv.LAYER_NORM, "dx", "xhat", 2),
        (tv.norm("add_layer_norm"), "y", "rows", 9000),
    ],
)
def test_clamped_step(norm: Operation, output: str, step: str, limit: float) -> None:
    kernel = partial(norm.knowledge.error_patterns(output).clamped[CLAMPED[step]], limit)
    (cause,) = diagnosed(norm, "float32", output, kernel).causes
    assert cause == CLAMPED[step]
    assert cause.words.endswith(f" to +-{limit}")


def softly_limited(case: Case) -> Float64s:
    """Return the norm of 1000*tanh(x/1000), which is no clamp."""
    x = 1000 * np.tanh(case.x.astype(np.float64) / 1000)
    return Steps(case.operation, case, {"rows": lambda _: x})["y"]  # type: ignore[arg-type]


def test_a_soft_limit_is_not_called_a_clamp() -> None:
    causes = diagnosed(tv.RMS_NORM, "bfloat16", "y", softly_limited).causes
    assert not {*CLAMPED.values()} & {*causes}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("output", ["y", "dx", "dgamma", "dbeta"])
def test_right_kernel_has_no_cause(dtype: str, output: str) -> None:
    assert not diagnosed(tv.LAYER_NORM, dtype, output, lambda case: expected(case).wide[output])[0]


NO_BETA = Cause("no-term(beta)", "")


def test_a_large_case_among_those_of_some_sizes() -> None:
    """It is compared as well: a hypothesis that fits small cases alone is not named."""
    hypotheses = tv.LAYER_NORM.knowledge.hypotheses("y")

    def kernel(case: Case) -> Float64s:
        by_fours = hypotheses[NO_BETA](case)
        return by_fours if case.shape[1] % 4 == 0 else expected(case).wide["y"]

    small = evidence_of(tv.LAYER_NORM, "float32", "y", kernel)
    large = tv.case("float32-row-limit-65600x4")
    causes = [
        diagnose([*small, Evidence(large, "y", result, correct=False)], hypotheses, by_size=True)
        for result in (kernel(large), hypotheses[Cause("no-gamma", "")](large))
    ]
    assert (causes[0].causes, causes[0].where) == ((NO_BETA,), "D is a multiple of 4")
    assert not causes[1].causes


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("operation", "output", "cause"),
    [
        (operation, output, cause)
        for operation, output in ((tv.LAYER_NORM, "dx"), (ADD_RMS_NORM, "sum"))
        for cause in operation.knowledge.hypotheses(output)
        if cause.id.startswith("read-without-gaps")
    ],
)
def test_misread_layout(operation: Operation, dtype: str, output: str, cause: Cause) -> None:
    hypotheses = operation.knowledge.hypotheses(output)
    evidence = []
    for case in tv.cases(dtype, also=["strides", "padded-rows"], operation=operation):
        if case.kind == "ordinary" and case.x.size <= SMALL:
            exact = expected(case)
            result = np.asarray(hypotheses[cause](case)).astype(dtype_of(exact.types[output]))
            correct = np.array_equal(result.astype(np.float64), exact.wide[output])
            evidence.append(Evidence(case, output, result, correct or case.layout == "rows"))
    assert diagnose(evidence, hypotheses, by_size=False).causes == (cause,)


def test_contiguous_rows_are_read_right() -> None:
    case = tv.case("float32-normal-4x17")
    for cause, hypothesis in tv.LAYER_NORM.knowledge.hypotheses("y").items():
        if cause.id.startswith("read-without-gaps"):
            assert np.allclose(hypothesis(case), expected(case).wide["y"], rtol=1e-6, atol=1e-6)
