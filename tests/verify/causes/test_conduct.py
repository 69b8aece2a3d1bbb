"""What is no matter of arithmetic has a cause if what came back tells, and none if it does not."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.answers.expected import expected
from truenorm.verify.causes import forms, memory, orders, values
from truenorm.verify.causes.places import beyond
from truenorm.verify.causes.seen import Seen
from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import (
    AGAIN,
    INTERLEAVED,
    LARGE,
    LATER,
    PLAIN,
    ROWS,
    Call,
    Record,
)
from truenorm.verify.runs.in_process import InProcess
from truenorm.verify.types import Array
from verify.planted.registry import PLANTED

SMALL = tv.case("float32-normal-4x17")
WIDER = tv.case("float32-normal-4x64")


def seen(
    case: Case, *calls: tuple[Call | str, Mapping[str, Array | None]], wrong: bool = True
) -> Seen:
    """Return a case with what came back from calls."""
    made = ((call if isinstance(call, Call) else Call(call), results) for call, results in calls)
    return Seen(case, [Record(case.name, call, results) for call, results in made], wrong)


def right(case: Case, output: str) -> Array:
    value = expected(case).values[output]
    assert value is not None
    return value.copy()


def asked(name: str, call: str, case: Case = SMALL) -> Seen:
    """Return what a planted bug gives."""
    return Seen(case, [InProcess(PLANTED[name].subject).run(case, Call(call))], wrong=True)


class TestMemory:
    def test_an_input_that_holds_a_result(self) -> None:
        found = [asked("in-place damage to dy", PLAIN, case) for case in (SMALL, WIDER)]
        assert memory.of_inputs("", found) == "dx is written over dy"

    def test_an_input_that_holds_something_else_in_one_case(self) -> None:
        record = Record(WIDER.name, Call(), damaged=("dy",))
        found = [asked("in-place damage to dy", PLAIN), Seen(WIDER, [record], wrong=True)]
        assert not memory.of_inputs("", found)

    def test_a_result_that_becomes_the_next_one(self) -> None:
        found = [asked("y in a buffer that is used again", LATER)]
        assert "each call writes y to the same memory" in memory.of_overwritten("y", found)

    def test_a_result_that_becomes_something_else(self) -> None:
        found = [seen(SMALL, (LATER, {"y": right(SMALL, "y") + 1}))]
        assert not memory.of_overwritten("y", found)

    def test_gradients_at_other_rows(self) -> None:
        found = [asked("gradients of a stale forward pass", INTERLEAVED)]
        for output in ("dx", "dgamma"):
            assert memory.of_stale(output, found).startswith("backward takes what the latest")

    @pytest.mark.parametrize("more", [0.0, 1.0])
    def test_gradients_at_no_rows_of_ours(self, more: float) -> None:
        result = right(SMALL, "dx") + np.float32(more)
        assert not memory.of_stale("dx", [seen(SMALL, (INTERLEAVED, {"dx": result}))])


class TestPlaces:
    COPIES = np.tile(np.arange(1.0, 500.0, dtype=np.float32), (33_700, 1))

    def changed(self, places: Callable[[Any], Any] | None) -> Array:
        copies = self.COPIES.copy()
        flat = copies.reshape(-1)
        beyond_it = np.arange(2**24, flat.size)
        flat[beyond_it] = 0 if places is None else flat[places(beyond_it)]
        return copies

    def test_what_is_right(self) -> None:
        assert not beyond(self.COPIES)

    def test_what_is_not_written(self) -> None:
        assert beyond(self.changed(None)) == "0 from element 2^24 on: these are not written"

    def test_places_in_float32(self) -> None:
        copies = self.changed(lambda at: np.minimum(at.astype(np.float32), at[-1]).astype(int))
        assert beyond(copies) == "wrong from element 2^24 on: places are counted in float32"

    def test_places_that_begin_anew(self) -> None:
        copies = self.changed(lambda at: at - 2**24)
        assert beyond(copies) == "wrong from element 2^24 on: there it begins anew"

    def test_something_else(self) -> None:
        assert not beyond(self.changed(lambda at: at - 1))

    def test_it_is_said_of_the_call(self) -> None:
        record = Record(
            SMALL.name, Call(LARGE, 0, 4), {"y": right(SMALL, "y")}, holds={"y": ("0 there",)}
        )
        assert memory.of_large("y", [Seen(SMALL, [record], True)]) == "in one call, y is 0 there"


def next_number(array: Array) -> Array:
    return np.nextafter(array, np.float32(np.inf))


class TestRepeat:
    def test_sums_in_another_order(self) -> None:
        found = [
            seen(case, (PLAIN, {"dgamma": right(case, "dgamma")}),
                 (AGAIN, {"dgamma": next_number(right(case, "dgamma"))}))
            for case in (SMALL, WIDER)
        ]  # fmt: skip
        assert "rows are added up in another order" in orders.of_repeat("dgamma", found)

    def test_two_terms_have_one_order(self) -> None:
        case = tv.case("float32-normal-2x1025")
        both = (PLAIN, {"dgamma": right(case, "dgamma")}), (
            AGAIN, {"dgamma": next_number(right(case, "dgamma"))}
        )  # fmt: skip
        assert not orders.of_repeat("dgamma", [seen(case, *both), seen(case, *both)])

    @pytest.mark.parametrize(
        ("place", "words"),
        [
            ((-1, -1), "the last element of the last row is not written"),
            ((0, slice(None)), "the first row is not written"),
            ((slice(None), -1), "the last column is not written"),
            ((1, 3), ""),
        ],
    )
    def test_what_is_not_written(self, place: Any, words: str) -> None:
        found = []
        for case in (SMALL, WIDER):
            one, other = right(case, "y"), right(case, "y")
            one[place], other[place] = 5, 7
            found.append(seen(case, (PLAIN, {"y": one}), (AGAIN, {"y": other})))
        said = orders.of_repeat("y", found)
        assert said.startswith(words)
        assert bool(said) == bool(words)


class TestBatch:
    CASE = tv.case("float32-batch-300x67")
    SIZES = (1, 7, 128, 255, 256, 257)

    def said(self, computed: Callable[[Array], Array]) -> str:
        """Return what is said of a kernel whose y of a row depends on its batch."""
        y = right(self.CASE, "y")
        calls = [(Call(ROWS, 0, size), {"y": computed(y[:size])}) for size in self.SIZES]
        return orders.of_batch("y", [seen(self.CASE, (PLAIN, {"y": computed(y)}), *calls)])

    def test_a_number_of_rows_decides(self) -> None:
        words = "batches of up to 128 rows are computed otherwise than those of 255 or more"
        assert self.said(lambda y: next_number(y) if len(y) > 200 else y) == words

    def test_two_numbers_do(self) -> None:
        def between(y: Array) -> Array:
            return next_number(y) if 100 < len(y) < 200 else y

        assert not self.said(between)

    def test_the_last_row_does(self) -> None:
        def last(y: Array) -> Array:
            return np.concatenate([y[:-1], next_number(y[-1:])])

        assert not self.said(last)


class TestForms:
    @pytest.mark.parametrize(
        ("of", "words"),
        [
            (lambda y: y.astype(np.float64), "y is rounded to float32, and then turned into"),
            (lambda y: y.astype(np.float64) * (1 + 2.0**-40), "y is not rounded to float32"),
            (lambda y: y.astype(np.float16), ""),
        ],
    )
    def test_types(self, of: Callable[[Array], Array], words: str) -> None:
        found = [seen(case, (PLAIN, {"y": of(right(case, "y"))})) for case in (SMALL, WIDER)]
        said = forms.of_type("y", found)
        assert said.startswith(words)
        assert bool(said) == bool(words)

    def test_the_type_of_x(self) -> None:
        operation = tv.norm("rms_norm", parameters="float32")
        case = tv.case("bfloat16-normal-4x17", operation=operation)
        result = right(case, "dgamma").astype(case.x.dtype)
        said = forms.of_type("dgamma", [seen(case, (PLAIN, {"dgamma": result}))])
        assert said == "dgamma is in the type of x"

    @pytest.mark.parametrize(
        ("of", "words"),
        [
            (lambda dgamma: dgamma[np.newaxis], "it has an axis of length 1 too many"),
            (lambda dgamma: np.stack([dgamma / 4, dgamma * 0.75]), "over its first axis is right"),
            (lambda dgamma: np.stack([dgamma, dgamma]), ""),
            (lambda dgamma: dgamma[:-1], ""),
            (lambda dgamma: 2 * dgamma[np.newaxis], ""),
            (lambda _: None, ""),
        ],
    )
    def test_shapes(self, of: Callable[[Array], Array | None], words: str) -> None:
        found = [seen(SMALL, (PLAIN, {"dgamma": of(right(SMALL, "dgamma"))}))]
        said = forms.of_shape("dgamma", found)
        assert said.endswith(words)
        assert bool(said) == bool(words)

    def test_a_result_is_missing_with_a_parameter(self) -> None:
        cases = [case for case in tv.cases("float32", also=["no-gamma"]) if case.beta is not None]
        found = []
        for case in cases:
            wrong = case.gamma is None
            result = None if wrong else np.zeros(case.shape[1])
            found.append(seen(case, (PLAIN, {"dbeta": result}), wrong=wrong))
        assert any(each.wrong for each in found)
        assert forms.of_shape("dbeta", found) == "dbeta is left out where gamma is None"

    def test_where_it_does_not_return(self) -> None:
        def said(*failures: str) -> str:
            cases = (SMALL, WIDER, tv.case("float32-normal-4x2"))
            found = [
                Seen(case, [Record(case.name, Call(), failure=failure)], bool(failure))
                for case, failure in zip(cases, failures, strict=True)
            ]
            return forms.of_raised("", found)

        assert said("", "", "raised A: a") == "where D is 2 it ends so, and nowhere else"
        assert not said("", "raised B: b", "raised A: a")


SPECIAL = [case for case in tv.cases("float32") if case.kind == "special"]
SUBNORMAL = [case for case in tv.cases("float32") if case.kind == "subnormal"]
TINY = np.finfo(np.float32).tiny


def zero_for_nan(y: Array, _: Case) -> Array:
    return np.where(np.isnan(y), np.float32(0), y)


def spread(y: Array, case: Case) -> Array:
    return y if np.isfinite(case.x).all() else np.full_like(y, np.nan)


def one_for_nan(y: Array, _: Case) -> Array:
    return np.where(np.isnan(y), np.float32(1), y)


def other_sign(y: Array, _: Case) -> Array:
    return -y


class TestValues:
    @pytest.mark.parametrize(
        ("of", "words"),
        [
            (zero_for_nan, "NaN in y is replaced by 0"),
            (spread, "a number of x that is not finite makes all of y NaN"),
            (one_for_nan, ""),
            (other_sign, ""),
            (lambda y, _: y, ""),
        ],
    )
    def test_what_is_not_finite(self, of: Callable[[Array, Case], Array], words: str) -> None:
        found = [seen(case, (PLAIN, {"y": of(right(case, "y"), case)})) for case in SPECIAL]
        assert values.of_special("y", found) == words

    def test_infinities_that_are_clipped(self) -> None:
        results = [right(case, "dbeta") for case in SPECIAL]
        assert any(np.isinf(result).any() for result in results)
        case = next(case for case in SPECIAL if np.isinf(right(case, "dbeta")).any())
        wide = case.with_inputs(dy=np.where(np.arange(17) < 4, np.inf, case.dy).astype(np.float32))
        result = np.nan_to_num(right(wide, "dbeta"))
        assert "infinity by the largest number" in values.of_special(
            "dbeta", [seen(wide, (PLAIN, {"dbeta": result}))]
        )

    def test_nan_that_is_taken_as_zero(self) -> None:
        found = []
        for case in SPECIAL:
            with_zeros = case.with_inputs(x=np.where(np.isfinite(case.x), case.x, np.float32(0)))
            found.append(seen(case, (PLAIN, {"y": right(with_zeros, "y")})))
        assert values.of_special("y", found) == "a number of x that is not finite is taken as 0"

    def test_subnormal_numbers(self) -> None:
        def said(of: Callable[[Array], Array]) -> str:
            found = [seen(case, (PLAIN, {"y": of(right(case, "y"))})) for case in SUBNORMAL]
            return values.of_subnormal("y", found)

        flushed = said(lambda y: np.where(np.abs(y) < TINY, np.float32(0), y))
        assert flushed == "subnormal inputs or results are taken as 0"
        assert not said(lambda y: y)
        assert not said(lambda y: np.where(np.abs(y) < TINY, np.float32(1), y))

    def test_results_alone(self) -> None:
        """Normal inputs, and a gamma that makes some of y subnormal."""
        gamma, beta = np.full(17, 2.0**-125, np.float32), np.zeros(17, np.float32)
        case = replace(SMALL.with_inputs(gamma=gamma, beta=beta), kind="subnormal")
        y = right(case, "y")
        result = np.where(np.abs(y) < TINY, np.float32(0), y)
        said = values.of_subnormal("y", [seen(case, (PLAIN, {"y": result}))])
        assert said == "subnormal results are taken as 0"
