"""Make hard cases: the same ones for the same seed, on a machine whose longdouble has 64 bits."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from flint import ctx

from promise.families import Case
from promise.hard_cases.maker import FLOAT64, Dtype, Maker
from promise.hard_cases.near import near_dgamma, near_dx, near_y
from promise.hard_cases.not_centred import near_y_by_x, tie_dx_of_two, tie_y_by_product
from promise.hard_cases.ties import beside, tie_dbeta, tie_dgamma, tie_dx, tie_y

OUTPUTS = ("y", "dx", "dgamma", "dbeta")
RMS_OUTPUTS = OUTPUTS[:3]
PRECISION = 256
SIZES = (17, 64, 67, 513, 1000, 1024)
ROW_SIZES = (7, 8, 9, 12, 17, 64)  # where a row has one hard element
EPSILONS = (1e-5, 1.0, 1e-300)
OFFSETS = (0.0, 0.0, 30.0)
FLOAT32 = np.dtype(np.float32)
Nearby = Callable[[Maker, int, float, float], Case]
Tie = Callable[[Maker, int, float, int], Case]
NEAR: dict[str, Nearby] = {"y": near_y, "dx": near_dx, "dgamma": near_dgamma}
TIES: dict[str, Tie] = {"y": tie_y, "dx": tie_dx, "dgamma": tie_dgamma}
RMS_NEAR: dict[str, Nearby] = NEAR | {"y": near_y_by_x}
RMS_TIES: dict[str, Tie] = TIES | {"y": tie_y_by_product, "dx": tie_dx_of_two}
RATIONAL = ((0.0, 1), (3.0, 2), (8.0, 3))  # eps, and 1/r of rows with c = +-1
RMS_RATIONAL_OF_Y = ((0.0, 5), (1.0, 2), (13.0, 4))  # of those of `tie_y_by_product`


def hard_elements(case: Case, output: str) -> int:
    columns = case.x.shape[1] if case.columns is None else len(case.columns)
    return columns * (case.x.shape[0] if output in ("y", "dx") else 1)


def _build(output: str, dtype: Dtype, seed: list[int], k: int, *, centred: bool) -> Case:
    # Only what has no float64 in it is first tried in float64: that is most of the cases.
    own = dtype if output != "y" or dtype == FLOAT64 else FLOAT32
    parameters = FLOAT64 if k % 8 == 7 and output in ("y", "dx") else own
    make = Maker(dtype, parameters, seed, centred=centred)
    size = int(make.rng.choice(SIZES))
    if output == "dbeta":
        return tie_dbeta(make, size)
    if k % 4 == 2:
        rational = RATIONAL if centred or output != "y" else RMS_RATIONAL_OF_Y
        eps, root = beside(*rational[k // 4 % 3], make)
        return (TIES if centred else RMS_TIES)[output](make, size + size % 2, eps, root)
    one_a_row = output == "dx" or (output == "y" and not centred)
    size = int(make.rng.choice(ROW_SIZES)) if one_a_row else size
    return (NEAR if centred else RMS_NEAR)[output](
        make, size, float(make.rng.choice(EPSILONS)), float(make.rng.choice(OFFSETS))
    )


def hard_case(output: str, dtype: Any, k: int, seed: int = 0, *, centred: bool = True) -> Case:
    """Return the k-th case of a seed."""
    kind = np.dtype(dtype)
    with ctx.workprec(PRECISION), np.errstate(all="ignore"):
        built = _build(output, kind, [seed, k, OUTPUTS.index(output)], k, centred=centred)
    name = f"{kind.name} {output} {built.name} {built.x.shape} eps={built.eps!r} {k}"
    named = replace(built, name=name)
    return named if centred else named.of_rms_norm()


def hard_cases(
    output: str, dtype: Any, elements: int, seed: int = 0, *, centred: bool = True
) -> Iterator[Case]:
    """Yield cases with at least so many hard elements of y, dx, dgamma or dbeta in all.

    A quarter of the cases have a rational r, or an eps one ulp beside the one that makes it so.
    """
    made = 0
    for k in count():
        if made >= elements:
            return
        case = hard_case(output, dtype, k, seed, centred=centred)
        made += hard_elements(case, output)
        yield case
