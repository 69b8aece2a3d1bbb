"""The judge as it is called from Python: subjects, cases, verify and check."""

import io
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import truenorm as tn
import truenorm.verify as tv
from truenorm import textbook
from truenorm.verify import families
from truenorm.verify.families import hard, ordinary
from truenorm.verify.grading import grade
from truenorm.verify.html_report import to_html
from truenorm.verify.judge import collect
from truenorm.verify.oracle import expected
from truenorm.verify.record import Call, Record
from truenorm.verify.running import InProcess, calls_of, execute
from truenorm.verify.suite import LEVELS
from truenorm.verify.terminal import show
from truenorm.verify.types import FORMATS, Array


def in_float64(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    wide = [each.astype(np.float64) for each in (x, gamma, beta)]
    return textbook.forward(wide[0], wide[1], wide[2], eps)[0].astype(x.dtype)


RIGHT = tv.Subject(in_float64, name="in float64")


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize("dtype", FORMATS)
def test_names_are_unique_and_lead_back_to_the_case(dtype: str, level: str) -> None:
    also = list(tv.EXTENSIONS)
    found = tv.cases(dtype, level, also)
    assert max(Counter(map(str, found)).values()) == 1
    assert {need for each in found for need in each.needs} <= set(also)
    assert all(not each.needs for each in tv.cases(dtype, level))
    for each in found[:: len(found) // 7]:
        again = tv.case(each.name)
        assert again.x.tobytes() == each.x.tobytes()
        assert again.eps == each.eps
    assert all(
        each.kind in ("ordinary", "sweep", "hard", "special", "subnormal") for each in found
    )
    assert all(each.why for each in found)


def test_the_default_scope_has_an_eps_that_float32_has() -> None:
    for dtype in FORMATS:
        for each in tv.cases(dtype, "full"):
            assert each.eps == float(np.float32(each.eps)) > 0
            assert each.gamma is not None
            assert each.beta is not None


def test_ordinary_input_hides_nothing() -> None:
    """Neither gamma nor dy is constant, and no width is a power of two alone."""
    ordinary = [each for each in tv.cases("float32") if each.kind == "ordinary"]
    assert {2, 3, 67, 1025} < {each.x.shape[1] for each in ordinary}
    assert max(len(each.x) for each in ordinary) > 65_536
    for each in ordinary:
        assert each.gamma is not None
        assert np.ptp(each.gamma) > 0
        assert np.ptp(each.dy) > 0
        assert abs(float(each.dy.mean())) > 0.05


def test_widths_are_drawn_from_the_seed() -> None:
    """The same each time, other ones for each seed and type, and none that the list has."""
    for dtype in FORMATS:
        assert list(families._drawn_widths(dtype, 0)) == list(families._drawn_widths(dtype, 0))
    drawn = [set(families._drawn_widths(dtype, seed)) for dtype in FORMATS for seed in range(3)]
    assert all(len(each) == len(families.DRAWN) for each in drawn)
    assert all(one != other for one, other in itertools.combinations(drawn, 2))
    listed = {width for each in families.WIDTHS.values() for width in each}
    assert all(each.isdisjoint(listed) for each in drawn)
    quick, full = ({each.x.shape[1] for each in tv.cases("float32", k)} for k in LEVELS)
    assert drawn[2 * 3] <= quick
    assert drawn[2 * 3] | drawn[2 * 3 + 1] | drawn[2 * 3 + 2] <= full


def test_a_sweep_reaches_the_limit_of_the_type() -> None:
    for dtype, top in {"float16": 1e3, "bfloat16": 1e2, "float32": 1e7, "float64": 1e15}.items():
        offsets = [abs(float(c.x.mean())) for c in tv.cases(dtype) if c.kind == "sweep"]
        assert max(offsets) > 0.9 * top


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tv.cases("float8"), "dtype is 'float8'; it is one of float16"),
        (lambda: tv.cases("float32", "thorough"), "level is 'thorough'; it is one of quick, full"),
        (lambda: tv.cases("float32", also=["axes"]), "also has \\['axes'\\]; known are no-gamma"),
        (lambda: tv.case("float32-nothing"), "there is no case 'float32-nothing'"),
        (lambda: tv.Subject(), "either forward .* or command"),
        (lambda: tv.Subject(print, command=["x"]), "either forward .* or command"),
        (lambda: tv.Subject(command="./kernel"), "command is './kernel'; give a list"),
        (lambda: tv.Subject(print, dtypes="float32"), "dtypes is 'float32'; it is a list of"),
        (lambda: tv.Subject(print, dtypes=["float8"]), "dtypes is \\['float8'\\]"),
        (lambda: tv.Subject(print, dtypes=[]), "dtypes is empty"),
        (lambda: tv.Subject(print, also=["rank"]), "also is \\['rank'\\]; it is a list of"),
        (lambda: tv.Subject(command=["x"], also=["ranks"]), "files of a command cannot hold"),
        (lambda: tv.verify(RIGHT, require="good"), "require is 'good'; it is one of wrong"),
    ],
)
def test_a_mistake_in_asking_is_explained(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_a_subject_without_backward_is_judged_by_y() -> None:
    report = tv.verify(RIGHT)
    assert report.passed
    assert [each.output for each in report.grades] == ["y"]
    assert report.verdicts["own state"] == "not judged"
    assert report.verdicts["batch-invariant"] == "pass"


@pytest.mark.parametrize("case", tv.cases("float32")[:3], ids=str)
def test_check_is_a_test(case: tv.Case) -> None:
    tv.check(RIGHT, case)


def test_check_says_what_and_why() -> None:
    wrong = tv.Subject(lambda x, *_: 0 * x, name="zeros")
    with pytest.raises(AssertionError, match=r"float32-normal-4x5 \(ordinary input, D = 5\): y\["):
        tv.check(wrong, tv.case("float32-normal-4x5"))
    fast = tv.case("float32-one-ulp-off")
    tv.check(RIGHT, fast)
    with pytest.raises(AssertionError, match="y is off by"):
        tv.check(RIGHT, fast, require="correct")


def test_progress_is_told() -> None:
    told: list[tuple[int, int, str]] = []
    tv.verify(RIGHT, progress=lambda *step: told.append(step))
    assert told[0][0] == 0
    assert told[0][2].startswith("exact answers: float32-")
    assert told[-1] == (told[0][1], told[0][1], "grading")


def test_a_wrong_pair_is_a_finding() -> None:
    for forward, backward, said in (
        (in_float64, lambda dy, _: dy, "forward returned ndarray, not the pair"),
        (lambda *a: (a[0], 0), lambda dy, _: (dy,), "backward returned 1 results"),
    ):
        subject = tv.Subject(forward, backward)
        record = execute(subject, tv.case("float32-normal-4x5"), Call())
        assert said in record.failure


def test_every_way_of_calling_is_used() -> None:
    kinds = {call.kind for each in tv.cases("float32") for call in calls_of(each)}
    assert kinds == {"plain", "again", "interleaved", "later", "twice", "rows"}


def test_grading_needs_nothing_but_records() -> None:
    """In any order; and with no records at all, nothing is said to pass."""
    suite = tv.cases("float32")[:4]
    records = collect(InProcess(RIGHT), suite)
    forwards = grade("one", suite, records, outputs=["y"])
    backwards = grade("one", suite, records[::-1], outputs=["y"])
    assert forwards.grades == backwards.grades
    none: list[Record] = []
    empty = grade("none", suite, none, outputs=["y"])
    assert not empty.passed
    assert set(empty.verdicts.values()) == {"not judged"}


def test_a_tie_rounded_to_the_odd_neighbour_is_not_correct() -> None:
    """It is half an ulp away, as the right one is; but only one of the two is the promise."""
    case = tv.case("float32-exact-tie")
    right = expected(case).values["y"]
    assert right is not None
    ties = np.abs(expected(case).rests["y"]) == 0.5
    assert ties.any()
    away = np.where(expected(case).rests["y"] > 0, np.inf, -np.inf).astype(np.float32)
    odd = np.where(ties, np.nextafter(right, away), right)
    for y, passes in ((right, True), (odd, False)):
        records = [Record(case.name, Call(), {"y": y})]
        report = grade("one", [case], records, outputs=["y"], require="correct")
        assert report.passed == passes
        assert report.grades[0].max_ulp == 0.5


def test_what_leaks_from_a_special_row_fails_the_check_of_it() -> None:
    """Nothing of the case is near, so there is no error to take the largest of."""
    leaking = tv.Subject(lambda x, *_: x + 0 * x.sum())
    with pytest.raises(AssertionError, match="float32-nan-in-x"):
        tv.check(leaking, tv.case("float32-nan-in-x"))


def test_what_was_not_run_is_not_judged() -> None:
    suite = tv.cases("float32")
    records = collect(InProcess(RIGHT), suite[:2])
    verdicts = grade("one", suite, records, outputs=["y"]).verdicts
    assert verdicts["special values"] == verdicts["subnormals kept"] == "not judged"
    assert verdicts["repeatable"] == "pass"


@pytest.mark.parametrize("name", ["no-gamma-6x67", "no-beta-6x67", "gamma-without-beta"])
def test_what_is_absent_is_not_graded(name: str) -> None:
    subject = tv.Subject(
        lambda x, gamma, beta, eps: tn.layer_norm_forward(x, gamma, beta, eps=eps),
        tn.layer_norm_backward,
        also=["no-gamma", "no-beta"],
    )
    tv.check(subject, tv.case(f"float32-{name}"))


def test_a_call_that_failed_shows_nothing() -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no")

    report = tv.verify(tv.Subject(refuse))
    assert report.verdicts.pop("runs") == "fail"
    assert set(report.verdicts.values()) == {"not judged"}


def test_a_backward_that_refuses_a_second_call_is_not_blamed() -> None:
    """As autograd does, which frees what it saved; it is said, and nothing is found."""
    subject = tv.Subject(
        lambda x, gamma, beta, eps: (in_float64(x, gamma, beta, eps), [beta]),
        lambda dy, saved: (dy, dy.sum(0), dy.sum(0) + 0 * saved.pop()),
    )
    case = tv.case("float32-batch-300x67")
    records = collect(InProcess(subject), [case])
    assert not any(record.failure for record in records)
    report = grade("one", [case], records)
    assert report.verdicts["runs"] == "pass"
    assert report.verdicts["saved kept"] == "not judged"
    said = "a second backward pass is refused: IndexError: pop from empty list"
    assert report.notes == {"saved kept": said}
    assert said in terminal_text(report)
    assert said in to_html(report)


def terminal_text(report: tv.Report) -> str:
    stream = io.StringIO()
    show(report, Console(file=stream, width=200))
    return stream.getvalue()


def test_what_follows_from_something_else_is_not_judged() -> None:
    """Bits that change each time say nothing about batches; nor wrong ones about subnormals."""
    random = np.random.default_rng(0)
    unsteady = tv.Subject(lambda x, *rest: in_float64(x, *rest) * random.choice(STEPS, 1))
    assert tv.verify(unsteady).verdicts["batch-invariant"] == "not judged"
    wrong = tv.Subject(lambda x, *_: 0 * x)
    assert tv.verify(wrong).verdicts["subnormals kept"] == "not judged"


STEPS = np.array([1, 1 + 2.0**-23], np.float32)


def test_results_in_another_byte_order_are_read_as_what_they_are() -> None:
    swapped = tv.Subject(lambda *given: in_float64(*given).astype(">f4"))
    tv.check(swapped, tv.case("float32-normal-4x5"))


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (np.longdouble, "it should be float32"),
        (str, "which are no numbers"),
        (object, "which are no numbers"),
    ],
)
def test_results_of_other_types_are_named(result: type, said: str) -> None:
    subject = tv.Subject(lambda *given: in_float64(*given).astype(result))
    with pytest.raises(AssertionError, match=said):
        tv.check(subject, tv.case("float32-normal-4x5"))


def test_an_exception_is_told_in_brief() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise ValueError

    for raised, said in ((ValueError("x" * 10**6), "x" * 100), (UnprintableError(), "cannot be")):

        def refuse(*_: object, raised: Exception = raised) -> None:
            raise raised

        failure = execute(tv.Subject(refuse), tv.case("float32-normal-4x5"), Call()).failure
        assert said in failure
        assert len(failure) < 3000


def test_whatever_the_caller_has_set_of_numpy() -> None:
    def ours(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        return tn.layer_norm(x, gamma, beta, eps=eps)

    with np.errstate(all="raise"):
        for dtype in FORMATS:
            for each in list(ordinary(dtype, "quick"))[:2] + list(hard(dtype, "quick")):
                tv.check(tv.Subject(ours, dtypes=[dtype]), each)


def test_exact_answers_come_before_the_first_call() -> None:
    """A subject may leave a processor behind in which subnormal numbers are zero."""
    seen: list[int] = []

    def forward(x: Array, *_: object) -> Array:
        seen.append(expected.cache_info().misses)
        return x

    tv.verify(tv.Subject(forward))
    assert len(set(seen)) == 1


def test_a_limit_of_time_is_a_number() -> None:
    with pytest.raises(ValueError, match="seconds is inf"):
        tv.Subject(in_float64, seconds=float("inf"))
    with pytest.raises(ValueError, match="the kind 'odd'"):
        replace(tv.case("float32-normal-4x5"), kind="odd")
