"""Numbers next to a midpoint are rounded once, where float64 has nothing but the midpoint."""

from fractions import Fraction

import pytest

from truenorm.verify.oracle import ONE, LinearInRoot, round_exactly
from truenorm.verify.types import FORMATS

BESIDE = Fraction(1, 1 << 200)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("power", [0, 2, -9])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("side", [1, -1], ids=["above", "below"])
def test_beside_a_power_of_two(dtype: str, power: int, sign: int, side: int) -> None:
    """Below it numbers are twice as dense: a midpoint is only a quarter of its ulp away."""
    digits = FORMATS[dtype].precision - (1 if side > 0 else 0)
    top = Fraction(1 << 9 + power, 1 << 9)
    ends = top, top * (1 + side * Fraction(1, 1 << digits))
    # A tie goes to the power, which is even.
    for beside, nearest in ((-side, ends[0]), (0, ends[0]), (side, ends[1])):
        value = sign * ((ends[0] + ends[1]) / 2 + beside * BESIDE)
        number = LinearInRoot(ONE, 0, value.numerator, value.denominator)
        assert round_exactly([number], FORMATS[dtype])[0, 0] == sign * nearest
