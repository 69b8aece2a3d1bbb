"""Formulas, from which exact answers, gradients and hypotheses are derived.

A formula may use the functions of this module, numbers, ``+ - * /``, ``**`` with an integer, `abs`
and comparisons. Sums and the like are along the rows.
"""

from truenorm.verify.formulas import graph
from truenorm.verify.formulas.graph import Node, Number, as_node

__all__ = [
    "erf",
    "exp",
    "first",
    "inverse_root",
    "largest",
    "log",
    "mean",
    "rotate_half",
    "sigmoid",
    "take",
    "tanh",
    "total",
    "where",
]
ROW = (1,)
"""The axis along a row; the first numbers the rows."""


def erf(x: Number) -> Node:
    """Return the error function of each number."""
    return graph.function("erf", x)


def exp(x: Number) -> Node:
    """Return exp(x)."""
    return graph.function("exp", x)


def inverse_root(x: Number) -> Node:
    """Return 1/sqrt(x)."""
    return graph.inverse_root(x)


def log(x: Number) -> Node:
    """Return the natural logarithm."""
    return graph.function("log", x)


def sigmoid(x: Number) -> Node:
    """Return 1/(1 + exp(-x))."""
    return graph.function("sigmoid", x)


def tanh(x: Number) -> Node:
    """Return the hyperbolic tangent."""
    return graph.function("tanh", x)


def mean(x: Node) -> Node:
    """Return the mean of each row."""
    return graph.mean(x, ROW)


def total(x: Node) -> Node:
    """Return the sum of each row."""
    return graph.total(x, ROW)


def largest(x: Node) -> Node:
    """Return the largest element of each row."""
    return graph.largest(x, ROW)


def first(x: Node, share: float) -> Node:
    """Return the first part of each row, such as the first half, at least one element."""
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, got {share!r}")
    return graph.first(x, *ROW, share)


def take(x: Node, index: Node) -> Node:
    """Return the element of each row at the index of the row."""
    if index.op != "index":
        raise TypeError(f"index must be an argument that is declared as an index, got {index!r}")
    return graph.take(x, index, *ROW)


def rotate_half(x: Node) -> Node:
    """Return the second half of each row with the other sign, then the first half."""
    return graph.rotate_half(x, *ROW)


def where(condition: Node, x: Number, y: Number) -> Node:
    """Return x where a comparison is true, else y."""
    return graph.select(as_node(condition), x, y)
