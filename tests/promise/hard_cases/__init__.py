"""Results that lie next to a rounding boundary, on purpose: where a wrong bound is seen.

Random rows never come near enough. Here a number that enters the result linearly (beta for y, the
dy of a column with small gamma for dx, the dy of a further row for dgamma) is chosen to carry the
result onto a midpoint of two neighbours. What remains is the rounding of that number; a second
such number takes away most of that, and so on, until float64 sees no difference any more.

How near, relative to the result, as balls of 1024 bits and more measured it on 6,000 elements each
(nine in ten are nearer than the first number, half nearer than the second):

    float16, bfloat16, float32   y 2^-55, 2^-57    dx 2^-60, 2^-63    dgamma 2^-61, 2^-63
    float64                      y 2^-109, 2^-111  dx 2^-107, 2^-108  dgamma 2^-107, 2^-108

with ties and 2^-54 or 2^-1075 (eps one ulp beside) in between; dbeta is a tie or one subnormal
beside it. Plain float64 arithmetic gets 37 to 50 % of these y, dx and dgamma wrong (of float64
itself 50 to 62 %). With the bound E of level 1 none of 10,000 was accepted; with E/16, 2 to 6 % of
the near ones were accepted and wrong, with E/64 about a third.

RMSNorm has no beta: there elements of x, ever smaller, add to the mean square what carries one y
of the row down to a midpoint.

float16 and bfloat16 come this near for y only with float32 parameters, or with eps beside a tie:
their own numbers are too coarse.
"""

from promise.hard_cases.making import OUTPUTS, RMS_OUTPUTS, hard_cases, hard_elements

__all__ = ["OUTPUTS", "RMS_OUTPUTS", "hard_cases", "hard_elements"]
