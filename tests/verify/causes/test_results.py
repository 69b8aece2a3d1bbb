"""Results of another form, or with NaN and subnormal numbers in wrong places, have a cause."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.diagnosis import conduct, values
from truenorm.verify.diagnosis.evidence import Seen
from truenorm.verify.operation import Case
from truenorm.verify.running.records import PLAIN, Call, Record
from truenorm.verify.types import Array
from verify.causes.made import right, seen

SMALL = tv.case("float32-normal-4x17")
WIDER = tv.case("float32-normal-4x64")


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
        said = conduct.of_type("y", found)
        assert said.startswith(words)
        assert bool(said) == bool(words)

    def test_a_result_of_another_size_says_nothing_of_types(self) -> None:
        wide = seen(SMALL, (PLAIN, {"y": right(SMALL, "y").astype(np.float64)}))
        short = right(WIDER, "y").astype(np.float64)[:, :-1]
        found = [wide, seen(WIDER, (PLAIN, {"y": short}))]
        assert found[1].result("y") is None
        assert conduct.of_type("y", found) == conduct.of_type("y", [wide])

    @pytest.mark.parametrize("shape", [(), (16,), (2, 17)])
    def test_sums_of_another_size_are_none(self, shape: tuple[int, ...]) -> None:
        assert seen(SMALL, (PLAIN, {"dgamma": np.zeros(shape)})).result("dgamma") is None

    def test_the_type_of_x(self) -> None:
        operation = tv.norm("rms_norm", parameters="float32")
        case = tv.case("bfloat16-normal-4x17", operation=operation)
        result = right(case, "dgamma").astype(case.x.dtype)
        said = conduct.of_type("dgamma", [seen(case, (PLAIN, {"dgamma": result}))])
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
        said = conduct.of_shape("dgamma", found)
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
        assert conduct.of_shape("dbeta", found) == "dbeta is left out where gamma is None"

    def test_where_it_does_not_return(self) -> None:
        def said(*failures: str) -> str:
            cases = (SMALL, WIDER, tv.case("float32-normal-4x2"))
            found = [
                Seen(case, [Record(case.name, Call(), failure=failure)], bool(failure))
                for case, failure in zip(cases, failures, strict=True)
            ]
            return conduct.of_raised("", found)

        assert said("", "", "raised A: a") == "where D is 2 it ends so, and nowhere else"
        assert not said("", "raised B: b", "raised A: a")
        assert not said("raised A: a", "raised A: a", "raised A: a")  # nothing sets them apart


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
