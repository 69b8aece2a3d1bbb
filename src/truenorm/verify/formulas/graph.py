"""Formulas as graphs: a formula is a Python function that is called once with symbolic arrays.

A node is an operation on nodes before it. Arrays have the axes of a case, rows first; sums keep
their axes with one element, and sizes are those of the arrays that a graph is evaluated on. So one
graph serves all cases, and some of the rows.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Union

Axes = frozenset[int]
Number = Union["Node", float]
SIGNS = {"add": " + ", "sub": " - ", "mul": "*", "div": "/"}
COMPARED = {"greater": " > ", "greater_equal": " >= ", "equal": " == "}
TEXTS = {
    "first": "{}",
    "pad": "{}",
    "spread": "{}",
    "put": "{}",
    "largest": "max({})",
    "power": "{}**{}",
    "inverse_root": "1/sqrt({})",
    "sigmoid": "sigma({})",
}
SUMS = ("sum", "mean")
REDUCTIONS = (*SUMS, "largest")
MOVES = ("first", "pad", "take", "put", "rotate_half")
FLAT = ("compare", "index")
"""Steps without a gradient: comparisons, and indices."""


Operator = Callable[["Node", Number], "Node"]


def _operators(of: Callable[[Number, Number], "Node"]) -> tuple[Operator, Operator]:
    """Return the methods of an operator on a step: with another one behind it, and before it."""
    return (lambda self, other: of(self, other)), (lambda self, other: of(other, self))


class Node:
    """One step of a formula.

    Attributes
    ----------
    op : str
        The operation: a method of the arithmetics in `truenorm.verify.formulas.arithmetic`.
    args : tuple of Node
    settings : tuple
        The value of a constant, the name of an input, the axes of a sum, or a share.
    axes : frozenset of int
        The axes along which its numbers may differ.
    name : str
        The name that `step` gives it, or an input has.
    """

    def __init__(
        self,
        op: str,
        args: Sequence["Node"],
        axes: Collection[int],
        settings: tuple[Any, ...] = (),
        name: str = "",
    ) -> None:
        self.op, self.args, self.settings = op, tuple(args), settings
        self.axes, self.name = frozenset(axes), name

    __add__, __radd__ = _operators(lambda x, y: _binary("add", x, y))
    __sub__, __rsub__ = _operators(lambda x, y: _binary("sub", x, y))
    __mul__, __rmul__ = _operators(lambda x, y: _binary("mul", x, y))
    __truediv__, __rtruediv__ = _operators(lambda x, y: _binary("div", x, y))
    __gt__, __lt__ = _operators(lambda x, y: compare("greater", x, y))
    __ge__, __le__ = _operators(lambda x, y: compare("greater_equal", x, y))

    def __neg__(self) -> "Node":
        """Negate."""
        return _binary("mul", -1.0, self)

    def __pow__(self, exponent: int) -> "Node":
        """Raise to a power that is an integer."""
        if not isinstance(exponent, int):
            raise TypeError(f"the exponent of ** must be an integer, got {exponent!r}")
        if exponent < 0:
            return 1.0 / self**-exponent
        if exponent == 0:
            return constant(1.0)
        return self if exponent == 1 else Node("power", (self,), self.axes, (exponent,))

    def __abs__(self) -> "Node":
        """Return the magnitude."""
        return Node("abs", (self,), self.axes)

    def __bool__(self) -> bool:
        """Raise TypeError: a formula is called once, for all numbers."""
        raise TypeError(f"a formula cannot branch on {self!r}: use where(condition, a, b)")

    def __repr__(self) -> str:
        """Return the name, or the formula."""
        if self.name:
            return self.name
        if self.op == "constant":
            return f"{self.settings[0]:g}"
        parts = [repr(each) for each in self.args]
        if self.op == "compare":
            return COMPARED[self.settings[0]].join(parts)
        if self.op in ("mul", "div", "power"):
            parts = [f"({text})" if " " in text else text for text in parts]
        if self.op in SIGNS:
            return SIGNS[self.op].join(parts)
        text = TEXTS.get(self.op, f"{self.op}({', '.join(parts)})")
        return text.format(parts[0], *self.settings)


def constant(value: float) -> Node:
    """Return a number."""
    return Node("constant", (), (), (value,))


def given(name: str, axes: Collection[int]) -> Node:
    """Return an input."""
    return Node("given", (), axes, (name,), name)


def as_node(value: Number) -> Node:
    """Return a step, or a number as a step."""
    if isinstance(value, Node):
        return value
    if isinstance(value, bool):
        raise TypeError(
            f"expected a number or a step of the formula, got {value}: write x == a as "
            "(x >= a)*(x <= a)"
        )
    if not isinstance(value, int | float):
        raise TypeError(f"expected a number or a step of the formula, got {value!r}")
    return constant(float(value))


def compare(how: str, left: Number, right: Number) -> Node:
    """Return 1 where two steps compare so, else 0: `how` is one of `COMPARED`."""
    one, other = as_node(left), as_node(right)
    return Node("compare", (one, other), one.axes | other.axes, (how,))


def _binary(op: str, left: Number, right: Number) -> Node:
    """Return a sum, a difference or a product; none with 0 or 1, as absent parameters are."""
    one, other = as_node(left), as_node(right)
    if op == "div" and one.op == other.op == "constant":
        return Node(op, (one, other), ())  # exact: a quotient of float64 numbers is rounded
    a, b = (each.settings[0] if each.op == "constant" else None for each in (one, other))
    if a is not None and b is not None:
        return constant({"add": a + b, "sub": a - b, "mul": a * b}[op])
    neutral = 1 if op in ("mul", "div") else 0
    if b == neutral:
        return one
    if a == neutral and op not in ("sub", "div"):
        return other
    return Node(op, (one, other), one.axes | other.axes)


def step(name: str, node: Node) -> Node:
    """Name a step, unless it is an input, a constant or another step."""
    if not node.name and node.op != "constant":
        node.name = name
    return node


def total(x: Node, axes: Collection[int]) -> Node:
    """Return the sum along axes, which stay."""
    return Node("sum", (x,), x.axes - frozenset(axes), (tuple(sorted(axes)),))


def mean(x: Node, axes: Collection[int], share: float = 1.0) -> Node:
    """Return the sum along axes, which stay, divided by the number of elements.

    Of the last of these axes, a share counts.
    """
    return Node("mean", (x,), x.axes - frozenset(axes), (tuple(sorted(axes)), share))


def largest(x: Node, axes: Collection[int]) -> Node:
    """Return the largest element along axes, which stay."""
    return Node("largest", (x,), x.axes - frozenset(axes), (tuple(sorted(axes)),))


def inverse_root(x: Number) -> Node:
    """Return 1/sqrt(x)."""
    return function("inverse_root", x)


def sigmoid(x: Node) -> Node:
    """Return 1/(1 + exp(-x))."""
    return function("sigmoid", x)


def function(op: str, x: Number) -> Node:
    """Return a function of each number."""
    inside = as_node(x)
    return Node(op, (inside,), inside.axes)


def select(condition: Node, x: Number, y: Number) -> Node:
    """Return x where a condition is 1, and y where it is 0."""
    args = condition, as_node(x), as_node(y)
    return Node("select", args, frozenset().union(*(each.axes for each in args)))


def take(x: Node, index: Node, axis: int) -> Node:
    """Return the element of each row at an index."""
    return Node("take", (x, index), x.axes - {axis} | index.axes, (axis,))


def rotate_half(x: Node, axis: int) -> Node:
    """Return the second half of an axis with the other sign, then the first half."""
    return Node("rotate_half", (x,), x.axes, (axis,))


def first(x: Node, axis: int, share: float) -> Node:
    """Return the first part of an axis."""
    return x if share == 1 else Node("first", (x,), x.axes, (axis, share))


def pad(x: Node, like: Node, axis: int) -> Node:
    """Return x with zeros behind it, up to the size that an axis of another step has."""
    return Node("pad", (x, like), x.axes | like.axes, (axis,))


def mixed_axes(node: Node) -> tuple[int, ...]:
    """Return the axes along which one number of a step depends on several of its argument."""
    if node.op in REDUCTIONS:
        return tuple(node.settings[0])
    return node.settings[:1] if node.op in MOVES else ()


def needed(*outputs: Node) -> list[Node]:
    """Return the steps that outputs depend on, each after its arguments."""
    order: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in order:
            for each in node.args:
                visit(each)
            order[node] = None

    for node in outputs:
        visit(node)
    return [*order]


def merged(outputs: Sequence[Node]) -> list[Node]:
    """Return outputs in which equal steps are one step; it has the first of their names."""
    known: dict[tuple[Any, ...], Node] = {}
    new: dict[Node, Node] = {}
    for node in needed(*outputs):
        args = [new[each] for each in node.args]
        made = Node(node.op, args, node.axes, node.settings) if args else node
        key = (node.op, made.args, node.settings)
        new[node] = known.setdefault(key, made)
        new[node].name = new[node].name or node.name
    return [new[each] for each in outputs]


def derive(
    outputs: Mapping[Node, Node], wanted: Sequence[Node], constants: Collection[Node] = ()
) -> list[Node]:
    """Return the gradients of inputs by reverse-mode differentiation.

    `outputs` are results, each with its own gradient. Steps that are `constants` have none.
    """
    order = needed(*outputs)
    depends = {*wanted}
    for node in order:
        if node.op not in FLAT and not depends.isdisjoint(node.args):
            depends.add(node)
    depends.difference_update(constants)
    shares: dict[Node, list[Node]] = {node: [share] for node, share in outputs.items()}
    for node in reversed(order):
        if node not in shares or not node.args:
            continue
        gradient = _added(shares[node], node.axes)
        if node.name and node not in outputs:
            step(f"the gradient of {node.name}", gradient)
        for arg, share in zip(node.args, GRADIENTS[node.op](gradient, node), strict=True):
            if arg in depends:
                shares.setdefault(arg, []).append(share)
    return [_added(shares.get(each, [constant(0.0)]), each.axes) for each in wanted]


def _added(shares: Sequence[Node], axes: Axes) -> Node:
    """Return the sum of shares, summed along all other axes: shares of the same axes together."""
    by_axes: dict[Axes, Node] = {}
    for share in shares:
        known = by_axes.get(share.axes)
        by_axes[share.axes] = share if known is None else known + share
    first, *others = (total(g, on - axes) if on - axes else g for on, g in by_axes.items())
    for other in others:
        first = first + other
    return first


def _spread(gradient: Node, node: Node) -> list[Node]:
    """Return the gradient of a sum or a mean for each element."""
    like = node.args[0]
    settings = node.settings if node.op == "mean" else ((), 1.0)
    return [Node("spread", (gradient, like), like.axes, settings)]


def _of_product(gradient: Node, node: Node) -> list[Node]:
    """Return the gradients of factors; that of a square is one term."""
    one, other = node.args
    if one is other:
        return [2.0 * (gradient * one), constant(0.0)]
    return [gradient * other, gradient * one]


def _of_largest(gradient: Node, node: Node) -> list[Node]:
    """Return the gradient of a largest element: elements that are equally large share it."""
    x, is_largest = node.args[0], compare("equal", node.args[0], node)
    return [gradient * is_largest / total(is_largest, x.axes - node.axes)]


def sign(x: Node) -> Node:
    """Return 1, 0 or -1."""
    return (x > 0.0) - (x < 0.0)


def _of_rotation(gradient: Node, node: Node) -> list[Node]:
    return [-1.0 * rotate_half(gradient, *node.settings)]


def _of_take(gradient: Node, node: Node) -> list[Node]:
    x, index = node.args
    return [Node("put", (gradient, index, x), x.axes | gradient.axes, node.settings), gradient]


Gradients = Callable[[Node, Node], Sequence[Node]]
GRADIENTS: dict[str, Gradients] = {
    "add": lambda g, _: [g, g],
    "sub": lambda g, _: [g, -1.0 * g],
    "mul": _of_product,
    "div": lambda g, node: [g / node.args[1], -1.0 * (g * (node / node.args[1]))],
    "power": lambda g, node: [g * (node.settings[0] * node.args[0] ** (node.settings[0] - 1))],
    "sum": _spread,
    "mean": _spread,
    "largest": _of_largest,
    "abs": lambda g, node: [g * sign(node.args[0])],
    "select": lambda g, node: [*(g, select(node.args[0], g, 0.0), select(node.args[0], 0.0, g))],
    "inverse_root": lambda g, node: [-0.5 * (g * node * node * node)],
    "sigmoid": lambda g, node: [g * (node * (1.0 - node))],
    "exp": lambda g, node: [g * node],
    "log": lambda g, node: [g / node.args[0]],
    "tanh": lambda g, node: [g * (1.0 - node * node)],
    "erf": lambda g, node: [g * function("erf_slope", node.args[0])],
    "first": lambda g, node: [pad(g, node.args[0], node.settings[0])],
    "take": _of_take,
    "rotate_half": _of_rotation,
}
"""The gradient of each argument of a step, from that of the step."""
