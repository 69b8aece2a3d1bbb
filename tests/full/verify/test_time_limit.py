"""The time limit: which calls are made, and reports on what was too slow."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.fake_report import finding, made, wide
from truenorm.verify import calls
from truenorm.verify.baseline import compare_with_baseline, entries_of
from truenorm.verify.calls import MOST_SECONDS, Call, calls_of
from truenorm.verify.collecting import collect
from truenorm.verify.grading.report import Report, TooSlow
from truenorm.verify.inputs.families import EPS
from truenorm.verify.judge import grade_records
from truenorm.verify.operation import Case
from truenorm.verify.report.html import to_html
from truenorm.verify.report.wording import conclusion, too_slow_lines
from truenorm.verify.running.records import Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.suite import cases
from truenorm.verify.time_limit import Cost, Timed, WithinLimit, rows_of
from truenorm.verify.types import Array

pytestmark = pytest.mark.usefixtures("without_long_calls")


@cache
def quick_suite() -> list[Case]:
    return cases("float32")


PER_ROW = 0.01
Seconds = Callable[[Case, Call, bool], float]


class FakeRunner:
    """Makes no call; its records say how long one would have taken."""

    def __init__(self, seconds: Seconds) -> None:
        self.subject, self.seconds = tv.Subject(wide), seconds
        self.shapes: set[tuple[int, int]] = set()
        self.spent = 0.0

    def run(self, case: Case, call: Call) -> Record:
        shape = rows_of(case, call), case.shape[1]
        seconds = self.seconds(case, call, shape not in self.shapes)
        self.shapes.add(shape)
        self.spent += seconds
        return Record(case.name, call, {"y": np.zeros(case.shape, np.float32)}, seconds=seconds)


def by_rows(case: Case, call: Call, _: bool) -> float:
    passes = {
        calls.LATER: 2.0,
        calls.INTERLEAVED: 1.5,
        calls.TWICE: 1.5,
        calls.AFTER_OTHERS: 3.0,
    }.get(call.kind, 1.0)
    seconds = 1e-3 + PER_ROW * rows_of(case, call) * passes
    return max(MOST_SECONDS, seconds) if call.kind == calls.MANY else seconds


def collected(
    seconds: Seconds, limit: float = 60.0, suite: Sequence[Case] | None = None
) -> tuple[FakeRunner, list[Record]]:
    runner = FakeRunner(seconds)
    return runner, collect(runner, suite or quick_suite(), seconds=limit)


def is_made(record: Record) -> bool:
    return not record.predicted


def test_fast_kernels_are_run_in_full_and_in_order() -> None:
    _, records = collected(lambda *_: 1e-4)
    assert all(map(is_made, records))
    assert list(dict.fromkeys(each.case for each in records)) == [
        each.name for each in quick_suite()
    ]
    plain = [each for case in quick_suite() for each in calls_of(case)]
    assert Counter(each.call for each in records) >= Counter(plain)


def test_slow_rows_are_left_out_and_the_rest_takes_the_time() -> None:
    runner, records = collected(by_rows)
    assert 30 < runner.spent < 66
    run = {each.case for each in records if is_made(each)}
    small = {each.name for each in quick_suite() if each.shape[0] <= 8}
    assert small <= run
    assert not {each.name for each in quick_suite() if each.shape[0] > 1000} & run
    # Each kind of call is made once before the last sizes of a batch.
    kinds = {each.call.kind for each in records if is_made(each)}
    assert {calls.INTERLEAVED, calls.TWICE, calls.ROWS, "tiled", "reversed"} <= kinds
    left = [each for each in records if not is_made(each)]
    assert all(each.left_out.startswith("too slow: it would take about ") for each in left)
    assert sum(each.predicted for each in left) > 1000


def test_slow_first_calls_are_not_taken_for_the_usual_ones() -> None:
    """A framework starts threads and compiles: 30 calls of 50 ms come before calls of 1 ms."""
    made_ = Counter[str]()

    def warming_up(*_: object) -> float:
        made_["calls"] += 1
        return 0.05 if made_["calls"] <= 30 else 0.001

    _, records = collected(warming_up)
    left = [each for each in records if not is_made(each)]
    assert len(left) < 20, [(each.case, each.call) for each in left]


def test_a_second_kind_of_row_is_not_judged_before_the_first() -> None:
    """With very little time, families count more than the cases of one family."""
    _, records = collected(lambda case, *_: 0.2 * case.shape[0], 60.0)
    run = {each.case for each in records if is_made(each)}
    by_family = Counter(each.family for each in quick_suite() if each.name in run)
    of_few_rows = {each.family for each in quick_suite() if each.shape[0] <= 4}
    assert len(by_family.keys() & of_few_rows) > 0.9 * len(of_few_rows)


def test_few_shapes_where_each_is_compiled() -> None:
    def compiled(_: Case, __: Call, new: bool) -> float:
        return 1.0 if new else 1e-3

    runner, records = collected(compiled)
    assert runner.spent < 66
    run = {each.case for each in records if is_made(each)}
    usual = [each.name for each in quick_suite() if each.shape == (4, 67) and each.eps == EPS]
    assert len(run & {*usual}) == len(usual) > 30
    assert len(runner.shapes) < 70
    assert any(not is_made(each) for each in records)


def test_a_call_that_would_look_like_a_hang_is_not_made() -> None:
    """The limit of a call is 60 s; a longer one is no crash of the kernel."""
    runner, records = collected(by_rows, 1e6)
    case_of = {each.name: each for each in quick_suite()}
    for each in records:
        rows = rows_of(case_of[each.case], each.call)
        if each.call.kind not in (calls.MANY, calls.LATER, calls.LARGE) and not 2900 < rows < 3100:
            assert is_made(each) == (rows < 3000), each
    assert runner.subject.seconds == 60
    assert not any(each.failure for each in records)


def test_user_cases_are_always_run() -> None:
    own = tv.case_of_shape((64, 8))
    runner = WithinLimit(FakeRunner(by_rows), [own], 1e-9)
    runner.run(quick_suite()[0], Call())
    assert [each.name for each in runner.cases()] == [own.name]
    assert is_made(runner.run(own, Call()))


def test_cost_is_found_from_times() -> None:
    def timed(rows: int, size: int, *, first: bool = False) -> Timed:
        shape = 0.5 if first else 0.0
        seconds = 2e-3 + 1e-2 * rows + 1e-6 * rows * size + shape
        return Timed(rows, rows * size, first, seconds)

    shapes = [(4, 3), (4, 64), (1, 4096), (32, 5), (2, 1000)]
    every = [timed(*shape, first=first) for shape in shapes for first in (True, False)]
    assert Cost.fitted(every) == pytest.approx((2e-3, 1e-2, 1e-6, 0.5), rel=1e-6)
    # A second call that is a little faster is no sign of a compiler.
    warm = [each._replace(seconds=0.015 + 0.005 * each.first) for each in every]
    assert Cost.fitted(warm).shape == 0
    assert min(Cost.fitted([timed(4, 8), timed(8, 4)])) >= 0


FEW = ("float32-normal-4x17", "float32-offset-1e4-4x67", "float32-rows-32x5")


def slow_report(left_out: Sequence[str], forward: Callable[..., Array] = wide) -> Report:
    """Judge a subject on a few cases, of which some are too slow."""
    subject = tv.Subject(forward, name="kernel")
    suite = [tv.case(name) for name in FEW]
    records = [
        replace(each, results={}, left_out="too slow", predicted=5.0)
        if each.case in left_out
        else each
        for each in collect(InProcess(subject), suite)
    ]
    return grade_records(subject, suite, records, subject.spec())


def test_a_report_lists_what_was_too_slow() -> None:
    report = slow_report(FEW[2:])
    assert report.passed
    assert report.findings == ()
    assert (report.cases, report.not_run) == (2, 0)
    assert report.too_slow == (TooSlow("float32", "rows", 1, 0, 10.0),)
    (line,) = too_slow_lines(report)
    assert line == "not judged in float32: too slow: 1 case (rows); about 10.0 s, see --time"
    assert "too slow to judge: 1 case and 0 calls" in conclusion(report)
    assert line in to_html(report)
    for verdict in ("batch-invariant", "results kept"):  # also without a backward pass
        assert report.explained(verdict) == "its calls are too slow"
    complete = slow_report(())
    assert complete.too_slow == ()
    assert complete.explained("batch-invariant") == "no call for it returned"


def test_nothing_vanishes_that_was_too_slow() -> None:
    entries = entries_of(made(finding(families=["rows", "offset"]), finding("repeat")))
    report = made(of_y="stable", run=["rows", "offset"])
    compared = compare_with_baseline(report, entries)
    assert compared.baseline is not None
    assert {each.check for each in compared.baseline.vanished} == {"accuracy", "repeat"}
    slow = replace(report, too_slow=(TooSlow("float32", "rows", 0, 3, 9.0),))
    compared = compare_with_baseline(slow, entries)
    assert compared.baseline is not None
    (vanished,) = compared.baseline.vanished
    assert (vanished.check, vanished.families) == ("accuracy", ("offset",))
