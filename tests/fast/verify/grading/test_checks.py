"""The checks of the judge: errors, and invariance under batch, order, layout and repetition."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.planted.behaviour import BlockByBatch, OtherBlocks
from shared.verify.planted.kernels import layer_norm
from shared.verify.planted.registry import PLANTED
from shared.verify.recorded import in_float64
from truenorm.verify.calls import Call
from truenorm.verify.collecting import collect, records_of
from truenorm.verify.grading.checks import accuracy_symptom, check_case, relax_sums
from truenorm.verify.grading.consequences import drop_consequences
from truenorm.verify.grading.report import Report
from truenorm.verify.grading.symptoms import UNEXPLAINED, Error, MeasuredResult, Symptom, measure
from truenorm.verify.inputs.families import SERVED_SHAPES, served
from truenorm.verify.judge import grade_records, scope
from truenorm.verify.oracle import EXPECTED_BY_CASE, Expected, expected
from truenorm.verify.running.records import Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.suite import case
from truenorm.verify.types import Array


@pytest.fixture
def plain() -> Expected:
    return expected(case("float32-normal-4x17"))


def _y(exact: Expected) -> Array:
    value = exact.values["y"]
    assert value is not None
    return value.copy()


def test_next_number_has_a_larger_error(plain: Expected) -> None:
    y = _y(plain)
    error = measure(plain, "y", y)
    assert error.ulp <= 0.5
    assert (error.natural, error.needs) == (0.0, 0)
    y[1, 2] = np.nextafter(y[1, 2], np.float32(np.inf))
    error = measure(plain, "y", y)
    assert 0.5 < error.ulp < 1.5
    assert error.needs == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_result_has_an_infinite_error(plain: Expected, value: float) -> None:
    y = _y(plain)
    y[3, 5] = value
    error = measure(plain, "y", y)
    assert (error.ulp, error.natural, error.needs) == (np.inf, np.inf, UNEXPLAINED)
    assert (error.at, error.not_finite) == ((3, 5), True)


def test_worst_element_is_located(plain: Expected) -> None:
    y = _y(plain)
    y[2, 7] += 1
    y[0, 3] += 0.1
    error = measure(plain, "y", y)
    assert (error.at, error.needs, error.not_finite) == ((2, 7), UNEXPLAINED, False)


def test_error_next_to_an_exact_zero() -> None:
    """In float64 the error in ulp may be infinite there; the absolute error is small."""
    exact = expected(case("float64-dy-constant"))
    dx = exact.wide["dx"] + 1e-16
    assert measure(exact, "dx", dx).needs == 0


def test_misplaced_nan() -> None:
    nan_in_x = case("float32-nan-in-x")
    exact = expected(nan_in_x)
    y = _y(exact)
    row = int(np.flatnonzero(np.isnan(nan_in_x.x).any(axis=1))[0])
    assert not exact.misplaced("y", y).any()
    y[row] = np.inf
    assert not exact.misplaced("y", y).any()
    y[row, 4] = 0
    assert np.argwhere(exact.misplaced("y", y)).tolist() == [[row, 4]]


def test_infinity_of_the_wrong_sign() -> None:
    exact = expected(case("float32-infinity-and-nan-in-dy"))
    dbeta = exact.wide["dbeta"].copy()
    at = int(np.flatnonzero(np.isinf(dbeta))[0])
    assert not exact.misplaced("dbeta", dbeta).any()
    dbeta[at] *= -1
    assert np.argwhere(exact.misplaced("dbeta", dbeta)).tolist() == [[at]]


@pytest.mark.parametrize("damaged", [("x",), ("x", "dy")])
def test_an_input_that_changed_is_a_symptom(plain: Expected, damaged: tuple[str, ...]) -> None:
    one = case("float32-normal-4x17")
    record = Record(one.name, Call("plain"), {"y": _y(plain)}, damaged=damaged)
    (symptom,) = check_case(one, [record], ["y"])[0]
    changed = " and ".join(damaged)
    assert (symptom.guard, symptom.text) == ("inputs", f"{changed} changed during the call")


def test_one_number_in_the_place_of_nan_is_a_symptom() -> None:
    one = case("float32-nan-in-x")
    y = _y(expected(one))
    row, column = map(int, np.argwhere(np.isnan(y))[0])
    y[row, column] = 0
    (symptom,) = check_case(one, [Record(one.name, Call("plain"), {"y": y})], ["y"])[0]
    assert (symptom.guard, symptom.at) == ("special", (row, column))


@pytest.mark.parametrize(
    ("output", "times", "passes"),
    [("dbeta", 2.0, True), ("dbeta", 2.5, False), ("dx", 1.5, False)],
)
def test_sums_over_four_rows_may_have_twice_the_error(
    plain: Expected, output: str, times: float, passes: bool
) -> None:
    """The logarithm of 4 is 2; results of rows are no sums over rows."""
    one = case("float32-normal-4x17")
    error = replace(measure(plain, output, plain.wide[output]), natural=times, needs=UNEXPLAINED)
    record = Record(one.name, Call("plain"), {})
    result = MeasuredResult(one, record, output, plain.wide[output], error, allowed=1.0)
    symptom = Symptom("ordinary", one, record, output, "", severity=error.needs, natural=times)
    kept, (relaxed,) = relax_sums([symptom], [result])
    assert (kept, relaxed.error.needs) == (([], 0) if passes else ([symptom], UNEXPLAINED))


BATCH = "float32-batch-300x67"
SIZES = "float32-batch-sizes-4136x33"


def judged(subject: Subject, *names: str) -> Report:
    suite = [tv.case(name) for name in names]
    records = collect(InProcess(subject), suite)
    return grade_records(subject, suite, records, subject.spec())


@pytest.mark.parametrize(
    ("rows", "below", "above"),
    [(301, 300, 511), (512, 511, 512), (1025, 1024, 1025), (2048, 2047, 2048), (4100, 4097, 4136)],
)
def test_kernel_that_depends_on_the_number_of_rows(rows: int, below: int, above: int) -> None:
    """The change is located to the row next to a power of two."""
    report = judged(layer_norm(BlockByBatch(rows), "it", ["float32"]), BATCH, SIZES)
    assert {(each.guard, each.output) for each in report.findings} == {
        ("batch", "y"),
        ("batch", "dx"),
    }
    ids = {cause.id for each in report.findings for cause in each.causes}
    assert ids == {f"bits-change-between({below}, {above} rows)"}
    assert all(each.cause.startswith("where D is 33, ") for each in report.findings)


def test_last_row_is_compared_with_an_equal_row() -> None:
    """It is computed differently, as in a partial block."""
    last_alone = OtherBlocks(lambda rows: np.arange(len(rows)) == len(rows) - 1)
    report = judged(layer_norm(last_alone, "it", ["float32"]), SIZES)
    findings = {each.output: (each.guard, each.symptom, each.causes) for each in report.findings}
    text = "{0} of row 4135 has different bits than {0} of the equal row 10"
    assert findings == {output: ("position", text.format(output), ()) for output in ("y", "dx")}


def test_non_finite_padding_rows() -> None:
    """Padding often holds them; a sum over all rows lets them spread."""

    def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        y = in_float64(x, gamma, beta, eps)
        y += 0 * x[300:].sum()
        return y

    (finding,) = judged(Subject(forward), BATCH).findings
    assert finding.symptom == "y changes if rows of NaN and infinity are appended"


def test_idle_rows_are_a_finding_only_if_claimed() -> None:
    claims = PLANTED["dgamma cut by the number of rows"].subject
    report = judged(replace(claims, also=[]), BATCH)
    assert report.passed
    assert report.verdicts["idle rows"] == "not judged"
    note = "rows of zero gradient change dgamma: a finding with also=['idle-rows']"
    assert report.explained("idle rows") == note
    with pytest.raises(AssertionError, match="dgamma changes with rows of zero gradient"):
        tv.check(claims, tv.case("float32-idle-rows-300x67"))


def test_sums_that_differ_in_one_run_of_eight() -> None:
    """Outputs of rows have a separate verdict."""
    calls = []

    def backward(dy: Array, _: object) -> tuple[Array, Array, Array]:
        calls.append(dy)
        sums = dy.sum(axis=0) + np.float32(len(calls) == 8)
        return dy.copy(), sums, sums

    subject = Subject(lambda *rest: (in_float64(*rest), None), backward)
    report = judged(subject, BATCH)
    steadiness = {each.output: each.guard for each in report.findings if "repeat" in each.verdict}
    assert steadiness == {"dgamma": "sums", "dbeta": "sums"}
    assert report.verdicts["repeatable"] == "pass"
    assert report.verdicts["sums repeatable"] == "fail"


def test_without_backward_sums_and_gradients_are_not_judged() -> None:
    verdicts = judged(Subject(in_float64, also=["idle-rows"]), BATCH).verdicts
    assert verdicts["batch-invariant"] == verdicts["repeatable"] == "pass"
    for verdict in ("sums repeatable", "idle rows", "layouts of gradients"):
        assert verdicts[verdict] == "not judged"


def test_scalar_result() -> None:
    (finding,) = judged(Subject(lambda x, *_: x.sum()), BATCH).findings
    assert finding.symptom == "y is shape (); it should have the shape (300, 67)"


@pytest.mark.parametrize(
    "change", [lambda y: y.astype(np.float16), lambda y: y.sum()], ids=["another type", "a number"]
)
def test_batch_of_another_form_is_not_compared(change: Callable[[Array], Array]) -> None:
    def forward(x: Array, *rest: Any) -> Array:
        y = in_float64(x, *rest) + np.float32(len(x) == 7)
        return change(y) if len(x) == 255 else y

    report = judged(Subject(forward), BATCH)
    assert report.findings[-1].symptom.startswith("y of rows 0 to 6 has different bits than in")


@pytest.mark.parametrize("rows", [255, 1, 305])  # alone, and with padding below them
@pytest.mark.parametrize(("change", "returned"), [
    (lambda y: y[:-1], "shape ({}, 67)"), (lambda _: None, "None"),
], ids=["a row is lost", "None"])  # fmt: skip
def test_result_is_lost_at_some_number_of_rows(
    rows: int, change: Callable[[Array], Array | None], returned: str
) -> None:
    def forward(x: Array, *rest: Any) -> Array | None:
        y = in_float64(x, *rest)
        return change(y) if len(x) == rows else y

    subject = Subject(forward)
    (finding,) = judged(subject, BATCH).findings
    assert (finding.guard, finding.output, finding.causes) == ("shape", "y", ())
    assert finding.symptom.startswith(f"y is {returned.format(rows - 1)} in the call '")
    assert finding.symptom.endswith(f"it should have the shape ({rows}, 67)")
    with pytest.raises(AssertionError, match="it should have the shape"):
        tv.check(subject, tv.case(BATCH))


@pytest.mark.parametrize(
    ("shape", "others"), [((1, -1), ["float32-one-row"]), ((-1,), []), ((67, 300), [])]
)
def test_results_of_a_wrong_shape_are_graded_wrong(
    shape: tuple[int, ...], others: list[str]
) -> None:
    """Rows are not compared, and results of other cases, whose shape is right, do not count."""

    def forward(x: Array, *rest: Any) -> Array:
        y = in_float64(x, *rest)
        return y if -1 not in shape and len(y) != 300 else y.reshape(shape)

    report = judged(Subject(forward), BATCH, *others)
    assert [(each.grade, each.worst_case) for each in report.grades] == [("wrong", BATCH)]
    (finding,) = report.findings
    returned = np.empty((300, 67)).reshape(shape).shape
    assert finding.symptom == f"y is shape {returned}; it should have the shape (300, 67)"
    assert [each.id for each in finding.causes] == ["wrong-shape"]
    for verdict in ("batch-invariant", "special values", "subnormals kept"):
        assert report.verdicts[verdict] == "not judged"


def _guards(*results: tuple[str, Array]) -> list[str]:
    """Return the checks that calls of one case fail, by the kinds of these calls."""
    one = case("float32-normal-4x17")
    records = [Record(one.name, Call(kind), {"y": y}) for kind, y in results]
    return [each.guard for each in drop_consequences(check_case(one, records, ["y"])[0])]


@pytest.mark.parametrize("kind", ["after others", "alone"])
def test_repetition_is_compared_before_other_calls(plain: Expected, kind: str) -> None:
    """A result that varies by itself says nothing about earlier calls."""
    y = _y(plain)
    assert _guards(("plain", y + 1), ("again", y + 1), (kind, y)) == ["ordinary", "history"]
    assert _guards(("plain", y + 1), ("again", y + 2), (kind, y)) == ["ordinary", "repeat"]


def test_other_bits_in_a_new_process_are_allowed(plain: Expected) -> None:
    """It may choose another algorithm; calls after others in one process may not."""
    y = _y(plain)
    other = np.nextafter(y, np.float32(np.inf))
    assert _guards(("plain", y), ("again", y), ("alone", other)) == []
    assert _guards(("plain", y + 1), ("again", y + 1), ("alone", y + 2)) == ["ordinary"]
    assert _guards(("plain", y), ("again", y), ("after others", other)) == ["history"]


def blocks_of_squares(x: Array, gamma: Array, eps: float) -> Array:
    """Sum squares over blocks of 256 columns from 256 rows on, else of 1024 (vLLM#48271)."""
    rows, size = x.shape
    block = 1024 if rows < 256 else 256
    squares = np.zeros((rows, -(-size // block) * block), np.float32)
    squares[:, :size] = x * x
    sums = np.add.accumulate(squares.reshape(rows, -1, block), axis=1, dtype=np.float32)[:, -1]
    while sums.shape[1] > 1:
        sums = sums[:, : sums.shape[1] // 2] + sums[:, sums.shape[1] // 2 :]
    y: Array = x / np.sqrt(sums / np.float32(size) + np.float32(eps)) * gamma
    return y


def test_another_block_size_for_many_rows_is_found_with_each_seed() -> None:
    subject = Subject(blocks_of_squares, operation="rms_norm", dtypes=["float32"])
    for seed in range(20):
        found = (
            symptom.guard
            for one in served(subject.operation, "float32", seed)
            for symptom in check_case(one, [*records_of(InProcess(subject), one)], ["y"])[0]
        )
        assert next(found, "") == "batch", seed


def test_answers_of_cases_that_are_only_compared_are_not_computed() -> None:
    subject = Subject(lambda x, *_: x + 1, operation="rms_norm", dtypes=["float32"])
    cases = [each for each in scope(subject, "quick") if each.family == "served"]
    assert [each.compared for each in cases] == [True] * len(SERVED_SHAPES)
    report = grade_records(subject, cases, collect(InProcess(subject), cases), SubjectSpec())
    assert not report.results
    assert not report.findings
    assert not EXPECTED_BY_CASE.keys() & {*cases}


@pytest.mark.parametrize(("output", "steps", "words"), [
    ("scale", 1.0, "a factor of 2"), ("scale", 3.0, "a factor of 8"), ("codes", 3.0, "3 ulp"),
])  # fmt: skip
def test_a_step_of_a_power_of_two_is_a_factor(output: str, steps: float, words: str) -> None:
    norm = tv.norm("rms_norm", quant=tv.Quant("mxfp8"))
    one = next(iter(tv.cases("float32", operation=norm)))
    error = Error(steps, steps, UNEXPLAINED, correct=False, at=(), ulp_at=steps, not_finite=False)
    result = MeasuredResult(one, Record(one.name, Call()), output, np.ones(1), error, 8.0)
    text = accuracy_symptom(result, 2.0**steps, 1.0).text
    assert text.endswith(f"the exact answer 1.0: off by {words}")
