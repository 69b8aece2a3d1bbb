"""Inputs drawn by Hypothesis: shapes, axes, layouts, types and bit patterns."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ops.judged import DTYPES, LAYOUTS, Array, Inputs
from promise.oracle import FORMATS

EPSILONS = (1e-5, 0.0, 1.0, 3.0, 8.0, 5e-324, 1e-300, 1e300)


def patterns(dtype: np.dtype[Any], *, finite: bool) -> st.SearchStrategy[int]:
    """Draw a number of the type as its bits: small integers, corners and anything else."""
    form = FORMATS[dtype]
    corners = [0, 1, (1 << (form.precision - 1)) - 1, form.infinity - 1]  # 0, subnormals, largest
    small = [form.round_dyadic(value, 0) for value in range(1, 5)]
    remarkable = corners + small
    if not finite:
        remarkable += [form.infinity, form.nan, form.infinity | 1]  # the last one signals

    def tamed(pattern: int) -> int:
        """Clear the leading bit of the exponent of what is not finite."""
        not_finite = pattern & form.infinity == form.infinity
        return pattern ^ (form.minus >> 1) if finite and not_finite else pattern

    magnitudes = st.sampled_from(remarkable) | st.integers(0, form.minus - 1).map(tamed)
    return st.builds(int.__or__, magnitudes, st.sampled_from([0, form.minus]))


@st.composite
def arrays(draw: st.DrawFn, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    finite = draw(st.integers(0, 3)) > 0  # else one NaN is likely to rule them all
    elements = patterns(dtype, finite=finite)
    values = draw(hnp.arrays(FORMATS[dtype].storage, shape, elements=elements)).view(dtype)
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](values)


@st.composite
def axes_of(draw: st.DrawFn, rank: int) -> int | tuple[int, ...]:
    """Draw axes from the front or from the back, in any order."""
    signed = [k - rank * back for k in range(rank) for back in (0, 1)]
    if draw(st.booleans()):
        return draw(st.sampled_from(signed))
    several = st.lists(st.sampled_from(signed), min_size=1, unique_by=lambda k: k % rank)
    return tuple(draw(several))


@st.composite
def any_inputs(draw: st.DrawFn) -> Inputs:
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=5, max_side=4))
    axis = draw(axes_of(len(shape)))
    named = (axis,) if isinstance(axis, int) else axis
    row_shape = tuple(shape[k] for k in sorted(k % len(shape) for k in named))
    dtype = draw(st.sampled_from(DTYPES))
    gamma, beta = (
        None if kind is None else draw(arrays(kind, row_shape))
        for kind in draw(st.tuples(*[st.sampled_from([dtype, None, *DTYPES])] * 2))
    )
    x, dy = draw(arrays(dtype, shape)), draw(arrays(dtype, shape))
    return Inputs(x, gamma, beta, dy, axis, draw(st.sampled_from(EPSILONS)))
