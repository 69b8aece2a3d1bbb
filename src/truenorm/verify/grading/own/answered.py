"""Answers of a large case, some rows at a time, and at the end those of its columns."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from truenorm.verify.grading.measuring import UNEXPLAINED
from truenorm.verify.grading.own.enclosed import ColumnScales, Enclosed
from truenorm.verify.operation import Case
from truenorm.verify.own.balls import Ball
from truenorm.verify.own.norms import near, parts
from truenorm.verify.parts import Scales
from truenorm.verify.types import Array

__all__ = ["answered"]


def answered(
    case: Case, outputs: Sequence[str]
) -> Iterator[tuple[slice, Enclosed] | tuple[None, Enclosed]]:
    """Yield some rows and the answers of those; then, with None, sums over all of them.

    Each has the `outputs` that it is about, and no more is in memory than one of them.
    """
    rows = [output for output in outputs if case.operation.is_rows(output)]
    sums = _Sums(case, [output for output in outputs if output not in rows])
    for some in parts(case):
        part = case.part(some)
        balls = near(part)
        exact = {"xhat": balls["xhat"].high, "r": balls["r"].high}
        scales = case.operation.scales(part, exact)
        sums.add(balls, scales)
        yield some, Enclosed(part, {output: balls[output] for output in rows}, scales)
    if case.shape[0] and sums.outputs:
        yield None, sums.enclosed()


class _Sums:
    """Sums over rows as balls, and their scales, as far as rows have come."""

    def __init__(self, case: Case, outputs: Sequence[str]) -> None:
        self._case, self.outputs = case, outputs
        self._balls: dict[str, Ball] = {}
        self._scales: dict[tuple[str, int], Array] = {}

    def add(self, balls: Mapping[str, Ball], scales: Scales) -> None:
        """Add some rows."""
        for output in self.outputs:
            ball = balls[output]
            self._balls[output] = self._balls[output] + ball if output in self._balls else ball
            for power in range(UNEXPLAINED):
                more = scales.of(output, power)
                self._scales[output, power] = self._scales.get((output, power), 0.0) + more

    def enclosed(self) -> Enclosed:
        """Return the answers, one for each column."""
        balls = {
            output: Ball(ball.high[0], ball.low[0], ball.radius[0])
            for output, ball in self._balls.items()
        }
        rows, size = self._case.shape
        # How many terms a sum has is told by the shape alone, and grows by one with each row.
        first = self._case.part(slice(0, 1))
        exact = {"xhat": np.zeros((1, size)), "r": np.zeros((1, 1))}
        of_one = self._case.operation.scales(first, exact)
        counts = {output: of_one.terms(output) + rows - 1 for output in self.outputs}
        scales = ColumnScales(self._scales, counts, np.zeros((1, 1)))
        return Enclosed(self._case, balls, scales)
