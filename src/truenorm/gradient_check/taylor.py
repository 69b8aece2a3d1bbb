"""The Taylor test: how the remainder of the first-order expansion shrinks with the step."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from truenorm.gradient_check.jet_method import JetMethod
from truenorm.gradient_check.method import NotApplicableError
from truenorm.gradient_check.noise import spread_of
from truenorm.gradient_check.problem import (
    Array,
    Backward,
    Contributions,
    Forward,
    Problem,
    make_problem,
)

STEPS = tuple(2.0**-k for k in range(4, 61, 4))
ROUNDING = 2.0**-50
"""A remainder below this is rounding."""
SECOND_ORDER = 1.9
"""An order above this counts as two."""


@dataclass(frozen=True)
class TaylorTest:
    """The outcome of `truenorm.taylor_test`; true if the remainder is of second order.

    Attributes
    ----------
    steps : tuple of float
        h, in units of the spread of the inputs.
    remainders : tuple of float
        R(h) = loss(x + h*v) - loss(x) - h*<gradient, v>, relative to h = 1 of the last term.
    exact : bool
        True if forward was evaluated with hundreds of bits, False if in float64.
    """

    steps: tuple[float, ...]
    remainders: tuple[float, ...]
    exact: bool

    @property
    def orders(self) -> tuple[float, ...]:
        """The order of R between neighbouring steps: 2 for a right gradient, 1 for a wrong one."""
        pairs = zip(self.steps, self.steps[1:], self.remainders, self.remainders[1:], strict=False)
        return tuple(
            math.log(a / b) / math.log(h / k) if a > 0 and b > 0 else math.nan
            for h, k, a, b in pairs
        )

    @property
    def order(self) -> float:
        """The order at the largest steps; infinite if the remainder is only rounding."""
        return self.orders[0] if self.remainders[0] > ROUNDING else math.inf

    @property
    def level(self) -> float:
        """The relative error of the gradient: R(h)/h at the smallest step.

        In float64 it rises again before that, and the minimum is taken.
        """
        relative = [r / h for r, h in zip(self.remainders, self.steps, strict=True)]
        return relative[-1] if self.exact else min(relative)

    def __bool__(self) -> bool:
        """Return True if R is of second order at the largest steps."""
        return self.order > SECOND_ORDER

    def __str__(self) -> str:
        """Return one line for each step."""
        precision = "in hundreds of bits" if self.exact else "in float64"
        lines = [
            f"Taylor test, forward {precision}: order {self.order:.2f}, level {self.level:.1e}"
        ]
        for h, remainder in zip(self.steps, self.remainders, strict=True):
            lines.append(f"  h {h:.1e}  R {remainder:.1e}  R/h {remainder / h:.1e}")
        return "\n".join(lines)


def taylor_test(
    forward: Forward, backward: Backward, inputs: Sequence[Array], *, seed: int = 0
) -> TaylorTest:
    """Measure the error of a gradient by the remainder of the Taylor expansion.

    Parameters
    ----------
    forward, backward, inputs
        As in `gradcheck`.
    seed : int
        Seed of the random dy and direction.

    Returns
    -------
    TaylorTest
        Steps and remainders, for a plot; its `level` is the error of the gradient. With
        python-flint, forward is evaluated with hundreds of bits if it can run on objects, and the
        level goes down to the rounding errors of backward.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> def forward(x):
    ...     return np.exp(x)
    >>> def backward(dy, x):
    ...     return (dy * np.exp(x),)
    >>> test = tn.taylor_test(forward, backward, [np.linspace(-1, 1, 5)])
    >>> bool(test), test.level < 1e-6
    (True, True)
    """
    random = np.random.default_rng([*b"taylor", seed])
    problem = make_problem(forward, backward, inputs, random)
    steps, terms = [], []
    for value, gradient in zip(problem.inputs, problem.gradients, strict=True):
        step = np.zeros(value.shape)
        if gradient is not None and value.size:
            step = spread_of(value) * np.asarray(random.standard_normal(value.shape))
            pairs = zip(gradient.flat, step.flat, strict=True)
            terms += [float(g) * float(v) for g, v in pairs]
        steps.append(step)
    size = math.fsum(map(abs, terms)) or 1.0
    slope = math.fsum(terms)
    change, exact = _change_of_loss(problem, steps)
    return TaylorTest(STEPS, tuple(abs(change(h, h * slope)) / size for h in STEPS), exact)


def _change_of_loss(
    problem: Problem, steps: Contributions
) -> tuple[Callable[[float, float], float], bool]:
    """Return a function for loss(x + h*v) - loss(x) - expected, and True if it is exact."""
    try:
        return JetMethod(problem).change_of_loss(steps), True
    except NotApplicableError:
        pass
    start = problem.outputs(problem.inputs)

    def change(h: float, expected: float) -> float:
        moved = [x + (h * v).astype(x.dtype) for x, v in zip(problem.inputs, steps, strict=True)]
        changes = [
            y.astype(np.float64) - y0.astype(np.float64)
            for y, y0 in zip(problem.outputs(moved), start, strict=True)
        ]
        sums = (float(each.sum()) for each in problem.times_dy(changes))
        return math.fsum([*sums, -expected])

    return change, False
