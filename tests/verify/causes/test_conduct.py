"""What is no matter of arithmetic has a cause if what came back tells, and none if it does not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.diagnosis import conduct
from truenorm.verify.diagnosis.evidence import Seen
from truenorm.verify.diagnosis.values import beyond
from truenorm.verify.operation import Case
from truenorm.verify.running.records import (
    AGAIN,
    INTERLEAVED,
    LARGE,
    LATER,
    PLAIN,
    ROWS,
    Call,
    Record,
)
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import Array
from verify.causes.made import right, seen
from verify.planted.registry import PLANTED

SMALL = tv.case("float32-normal-4x17")
WIDER = tv.case("float32-normal-4x64")


def asked(name: str, call: str, case: Case = SMALL) -> Seen:
    """Return what a planted bug gives."""
    return Seen(case, [InProcess(PLANTED[name].subject).run(case, Call(call))], wrong=True)


class TestMemory:
    def test_an_input_that_holds_a_result(self) -> None:
        found = [asked("in-place damage to dy", PLAIN, case) for case in (SMALL, WIDER)]
        assert conduct.of_inputs("", found) == "dx is written over dy"

    def test_an_input_that_holds_something_else_in_one_case(self) -> None:
        record = Record(WIDER.name, Call(), damaged=("dy",))
        found = [asked("in-place damage to dy", PLAIN), Seen(WIDER, [record], wrong=True)]
        assert not conduct.of_inputs("", found)

    def test_a_result_that_becomes_the_next_one(self) -> None:
        found = [asked("y in a buffer that is used again", LATER)]
        assert "each call writes y to the same memory" in conduct.of_overwritten("y", found)

    def test_a_result_that_becomes_something_else(self) -> None:
        found = [seen(SMALL, (LATER, {"y": right(SMALL, "y") + 1}))]
        assert not conduct.of_overwritten("y", found)

    def test_gradients_at_other_rows(self) -> None:
        found = [asked("gradients of a stale forward pass", INTERLEAVED)]
        for output in ("dx", "dgamma"):
            assert conduct.of_stale(output, found).startswith("backward takes what the latest")

    @pytest.mark.parametrize("more", [0.0, 1.0])
    def test_gradients_at_no_rows_of_ours(self, more: float) -> None:
        result = right(SMALL, "dx") + np.float32(more)
        assert not conduct.of_stale("dx", [seen(SMALL, (INTERLEAVED, {"dx": result}))])


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
        assert conduct.of_large("y", [Seen(SMALL, [record], True)]) == "in one call, y is 0 there"


def next_number(array: Array) -> Array:
    return np.nextafter(array, np.float32(np.inf))


class TestRepeat:
    def test_sums_in_another_order(self) -> None:
        found = [
            seen(case, (PLAIN, {"dgamma": right(case, "dgamma")}),
                 (AGAIN, {"dgamma": next_number(right(case, "dgamma"))}))
            for case in (SMALL, WIDER)
        ]  # fmt: skip
        assert "rows are added up in another order" in conduct.of_repeat("dgamma", found)

    def test_two_terms_have_one_order(self) -> None:
        case = tv.case("float32-normal-2x1025")
        both = (PLAIN, {"dgamma": right(case, "dgamma")}), (
            AGAIN, {"dgamma": next_number(right(case, "dgamma"))}
        )  # fmt: skip
        assert not conduct.of_repeat("dgamma", [seen(case, *both), seen(case, *both)])

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
        said = conduct.of_repeat("y", found)
        assert said.startswith(words)
        assert bool(said) == bool(words)


class TestBatch:
    CASE = tv.case("float32-batch-300x67")
    SIZES = (1, 7, 128, 255, 256, 257)

    def said(self, computed: Callable[[Array], Array]) -> str:
        """Return what is said of a kernel whose y of a row depends on its batch."""
        y = right(self.CASE, "y")
        calls = [(Call(ROWS, 0, size), {"y": computed(y[:size])}) for size in self.SIZES]
        return conduct.of_batch("y", [seen(self.CASE, (PLAIN, {"y": computed(y)}), *calls)])

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
