"""Which argument is which, by name, by place, or as it is written."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from truenorm.verify.running.pytorch import Arguments, arguments_of

PLAIN = ["x", "gamma", "eps"]


def called(function: Callable[..., Any], wanted: list[str], signature: str = "") -> Any:
    values = {each: each for each in ("x", "residual", "gamma", "beta", "eps", "out")}
    known = {each: values[each] for each in wanted}
    known |= {"shape": [8], "size": 8}  # type: ignore[dict-item]
    return arguments_of(function, wanted, signature).call(function, known)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, weight, eps: (x, weight, eps),
        lambda eps, W, X: (X, W, eps),  # noqa: N803
        lambda hidden_states, gamma, epsilon=None: (hidden_states, gamma, epsilon),
        lambda input, *, scale, variance_epsilon: (input, scale, variance_epsilon),
        lambda x, w, /, eps, cache=None: (x, w, eps),
        lambda *given: given,
    ],
)
def test_by_name_in_any_order(function: Callable[..., Any]) -> None:
    assert called(function, PLAIN) == ("x", "gamma", "eps")


def test_of_more_than_the_operation_has() -> None:
    """As flash-linear-attention's: what must be given, and is not there, is None."""

    def rms_norm(x: Any, weight: Any, bias: Any, residual: Any = 1, eps: Any = 0) -> Any:
        return x, weight, bias, residual, eps

    assert called(rms_norm, PLAIN) == ("x", "gamma", None, 1, "eps")


def test_the_length_of_a_row() -> None:
    def rms_norm(x: Any, normalized_shape: Any, weight: Any, eps: Any) -> Any:
        return normalized_shape

    assert called(rms_norm, PLAIN) == [8]
    assert called(lambda hidden_size, eps: hidden_size, ["eps"]) == 8


def test_as_written() -> None:
    written = "out, residual, X, weight, eps"
    wanted = ["out", "x", "residual", "gamma", "eps"]
    assert called(lambda *given: given, wanted, written) == (
        *("out", "residual", "x", "gamma", "eps"),
    )


def test_what_has_no_signature_gets_the_usual_order() -> None:
    assert arguments_of(dict, PLAIN) == Arguments(("x", "gamma", "eps"))


@pytest.mark.parametrize(
    ("function", "signature", "said"),
    [
        (lambda x, weight: x, "", "eps is none of its arguments (eps, epsilon, variance_epsilon)"),
        (lambda x, weight, eps, z: x, "", "nothing is known of z;"),
        (lambda x, weight, w, eps: x, "", "nothing is known of w;"),
        (print, "x, weights, magic", "nothing is known of magic; eps is none"),
        (lambda x, weight: x, "", "write them in order, as signature='input, weight, eps'"),
    ],
)
def test_what_cannot_be_matched(function: Callable[..., Any], signature: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        arguments_of(function, PLAIN, signature)
