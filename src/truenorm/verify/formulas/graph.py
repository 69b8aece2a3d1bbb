"""Formulas as graphs: a formula is a Python function that is called once with symbolic arrays.

A node is an operation on nodes before it. Arrays have the axes of a case, rows first; sums keep
their axes with one element, and sizes are those of the arrays that a graph is evaluated on. So one
graph serves all cases, and some of the rows.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Union

Axes = frozenset[int]
Number = Union["Node", float]
SIGNS = {"add": " + ", "sub": " - ", "mul": "*"}
FUNCTIONS = {"inverse_root": "1/sqrt({})", "sigmoid": "sigma({})", "first": "{}", "pad": "{}"}


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

    def __add__(self, other: Number) -> "Node":
        """Add."""
        return _binary("add", self, other)

    def __sub__(self, other: Number) -> "Node":
        """Subtract."""
        return _binary("sub", self, other)

    def __mul__(self, other: Number) -> "Node":
        """Multiply."""
        return _binary("mul", self, other)

    def __radd__(self, other: float) -> "Node":
        """Add to a number."""
        return _binary("add", other, self)

    def __rsub__(self, other: float) -> "Node":
        """Subtract from a number."""
        return _binary("sub", other, self)

    def __rmul__(self, other: float) -> "Node":
        """Multiply a number."""
        return _binary("mul", other, self)

    def __repr__(self) -> str:
        """Return the name, or the formula."""
        if self.name:
            return self.name
        if self.op == "constant":
            return f"{self.settings[0]:g}"
        parts = [repr(each) for each in self.args]
        if self.op in SIGNS:
            if self.op == "mul":
                parts = [f"({text})" if " " in text else text for text in parts]
            return SIGNS[self.op].join(parts)
        return FUNCTIONS.get(self.op, f"{self.op}({{}})").format(parts[0])


def constant(value: float) -> Node:
    """Return a number."""
    return Node("constant", (), (), (value,))


def given(name: str, axes: Collection[int]) -> Node:
    """Return an input."""
    return Node("given", (), axes, (name,), name)


def _binary(op: str, left: Number, right: Number) -> Node:
    """Return a sum, a difference or a product; none with 0 or 1, as absent parameters are."""
    one, other = (each if isinstance(each, Node) else constant(each) for each in (left, right))
    a, b = (each.settings[0] if each.op == "constant" else None for each in (one, other))
    if a is not None and b is not None:
        return constant({"add": a + b, "sub": a - b, "mul": a * b}[op])
    neutral = 1 if op == "mul" else 0
    if b == neutral:
        return one
    if a == neutral and op != "sub":
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


def inverse_root(x: Node) -> Node:
    """Return 1/sqrt(x)."""
    return Node("inverse_root", (x,), x.axes)


def sigmoid(x: Node) -> Node:
    """Return 1/(1 + exp(-x))."""
    return Node("sigmoid", (x,), x.axes)


def first(x: Node, axis: int, share: float) -> Node:
    """Return the first part of an axis."""
    return x if share == 1 else Node("first", (x,), x.axes, (axis, share))


def pad(x: Node, like: Node, axis: int) -> Node:
    """Return x with zeros behind it, up to the size that an axis of another step has."""
    return Node("pad", (x, like), x.axes | like.axes, (axis,))


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


def derive(outputs: Mapping[Node, Node], wanted: Sequence[Node]) -> list[Node]:
    """Return the gradients of inputs by reverse-mode differentiation.

    `outputs` are results, each with its own gradient.
    """
    order = needed(*outputs)
    depends = {*wanted}
    for node in order:
        if not depends.isdisjoint(node.args):
            depends.add(node)
    gradients = dict(outputs)
    for node in reversed(order):
        if node not in gradients or not node.args:
            continue
        shares = GRADIENTS[node.op](gradients[node], node)
        for arg, share in zip(node.args, shares, strict=True):
            if arg in depends:
                over = share.axes - arg.axes
                summed = total(share, over) if over else share
                known = gradients.get(arg)
                gradients[arg] = summed if known is None else known + summed
    return [gradients[each] for each in wanted]


def _spread(gradient: Node, node: Node) -> list[Node]:
    """Return the gradient of a sum or a mean for each element."""
    like = node.args[0]
    settings = node.settings if node.op == "mean" else ((), 1.0)
    return [Node("spread", (gradient, like), like.axes, settings)]


Gradients = Callable[[Node, Node], Sequence[Node]]
GRADIENTS: dict[str, Gradients] = {
    "add": lambda g, _: [g, g],
    "sub": lambda g, _: [g, -1.0 * g],
    "mul": lambda g, node: [g * node.args[1], g * node.args[0]],
    "sum": _spread,
    "mean": _spread,
    "inverse_root": lambda g, node: [-0.5 * (g * node * node * node)],
    "sigmoid": lambda g, node: [g * (node * (1.0 - node))],
    "first": lambda g, node: [pad(g, node.args[0], node.settings[0])],
}
"""The gradient of each argument of a step, from that of the step."""
