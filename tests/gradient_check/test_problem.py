"""What is refused before anything is checked, and the words in which it is."""

from typing import Any

import numpy as np
import pytest

import truenorm as tn
from gradient_check.pairs import Array


def identity(x: Array) -> Array:
    return x


def right(dy: Array, _: Array) -> tuple[Array]:
    return (dy,)


@pytest.mark.parametrize("check", [tn.gradcheck, tn.dot_test, tn.taylor_test])
class TestRefused:
    def test_integers(self, check: Any) -> None:
        with pytest.raises(TypeError, match=r"x is of type int64.*\.astype\(float\)"):
            check(identity, right, [np.arange(3)])

    def test_non_finite_input(self, check: Any) -> None:
        with pytest.raises(ValueError, match="x2 has a non-finite element"):
            check(lambda x1, x2: x1 * x2, right, [np.ones(1), np.full(1, np.nan)])

    def test_wrong_number_of_gradients(self, check: Any) -> None:
        with pytest.raises(ValueError, match="backward returned 1 gradients for 2 inputs"):
            check(np.multiply, lambda dy, a, b: (dy * a * b,), [np.ones(2)] * 2)

    def test_wrong_shape(self, check: Any) -> None:
        with pytest.raises(ValueError, match=r"the gradient of x has shape \(\) but"):
            check(identity, lambda dy, x: ((dy * x).sum(),), [np.ones(2)])

    def test_a_gradient_that_is_not_real(self, check: Any) -> None:
        with pytest.raises(TypeError, match=r"the gradient of x is of type complex128"):
            check(identity, lambda dy, _: (dy + 0j,), [np.ones(2)])


@pytest.mark.parametrize("check", [tn.gradcheck, tn.dot_test])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "forward"}, "method is 'forward': choose one of auto, jet, complex, central"),
        ({"probes": 0}, "probes is 0"),
        ({"tol": 0.0}, "tol is 0.0: pass a positive number"),
        ({"tol": float("nan")}, "tol is nan"),
    ],
)
def test_wrong_options(check: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(identity, right, [np.ones(2)], **options)


@pytest.mark.parametrize("check", [tn.gradcheck, tn.dot_test, tn.taylor_test])
class TestOneArray:
    def test_is_taken_for_inputs_and_for_a_gradient(self, check: Any) -> None:
        assert check(lambda x: x**2, lambda dy, x: 2 * dy * x, np.array([[0.5, 1.5]]))

    def test_is_not_taken_for_several_gradients(self, check: Any) -> None:
        with pytest.raises(ValueError, match="returned an array where a tuple of 2 was expected"):
            check(lambda a, b: a * b, lambda dy, a, b: dy * a * b, [np.ones(2)] * 2)


SLIPS: dict[str, tuple[Any, Any, Any, str]] = {
    "forward returns what it saved": (
        lambda x: (x, {"saved": x}),
        right,
        np.ones(2),
        "forward returned a tuple whose element 1 is a dict: return y",
    ),
    "forward returns nothing": (lambda _: None, right, np.ones(2), "forward returned None"),
    "forward returns integers": (
        lambda x: x.astype(int),
        right,
        np.ones(2),
        "forward returned an array of type int64",
    ),
    "backward returns nothing": (
        identity,
        lambda *_: None,
        np.ones(2),
        "backward returned None where a tuple of 1 was expected",
    ),
    "backward returns names": (
        identity,
        lambda dy, _: {"x": dy},
        np.ones(2),
        "backward returned a dict where a tuple of 1",
    ),
    "numbers instead of arrays": (
        identity,
        right,
        [1.0, 2.0],
        r"forward takes .*x.* but is called with 2 arguments: pass a list of inputs",
    ),
    "backward takes dy alone": (
        identity,
        lambda dy: dy,
        np.ones(2),
        r"backward takes \(dy\) but is called with 2 arguments: write it as backward\(dy, x\)",
    ),
    "no inputs": (identity, right, None, "inputs is of type NoneType: pass an array, or a list"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_usual_slips(name: str) -> None:
    forward, backward, inputs, words = SLIPS[name]
    with pytest.raises((TypeError, ValueError), match=words):
        tn.gradcheck(forward, backward, inputs)


def test_inputs_go_by_the_names_that_forward_has_for_them() -> None:
    def forward(x: Array, weight: Array, *, scale: float = 2.0) -> Array:
        return scale * x * weight

    def backward(dy: Array, x: Array, weight: Array) -> tuple[Array, Array]:
        return 2 * dy * weight, (2 + np.arange(2.0)) * dy * x

    found = tn.gradcheck(forward, backward, [np.ones(2), np.ones(2)])
    assert [each and each.name for each in found.inputs] == ["x", "weight"]
    assert "  weight: FAIL, " in str(found)
    assert "FAIL: gradient of weight at [1]: " in repr(found)
    unnamed = tn.gradcheck(lambda *given: given[0], lambda dy, *_: (dy,), [np.ones(2)])
    assert "  input 0: PASS" in str(unnamed)
