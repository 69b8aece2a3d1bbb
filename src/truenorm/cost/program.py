"""Layer normalization as a list of operations on named arrays: what is counted, apart from how.

A name in parentheses is a temporary that Python frees after its last use; the other names are
local variables and stay until the pass returns. Equations are those of docs/derivation.md.
"""

from typing import Literal, NamedTuple

__all__ = [
    "BACKWARD",
    "FORWARD",
    "FUSED_FORWARD",
    "KEPT",
    "Keep",
    "Operation",
    "backward_from",
    "fused_backward_from",
]

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

KEPT: dict[Keep, dict[str, tuple[str, ...]]] = {
    "x": {"textbook": ("mean", "rstd"), "fused": ("hi", "lo", "rstd")},
    "xhat": {"textbook": ("xhat", "rstd"), "fused": ("xhat", "rstd")},
}
"""What forward allocates for backward; x and gamma are the caller's."""


def backward_from(keep: Keep) -> Operations:
    """Return the textbook's backward; where x is what was kept, xhat is computed again."""
    return BACKWARD if keep == "xhat" else REBUILD + BACKWARD


def fused_backward_from(keep: Keep) -> Operations:
    """Return backward in one kernel: each block of rows has a share of dgamma and dbeta.

    The shares are added in a fixed order at the end, so that bits do not depend on who was first.
    """
    rebuild = (*CENTRE_BY_PAIR, REBUILD[1]) if keep == "x" else ()
    totals = {"dgamma": "D8", "dbeta": "D7"}
    shares = (_into_shares(each) if each.writes in totals else each for each in BACKWARD)
    added = (
        Operation(equation, f"{name} = {name}_shares.sum()", (f"{name}_shares",), name, "sum")
        for name, equation in totals.items()
    )
    return (*rebuild, *shares, *added)


def _into_shares(total: Operation) -> Operation:
    """Return the sum over all rows as one over the rows of each block."""
    name = f"{total.writes}_shares"
    terms = total.code.partition(" = ")[2].removesuffix("(axis=rows)")
    return total._replace(writes=name, code=f"{name} = {terms}(rows)")
