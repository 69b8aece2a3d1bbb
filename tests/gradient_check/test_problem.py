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
        with pytest.raises(TypeError, match=r"input 0 is of type int64.*\.astype\(float\)"):
            check(identity, right, [np.arange(3)])

    def test_non_finite_input(self, check: Any) -> None:
        with pytest.raises(ValueError, match="input 1 has a non-finite element"):
            check(np.multiply, right, [np.ones(1), np.full(1, np.nan)])

    def test_wrong_number_of_gradients(self, check: Any) -> None:
        with pytest.raises(ValueError, match="backward returned 1 gradients for 2 inputs"):
            check(np.multiply, lambda dy, a, b: (dy * a * b,), [np.ones(2)] * 2)

    def test_wrong_shape(self, check: Any) -> None:
        with pytest.raises(ValueError, match=r"the gradient of input 0 has shape \(\) but"):
            check(identity, lambda dy, x: ((dy * x).sum(),), [np.ones(2)])

    def test_a_gradient_that_is_not_real(self, check: Any) -> None:
        with pytest.raises(TypeError, match=r"the gradient of input 0 is of type complex128"):
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
