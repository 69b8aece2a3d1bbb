"""Both norms as lists of operations on named arrays: what is counted, apart from how.

A name in parentheses is a temporary that Python frees after its last use; the other names are
local variables and stay until the pass returns. Equations are those of docs/derivation.md.
"""

from typing import Literal, NamedTuple

__all__ = ["LAYER_NORM", "RMS_NORM", "Forms", "Keep", "Operation", "Program"]

Keep = Literal["x", "xhat"]


class Operation(NamedTuple):
    """One NumPy operation, or one line of a kernel.

    A "map" computes each element of its result once. A "sum" adds up its operand along some axes,
    and a "mean" divides the sum in place as well. `times` is how many maps of that size follow
    each other in the line.
    """

    equation: str
    code: str
    reads: tuple[str, ...]
    writes: str
    kind: Literal["map", "sum", "mean"] = "map"
    times: int = 1


Operations = tuple[Operation, ...]

FORWARD: Operations = (
    Operation("D1", "mean = x.mean(axis=-1)", ("x",), "mean", "mean"),
    Operation("D2", "centred = x - mean", ("x", "mean"), "centred"),
    Operation("D3", "centred * centred", ("centred",), "(squares)"),
    Operation("D3", "var = (...).mean(axis=-1)", ("(squares)",), "var", "mean"),
    Operation("D4", "rstd = 1 / np.sqrt(var + eps)", ("var",), "rstd", times=3),
    Operation("D5", "xhat = centred * rstd", ("centred", "rstd"), "xhat"),
    Operation("D6", "gamma * xhat", ("gamma", "xhat"), "(scaled)"),
    Operation("D6", "y = (...) + beta", ("(scaled)", "beta"), "y"),
)
"""`truenorm.textbook.forward`, line by line."""

BACKWARD: Operations = (
    Operation("D7", "dbeta = dy.sum(axis=rows)", ("dy",), "dbeta", "sum"),
    Operation("D8", "dy * xhat", ("dy", "xhat"), "(terms)"),
    Operation("D8", "dgamma = (...).sum(axis=rows)", ("(terms)",), "dgamma", "sum"),
    Operation("D9", "g = gamma * dy", ("gamma", "dy"), "g"),
    Operation("D17", "mean_g = g.mean(axis=-1)", ("g",), "mean_g", "mean"),
    Operation("D17", "g * xhat", ("g", "xhat"), "(products)"),
    Operation("D17", "mean_gxhat = (...).mean(axis=-1)", ("(products)",), "mean_gxhat", "mean"),
    Operation("D17", "g - mean_g", ("g", "mean_g"), "(without mean)"),
    Operation("D17", "xhat * mean_gxhat", ("xhat", "mean_gxhat"), "(along xhat)"),
    Operation("D17", "(g - ...) - (xhat * ...)", ("(without mean)", "(along xhat)"), "(inner)"),
    Operation("D17", "dx = rstd * (...)", ("rstd", "(inner)"), "dx"),
)
"""`truenorm.textbook.backward`, line by line."""

REBUILD: Operations = (
    Operation("D2", "centred = x - mean", ("x", "mean"), "centred"),
    Operation("D5", "xhat = centred * rstd", ("centred", "rstd"), "xhat"),
)

# With the mean as a pair, hi + lo: docs/stability.md, "Centring", says what it is for.
CENTRE_BY_PAIR: Operations = (
    Operation("D2", "shifted = x - hi", ("x", "hi"), "shifted"),
    Operation("D2", "centred = shifted - lo", ("shifted", "lo"), "centred"),
)

FUSED_FORWARD: Operations = (
    Operation("D1", "hi = mean(x)", ("x",), "hi", "mean"),
    CENTRE_BY_PAIR[0],
    Operation("D1", "lo = mean(shifted)", ("shifted",), "lo", "mean"),
    CENTRE_BY_PAIR[1],
    *FORWARD[2:],
)
"""A kernel that has the row in registers, so that two more sweeps cost no traffic."""

FUSED_BACKWARD: Operations = (
    Operation("D7", "dbeta_shares = dy.sum(rows)", ("dy",), "dbeta_shares", "sum"),
    BACKWARD[1],
    Operation("D8", "dgamma_shares = (...).sum(rows)", ("(terms)",), "dgamma_shares", "sum"),
    *BACKWARD[3:],
    Operation("D8", "dgamma = dgamma_shares.sum()", ("dgamma_shares",), "dgamma", "sum"),
    Operation("D7", "dbeta = dbeta_shares.sum()", ("dbeta_shares",), "dbeta", "sum"),
)
"""Each block of rows has a share of dgamma and dbeta. The shares are added in a fixed order at the
end, so that bits do not depend on who was first."""


RMS_FORWARD: Operations = (
    Operation("D25", "x * x", ("x",), "(squares)"),
    Operation("D25", "(...).mean(axis=-1)", ("(squares)",), "(mean square)", "mean"),
    Operation("D25", "rstd = 1 / np.sqrt(... + eps)", ("(mean square)",), "rstd", times=3),
    Operation("D26", "xhat = x * rstd", ("x", "rstd"), "xhat"),
    Operation("D27", "y = gamma * xhat", ("gamma", "xhat"), "y"),
)
"""`truenorm.textbook.rms_norm_forward`. There is no mean that would have to be a pair, so that a
kernel does the same."""

ALONG: Operations = (
    BACKWARD[3],
    Operation("D29", "g * xhat", ("g", "xhat"), "(products)"),
    Operation("D29", "(...).mean(axis=-1)", ("(products)",), "(mean product)", "mean"),
    Operation("D29", "xhat * (...)", ("xhat", "(mean product)"), "(along xhat)"),
    Operation("D29", "g - (...)", ("g", "(along xhat)"), "(inner)"),
    Operation("D29", "dx = rstd * (...)", ("rstd", "(inner)"), "dx"),
)
RMS_BACKWARD: Operations = (*BACKWARD[1:3], *ALONG)
"""`truenorm.textbook.rms_norm_backward`, line by line."""

RMS_FUSED_BACKWARD: Operations = (*FUSED_BACKWARD[1:3], *ALONG, FUSED_BACKWARD[-2])


class Program(NamedTuple):
    """Both passes, and what they have if x is kept: statistics of rows, and xhat from them."""

    forward: Operations
    backward: Operations
    statistics: tuple[str, ...]
    rebuild: Operations


class Forms(NamedTuple):
    """A norm in both forms, and what its backward pass returns."""

    textbook: Program
    fused: Program
    gradients: tuple[str, ...]


LAYER_NORM = Forms(
    Program(FORWARD, BACKWARD, ("mean", "rstd"), REBUILD),
    Program(FUSED_FORWARD, FUSED_BACKWARD, ("hi", "lo", "rstd"), (*CENTRE_BY_PAIR, REBUILD[1])),
    ("dx", "dgamma", "dbeta"),
)
RMS_NORM = Forms(
    Program(RMS_FORWARD, RMS_BACKWARD, ("rstd",), RMS_FORWARD[3:4]),
    Program(RMS_FORWARD, RMS_FUSED_BACKWARD, ("rstd",), RMS_FORWARD[3:4]),
    ("dx", "dgamma"),
)
