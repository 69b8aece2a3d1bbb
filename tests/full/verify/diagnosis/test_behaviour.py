"""Symptoms other than inaccuracy have a cause if the records determine it, and none otherwise.

Causes that planted bugs have are in `test_planted.py`; here are others, and records without one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.calls import AGAIN, INTERLEAVED, LARGE, LATER, PLAIN, ROWS, Call
from truenorm.verify.causes import Cause
from truenorm.verify.diagnosis import behaviour, repeats
from truenorm.verify.diagnosis.behaviour import CaseRecords
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.running.records import Record
from truenorm.verify.running.tiled import describe_wrong_elements
from truenorm.verify.types import Array


@cache
def small() -> Case:
    return tv.case("float32-normal-4x17")


@cache
def wider() -> Case:
    return tv.case("float32-normal-4x64")


TINY = np.finfo(np.float32).tiny


@cache
def cases_of(kind: str) -> list[Case]:
    return [case for case in tv.cases("float32") if case.kind == kind]


def records_of(
    case: Case, *calls: tuple[Call | str, Mapping[str, Array | None]], wrong: bool = True
) -> CaseRecords:
    """Return a case with made-up results of its calls."""
    made = ((call if isinstance(call, Call) else Call(call), results) for call, results in calls)
    return CaseRecords(case, [Record(case.name, call, results) for call, results in made], wrong)


def right(case: Case, output: str) -> Array:
    value = expected(case).values[output]
    assert value is not None
    return value.copy()


def id_of(cause: Cause | None) -> str:
    return cause.id if cause else ""


def next_number(array: Array) -> Array:
    return np.nextafter(array, np.float32(np.inf))


def test_an_input_that_holds_something_else_in_one_case() -> None:
    cases = [
        CaseRecords(case, [Record(case.name, Call(), damaged=("dy",), holds=holds)], True)
        for case, holds in ((small(), {"dy": ("dx",)}), (wider(), {}))
    ]
    assert id_of(behaviour.explain_inputs("", cases[:1])) == "overwrites(dx over dy)"
    assert not behaviour.explain_inputs("", cases)


def test_a_result_that_becomes_no_other_one() -> None:
    """Neither the next result, nor the gradient of another forward pass."""
    later = records_of(small(), (LATER, {"y": right(small(), "y") + 1}))
    assert not behaviour.explain_overwritten("y", [later])
    for more in (0, 1):
        dx = right(small(), "dx") + np.float32(more)
        assert not behaviour.explain_stale("dx", [records_of(small(), (INTERLEAVED, {"dx": dx}))])


@pytest.mark.parametrize(("offset", "cause"), [
    (0, ""),
    (-1, ""),
    (-(2**24), "wrong from element 2^24 on: indices start again at 0"),
])  # fmt: skip
def test_elements_beyond_2_to_24(offset: int, cause: str) -> None:
    copies = np.tile(np.arange(1.0, 500.0, dtype=np.float32), (33_700, 1))
    flat = copies.reshape(-1)
    tail = np.arange(2**24, flat.size)
    flat[tail] = flat[tail + offset]
    assert describe_wrong_elements(copies[:1], copies) == cause


class TestRepeat:
    @staticmethod
    def twice(case: Case) -> CaseRecords:
        dgamma = right(case, "dgamma")
        again = {"dgamma": next_number(dgamma)}
        return records_of(case, (PLAIN, {"dgamma": dgamma}), (AGAIN, again))

    def test_two_terms_have_one_order(self) -> None:
        case = tv.case("float32-normal-2x1025")
        assert not repeats.explain_repeat("dgamma", [self.twice(case), self.twice(case)])

    @pytest.mark.parametrize(("wrong", "is_memory"), [
        (lambda dgamma, _: dgamma + np.float32(3), True),
        (lambda dgamma, _: np.full_like(dgamma, np.nan), True),
        (lambda dgamma, last: dgamma - last, False),  # a row is left out
        (lambda dgamma, last: dgamma + last, False),  # a row is counted twice
    ])  # fmt: skip
    def test_sums_of_memory(self, wrong: Callable[..., Any], is_memory: bool) -> None:
        """A race leaves sums of rows; memory that was not cleared does not."""
        cases = []
        for case in (wider(), small()):
            dgamma = right(case, "dgamma")
            last = right(case.part(slice(-1, None)), "dgamma")
            others = (PLAIN, {"dgamma": dgamma}), (AGAIN, {"dgamma": wrong(dgamma, last)})
            cases.append(records_of(case, *others))
        once = tv.case("float32-normal-4x3")
        both = {"dgamma": right(once, "dgamma")}
        accurate = records_of(once, (PLAIN, both), (AGAIN, both))
        cause = repeats.explain_repeat("dgamma", [*cases, accurate])
        assert cause == (repeats.MEMORY if is_memory else None)
        # No call is right: another formula may be summed in another order each time.
        assert not repeats.explain_repeat("dgamma", cases)

    @pytest.mark.parametrize(("part", "place"), [
        ((-1, -1), "last element of the last row"),
        ((0, slice(None)), "first row"),
        ((slice(None), -1), "last column"),
        ((1, 3), ""),
    ])  # fmt: skip
    def test_unwritten_part(self, part: Any, place: str) -> None:
        cases = []
        for case in (small(), wider()):
            one, other = right(case, "y"), right(case, "y")
            one[part], other[part] = 5, 7
            cases.append(records_of(case, (PLAIN, {"y": one}), (AGAIN, {"y": other})))
        cause = repeats.explain_repeat("y", cases)
        assert id_of(cause) == (place and f"unwritten({place})")


class TestBatch:
    SIZES = (1, 7, 128, 255, 256, 257)

    def cause(
        self,
        kernel: Callable[[Array], Array],
        sizes: Sequence[int] = SIZES,
        names: Sequence[str] = ("float32-batch-300x67",),
    ) -> Cause | None:
        """Return the cause for a kernel whose y of a row depends on its batch."""
        cases = []
        for case in map(tv.case, names):
            y = right(case, "y")
            calls = [(Call(ROWS, 0, size), {"y": kernel(y[:size])}) for size in sizes]
            cases.append(records_of(case, (PLAIN, {"y": kernel(y)}), *calls))
        return behaviour.explain_batch("y", cases)

    @pytest.mark.parametrize(("change", "sizes"), [
        (lambda y: len(y) < 256, "255, 256 rows"),
        (lambda y: y.size < 5000, "4224, 8415 elements"),
        (lambda y: len(y) < 100, ""),  # or up to 4000 elements
    ])  # fmt: skip
    def test_rows_or_elements(self, change: Callable[[Array], bool], sizes: str) -> None:
        names = ("float32-batch-300x67", "float32-batch-sizes-4136x33")
        tried = (1, 7, 128, 255, 256, 257, 511)
        found = self.cause(lambda y: next_number(y) if change(y) else y, tried, names)
        assert id_of(found) == (sizes and f"bits-change-between({sizes})")

    def test_two_numbers_of_rows(self) -> None:
        assert not self.cause(lambda y: next_number(y) if 100 < len(y) < 200 else y)

    def test_last_row(self) -> None:
        assert not self.cause(lambda y: np.concatenate([y[:-1], next_number(y[-1:])]))


class TestForms:
    @pytest.mark.parametrize(("change", "cause"), [
        (lambda y: y.astype(np.float64) * (1 + 2.0**-40), "stays-in(float64)"),
        (lambda y: y.astype(np.float16), ""),
    ])  # fmt: skip
    def test_type(self, change: Callable[[Array], Array], cause: str) -> None:
        cases = [
            records_of(case, (PLAIN, {"y": change(right(case, "y"))}))
            for case in (small(), wider())
        ]
        assert id_of(behaviour.explain_type("y", cases)) == cause

    def test_result_of_another_size_says_nothing_of_types(self) -> None:
        wide = records_of(small(), (PLAIN, {"y": right(small(), "y").astype(np.float64)}))
        short = records_of(wider(), (PLAIN, {"y": right(wider(), "y").astype(np.float64)[:, :-1]}))
        assert short.result("y") is None
        assert behaviour.explain_type("y", [wide, short]) == behaviour.explain_type("y", [wide])

    @pytest.mark.parametrize("shape", [(), (16,), (2, 17)])
    def test_sums_of_another_size_are_none(self, shape: tuple[int, ...]) -> None:
        assert records_of(small(), (PLAIN, {"dgamma": np.zeros(shape)})).result("dgamma") is None

    @pytest.mark.parametrize(("change", "cause"), [
        (lambda dgamma: dgamma[:, np.newaxis, np.newaxis], "extra-axis"),
        (lambda dgamma: np.stack([dgamma, dgamma]), ""),
        (lambda dgamma: dgamma[:-1], ""),
        (lambda dgamma: 2 * dgamma[np.newaxis], ""),
        (lambda _: None, ""),
    ])  # fmt: skip
    def test_shape(self, change: Callable[[Array], Array | None], cause: str) -> None:
        cases = [records_of(small(), (PLAIN, {"dgamma": change(right(small(), "dgamma"))}))]
        assert id_of(behaviour.explain_shape("dgamma", cases)) == cause

    @pytest.mark.parametrize(("shape", "cause"), [
        ((4, 1, 17), "extra-axis"),
        ((68,), "wrong-shape"),
        ((1, 17, 4), "wrong-shape"),
    ])  # fmt: skip
    def test_an_axis_is_extra_only_if_the_shape_is_right_without_it(
        self, shape: tuple[int, ...], cause: str
    ) -> None:
        assert small().shape == (4, 17)
        cases = [records_of(small(), (PLAIN, {"y": right(small(), "y").reshape(shape)}))]
        assert id_of(behaviour.explain_shape("y", cases)) == cause

    def test_transposed_result(self) -> None:
        y = right(small(), "y")
        for result, cause in ((y.T, "transposed"), (2 * y.T, "")):
            cases = [records_of(small(), (PLAIN, {"y": result}))]
            assert id_of(behaviour.explain_shape("y", cases)) == cause

    @pytest.mark.parametrize(("failures", "words"), [
        (("", "", "raised A: a"), "calls fail where D is 2"),
        (("", "raised B: b", "raised A: a"), ""),
        (("raised A: a", "raised A: a", "raised A: a"), ""),  # there are no control cases
    ])  # fmt: skip
    def test_sizes_at_which_calls_fail(self, failures: tuple[str, ...], words: str) -> None:
        cases = [
            CaseRecords(case, [Record(case.name, Call(), failure=failure)], bool(failure))
            for case, failure in zip(
                (small(), wider(), tv.case("float32-normal-4x2")), failures, strict=True
            )
        ]
        cause = behaviour.explain_raised("", cases)
        assert (cause.words if cause else "") == words

    def test_a_case_that_made_no_such_call_is_no_control(self) -> None:
        plain, failed = Record("", Call()), Record("", Call(LARGE), failure="gave no answer")
        cases = [
            CaseRecords(small(), [plain], wrong=False),
            CaseRecords(wider(), [plain, failed], wrong=True),
        ]
        assert not behaviour.explain_raised("", cases)


class TestValues:
    @pytest.mark.parametrize(
        "change", [lambda y: np.where(np.isnan(y), np.float32(1), y), np.negative, np.copy]
    )
    def test_non_finite_results_without_a_cause(self, change: Callable[[Array], Array]) -> None:
        cases = [
            records_of(case, (PLAIN, {"y": change(right(case, "y"))}))
            for case in cases_of("special")
        ]
        assert not behaviour.explain_special("y", cases)

    def test_infinities_that_are_clipped(self) -> None:
        case = next(case for case in cases_of("special") if np.isinf(right(case, "dbeta")).any())
        wide = case.with_inputs(dy=np.where(np.arange(17) < 4, np.inf, case.dy).astype(np.float32))
        result = np.nan_to_num(right(wide, "dbeta"))
        cause = behaviour.explain_special("dbeta", [records_of(wide, (PLAIN, {"dbeta": result}))])
        assert id_of(cause) == "nan-to-0-inf-to-largest(result)"

    @pytest.mark.parametrize(("replaced", "cause"), [
        (lambda x: ~np.isfinite(x), "non-finite-to-0(x)"),
        (np.isnan, "nan-to-0(x)"),
    ], ids=["not finite", "NaN"])  # fmt: skip
    def test_inputs_that_are_replaced(
        self, replaced: Callable[[Array], Array], cause: str
    ) -> None:
        cases = []
        for case in cases_of("special"):
            with_zeros = case.with_inputs(x=np.where(replaced(case.x), np.float32(0), case.x))
            cases.append(records_of(case, (PLAIN, {"y": right(with_zeros, "y")})))
        assert id_of(behaviour.explain_special("y", cases)) == cause

    @pytest.mark.parametrize(("column", "cause"), [
        (np.float32(np.nan), "nan-contained(x)"),
        (np.float32(1), ""),
    ], ids=["NaN", "number"])  # fmt: skip
    def test_nan_that_statistics_ignore(self, column: Array, cause: str) -> None:
        cases = []
        for case in cases_of("special"):
            nan = np.isnan(case.x)
            rows = nan.any(axis=1, keepdims=True)
            y = np.where(nan, column, np.where(rows, np.float32(2), right(case, "y")))
            cases.append(records_of(case, (PLAIN, {"y": y})))
        assert id_of(behaviour.explain_special("y", cases)) == cause

    @pytest.mark.parametrize(
        "change", [np.copy, lambda y: np.where(np.abs(y) < TINY, np.float32(1), y)]
    )
    def test_subnormal_numbers_without_a_cause(self, change: Callable[[Array], Array]) -> None:
        cases = [
            records_of(case, (PLAIN, {"y": change(right(case, "y"))}))
            for case in cases_of("subnormal")
        ]
        assert not behaviour.explain_subnormal("y", cases)

    def test_subnormal_results_of_normal_inputs(self) -> None:
        gamma, beta = np.full(17, 2.0**-125, np.float32), np.zeros(17, np.float32)
        case = replace(small().with_inputs(gamma=gamma, beta=beta), kind="subnormal")
        y = right(case, "y")
        result = np.where(np.abs(y) < TINY, np.float32(0), y)
        cause = behaviour.explain_subnormal("y", [records_of(case, (PLAIN, {"y": result}))])
        assert id_of(cause) == "flushed(results)"
