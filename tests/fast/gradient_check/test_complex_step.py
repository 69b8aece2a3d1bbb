"""Complex steps: refused where forward is not analytic, exact elsewhere."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.gradient_check.pairs import PAIRS, PASS, Array, data, demand

NOT_APPLICABLE: dict[str, tuple[Callable[[Array], Any], str]] = {
    "abs": (np.abs, "not analytic"),
    "abs beside what is analytic": (lambda x: x + np.abs(x), "not analytic"),
    "conj": (lambda x: x * np.conj(x), "not analytic"),
    "norm": (lambda x: x / np.sqrt((np.abs(x) ** 2).sum()), "not analytic"),
    "real part": (lambda x: x * x.real, "not analytic"),
    "not real on the reals": (lambda x: 1j * x if np.iscomplexobj(x) else x, "not analytic"),
    "a cast": (lambda x: x.real.astype(np.float64), "not analytic"),
    "a constant": (lambda x: np.ones(x.shape), "drops the imaginary part"),
    "a share of abs": (lambda x: x + 1e-3 * np.abs(x), "not analytic"),
    "abs in a small output": (
        lambda x: np.concatenate([1e3 * x, 1e-3 * np.abs(x)]),
        "not analytic",
    ),
}


@pytest.mark.parametrize("name", NOT_APPLICABLE)
def test_complex_step_is_refused(name: str) -> None:
    """A complex step would give a wrong derivative: wrong gradients would pass."""
    forward, message = NOT_APPLICABLE[name]
    with pytest.raises(ValueError, match=message):
        tn.gradcheck(forward, lambda _, x: np.zeros(x.shape), data((7,)), method="complex")


@pytest.mark.usefixtures("no_flint")
def test_share_of_abs_without_jets() -> None:
    def forward(x: Array) -> Any:
        return x + 1e-3 * np.abs(x)

    demand(PASS, forward, lambda dy, x: dy * (1 + 1e-3 * np.sign(x)), data((7,)))
    assert not tn.gradcheck(forward, lambda dy, _: dy, data((7,)))


@pytest.mark.parametrize("forward", [lambda x: x - x.max(), lambda x: x - np.sort(x)[-1]])
def test_complex_step_takes_a_shift_by_the_largest(forward: Callable[[Array], Array]) -> None:
    def backward(dy: Array, x: Array) -> Array:
        dx = dy.copy()
        dx[x.argmax()] -= dy.sum()
        return dx

    demand(PASS, forward, backward, data((7,)), method="complex")


@pytest.mark.parametrize("scale", [1e-60, 1e-30, 1e-25, 1e30, 1e60])
def test_complex_step_is_small_for_data_of_any_scale(scale: float) -> None:
    def backward(dy: Array, x: Array) -> Any:
        unit = x / scale
        rstd = 1 / np.sqrt((unit * unit).mean())
        xhat = rstd * unit
        return rstd * (dy - xhat * (dy * xhat).mean()) / scale

    x = scale * data((6,))[0]
    demand(PASS, lambda x: x / np.sqrt((x * x).mean()), backward, x, method="complex")


def test_complex_step_is_exact_up_to_rounding() -> None:
    pair = PAIRS["RMSNorm"]
    result = tn.gradcheck(pair.forward, pair.backward, pair.inputs, method="complex")
    assert result.error <= 1e-14
    assert 2.0**-50 <= result.floor <= 1e-12
