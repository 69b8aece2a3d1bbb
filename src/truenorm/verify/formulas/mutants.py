"""What a result would be if one step of a formula were wrong.

A mutant changes the numbers of some steps; its cause is made of the names of these steps. Nothing
here knows an operation.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.formulas import indices
from truenorm.verify.formulas.answers import Given
from truenorm.verify.formulas.arithmetic import Floats, Values, count_along, part_of, result_of
from truenorm.verify.formulas.functions import FUNCTIONS
from truenorm.verify.formulas.graph import MOVES, SUMS, Node, needed
from truenorm.verify.formulas.indices import Indexed, Size, divisors
from truenorm.verify.formulas.other_functions import OTHER_FUNCTIONS
from truenorm.verify.formulas.rounding import accumulate_rows, rounded
from truenorm.verify.formulas.running_error import Erring
from truenorm.verify.formulas.tolerance import natural_scales
from truenorm.verify.types import Array, Float64s, unit_roundoff

NARROW = ("bfloat16", "float16")
LARGEST_EXP = 88.72
"""exp overflows in float32 above it."""


class Run:
    """The steps of a formula in float64, for the inputs of one case; `kind` is its type."""

    def __init__(self, given: Given, kind: str = "") -> None:
        self.given, self.kind = given, kind
        self._right: Values = {}

    def right(self, node: Node) -> Any:
        """Return the numbers of a step if no step is changed."""
        for each in needed(node) if node not in self._right else ():
            if each not in self._right:
                args = [self._right[arg] for arg in each.args]
                self._right[each] = result_of(each, args, Floats, self.given)
        return self._right[node]

    @np.errstate(all="ignore")
    def result(self, output: Node, changes: "Changes") -> Float64s:
        """Return an output with some steps changed."""
        self.right(output)
        values: Values = {}
        for node in _behind(output, frozenset(changes)):
            args = [values.get(each, self._right[each]) for each in node.args]
            if node in changes:
                values[node] = np.asarray(changes[node](self, node, args))
            else:
                values[node] = result_of(node, args, Floats, self.given)
        return np.asarray(values.get(output, self._right[output]))

    def scale(self, output: Node, changes: "Changes") -> Float64s:
        """Return the natural scale of an output with some steps changed.

        The relative error of a changed step is that of the right one. Where the right one is next
        to the middle between two numbers of a narrow type, the step may be either of them.
        """
        unit = unit_roundoff(self.kind)

        def change(node: Node, args: list[Any], number: Erring | Array) -> Erring | Array:
            if node not in changes:
                return number
            numbers = [each.values if isinstance(each, Erring) else each for each in args]
            values = np.asarray(changes[node](self, node, numbers))
            if not isinstance(number, Erring):
                return values  # a comparison has no error
            relative = np.nan_to_num(number.error / np.abs(number.values), posinf=0.0)
            if values.shape != number.shape:
                relative = relative.max(initial=0.0)
            error = relative * np.abs(values)
            for moved in (-unit, unit):
                near = Run(self.given, self.kind)
                near._right = {**self._right, node: number.values + moved * number.error}
                other = np.asarray(changes[node](near, node, numbers))
                error = np.fmax(error, np.abs(other - values) / unit)
            return Erring(values, error)

        self.right(output)
        return natural_scales({"": output}, self.given, self.kind, 0, change)[""].error


@cache
def _behind(output: Node, steps: frozenset[Node]) -> list[Node]:
    """Return some steps of an output, and the steps that depend on them, in order."""
    behind: dict[Node, None] = {}
    for node in needed(output):
        if node in steps or not behind.keys().isdisjoint(node.args):
            behind[node] = None
    return [*behind]


Change = Callable[[Run, Node, list[Any]], Any]
"""Returns the numbers of a step, from those of its arguments."""
Changes = Mapping[Node, Change]
Mutants = Iterator[tuple[Cause, Changes]]


class Axis(NamedTuple):
    """An axis, and what it numbers: one, such as ``group``, and all of them."""

    number: int
    name: str
    plural: str


def changed(function: Callable[[Run, Any], Any]) -> Change:
    """Return a change of the right result."""
    return lambda run, node, args: function(run, result_of(node, args, Floats, run.given))


def times(factor: float) -> Change:
    """Return a multiple of the right result."""
    return changed(partial(_scaled, factor))


def _scaled(factor: float, _: Run, values: Any) -> Any:
    return factor * values


def with_argument(place: int, function: Callable[[Run, Any], Any]) -> Change:
    """Return the right operation on another argument."""

    def change(run: Run, node: Node, args: list[Any]) -> Any:
        new = [function(run, each) if k == place else each for k, each in enumerate(args)]
        return result_of(node, new, Floats, run.given)

    return change


def to_type(kind: str) -> Change:
    """Return the right result, rounded to a type."""
    return changed(lambda _, values: rounded(values, kind))


class Formula:
    """A result of a formula and its steps, of which mutants are made.

    Parameters
    ----------
    name : str
        The name of the result.
    results : mapping of str to Node
        All results.
    inputs : sequence of sequences of str
        The inputs by name; those of one group may be mistaken for each other.
    gradients : collection of str
        The inputs of backward.
    axes : sequence of Axis
        The axes of a case, rows first.
    """

    def __init__(
        self,
        name: str,
        results: Mapping[str, Node],
        inputs: Sequence[Sequence[str]],
        gradients: Collection[str],
        axes: Sequence[Axis],
    ) -> None:
        self.output, self.results = results[name], results
        self.gradients, self.axes = gradients, axes
        given = {each.name: each for each in needed(*results.values()) if each.op == "given"}
        self.inputs = [[given[name] for name in group if name in given] for group in inputs]

    @cached_property
    def steps(self) -> list[Node]:
        """The steps that the result depends on."""
        return needed(self.output)

    def is_backward(self, node: Node) -> bool:
        """Return True for a step that depends on a gradient."""
        return any(each.op == "given" and each.name in self.gradients for each in needed(node))

    def by_pass(self, nodes: Sequence[Node]) -> list[list[Node]]:
        """Return nodes of forward, nodes of backward, and each of them alone."""
        backward = [each for each in nodes if self.is_backward(each)]
        forward = [each for each in nodes if each not in backward]
        return [*together_and_alone(forward), *together_and_alone(backward)]

    def statistics(self) -> list[list[Node]]:
        """Return the numbers of rows or units that elements are computed from: see `by_pass`."""
        full = len(self.axes)
        wide = [each for each in self.steps if len(each.axes) == full or each is self.output]
        used = {arg for node in wide for arg in node.args}
        for node in reversed(self.steps):  # behind a step without a name is one with a name
            used |= {*node.args} if node in used and not node.name else set()
        some = [each for each in self.steps if each in used and each.name and each.op != "given"]
        return self.by_pass([each for each in some if 0 in each.axes and len(each.axes) < full])

    def name_of(self, axes: Sequence[int]) -> tuple[str, str]:
        """Return the name of an element along axes, and of several."""
        return self.axes[axes[0]][1:] if len(axes) == 1 else ("element", "elements")

    def means(self) -> list[list[Node]]:
        """Return sums along rows or units: see `by_pass`."""
        return self.by_pass([each for each in self.steps if each.op in SUMS and each.name])

    def mutants(self) -> dict[Cause, Changes]:
        """Return the changes of all mutants by their causes."""
        table: dict[Cause, Changes] = {}
        for source in SOURCES:
            for cause, changes in source(self):
                table.setdefault(cause, changes)
        return table


def together_and_alone(nodes: Sequence[Node]) -> list[list[Node]]:
    """Return all nodes as a group, if they are several, and each of them."""
    return [[*nodes]][: len(nodes) > 1] + [[each] for each in nodes]


def _listed(nodes: Sequence[Node], one: str, many: str) -> str:
    """Return names and a verb."""
    *others, last = map(repr, nodes)
    return f"{', '.join(others)} and {last} {many}" if others else f"{last} {one}"


def _ids(nodes: Sequence[Node]) -> str:
    """Return the steps in an id."""
    return ", ".join(map(repr, nodes))


def _terms(of: Formula) -> Mutants:
    """Yield terms that are left out; those behind the first also twice, or of the other sign."""
    for node in of.steps:
        for place, term in enumerate(node.args if node.op in ("add", "sub") else ()):
            is_only = sum(term in each.args for each in of.steps) == 1 and term.op != "constant"
            verb, other = ("added", "subtracted") if node.op == "add" else ("subtracted", "added")
            out, within = ("", "") if is_only else (f" of {node!r}", f" in {node!r}")
            wrong = {
                0: ("no-term", f"left out{out}"),
                2: ("term-twice", f"{verb} twice{within}"),
                -1: ("term-negated", f"{other}, not {verb}{within}"),
            }
            for factor, (name, words) in [*wrong.items()][: 3 if place else 1]:
                cause = Cause(
                    f"{name}({term})" if is_only else f"{name}({term}, {node})",
                    f"{term!r} is {words}",
                )
                yield cause, {node: with_argument(place, partial(_scaled, factor))}


def _factors(of: Formula) -> Mutants:
    """Yield factors that are left out, or applied twice."""
    for node in of.steps:
        if node.op in ("mul", "div") and node.args[0] is not node.args[1]:
            for place, factor in enumerate(node.args):
                out = with_argument(place, lambda _, value: np.ones_like(value))
                words = f"{factor!r} is left out of {node!r}"
                yield Cause(f"no-factor({factor}, {node})", words), {node: out}
                if factor.op != "constant":
                    twice = with_argument(place, lambda _, value: value * value)
                    words = f"{factor!r} is applied twice in {node!r}"
                    yield Cause(f"factor-twice({factor}, {node})", words), {node: twice}


def _multiplied(of: Formula) -> Mutants:
    """Yield terms that are multiplied or divided by a factor of other steps."""
    products = [each for each in of.steps if each.op in ("mul", "div")]
    factors = dict.fromkeys(arg for each in products for arg in each.args)
    for node in of.steps:
        for place, term in enumerate(node.args if node.op in ("add", "sub") else ()):
            for factor in factors:
                if factor.op in ("constant", *MOVES) or not factor.axes <= node.axes:
                    continue
                for done, power in (("multiplied", 1), ("divided", -1)) if factor != term else ():
                    change = with_argument(place, partial(_times_step, factor, power))
                    words = f"{term!r} is {done} by {factor!r} in {node!r}"
                    yield Cause(f"term-{done}({term}, {factor}, {node})", words), {node: change}


def _times_step(factor: Node, power: int, run: Run, values: Any) -> Any:
    return values * run.right(factor) ** power


def _means(of: Formula) -> Mutants:
    """Yield sums along units that are divided otherwise, not taken, or those of other elements."""
    within = {axis for part in of.means() for node in part for axis in node.settings[0]}
    outer = [each for each in of.axes[1:] if each.number not in within]
    for part in of.means():
        are, steps = _listed(part, "is", "are"), _ids(part)
        sums = _listed(part, "", "").rstrip()
        divided: dict[Cause, Change] = {
            Cause(f"divided-by({steps}, {words})", f"{are} divided by {words}"): partial(
                _over, size
            )
            for words, size in divisors([of.axes[k].plural for k in part[0].settings[0]]).items()
        }
        if part[0].op == "mean":
            divided[Cause(f"undivided({steps})", f"{are} a sum, not divided by n")] = _not_divided
        else:
            divided[Cause(f"averaged({steps})", f"{are} averaged, not summed")] = _averaged
        yield from ((cause, dict.fromkeys(part, change)) for cause, change in divided.items())
        yield from _not_taken(of, part)
        one, many = of.name_of(part[0].settings[0])
        for cause, weights in indices.weights(one, many, "n", of=sums):
            yield cause, dict.fromkeys(part, partial(_weighted, weights, False))
            if part[0].op == "mean":
                counted = partial(_weighted, weights, True)
                words = f"{cause.words}: it is divided by the rest"
                of_rest = Cause(f"{cause.id}-not-counted", words)
                yield of_rest, dict.fromkeys(part, counted)
        those = _listed(part, "is that", "are those")
        for axis in outer if of.is_backward(part[0]) else ():
            cause = Cause(f"of-all({steps}, {axis.name})", f"{those} of all {axis.plural}")
            yield cause, dict.fromkeys(part, changed(partial(_of_all, axis.number)))
        for n in indices.BLOCKS if 0 in part[0].axes else ():
            cause = Cause(f"of-block({steps}, {n})", f"{those} of all rows of a block of {n}")
            pooled = partial(indices.averaged_in_blocks, n)
            yield cause, dict.fromkeys(part, changed(lambda _, each, f=pooled: f(each)))  # type: ignore[misc]


def _not_taken(of: Formula, part: Sequence[Node]) -> Mutants:
    """Yield elements in place of their sum, where all steps behind it have elements of a unit."""
    whole = all(each.op != "first" for each in of.steps) and 0 in of.output.axes
    for node in part if len(part) == 1 and whole and of.is_backward(part[0]) else ():
        words = f"{node!r} is not taken: {node.args[0]!r} is used"
        yield Cause(f"not-taken({node})", words), {node: partial(_argument, 0)}


def _over(size: Size, run: Run, node: Node, args: list[Any]) -> Any:
    """Return a sum or a mean with another divisor; a sum is divided by n before."""
    axes, *share = node.settings
    count = count_along(args[0].shape, axes, *share)
    sizes = [args[0].shape[each] for each in axes]
    sizes[-1] = part_of(sizes[-1], *share) if share else sizes[-1]
    return result_of(node, args, Floats, run.given) * (count / size(sizes))


def _weighted(weights: Indexed, counted: bool, run: Run, node: Node, args: list[Any]) -> Any:
    """Return a sum of elements with weights; if they count, a mean is divided by their sum."""
    (terms,), axes = args, node.settings[0]
    factors = weights(count_along(terms.shape, axes))
    if counted:
        factors = factors / (factors.mean() or 1.0)
    shape = [each if k in axes else 1 for k, each in enumerate(terms.shape)]
    return result_of(node, [terms * factors.reshape(shape)], Floats, run.given)


def _not_divided(_: Run, node: Node, args: list[Any]) -> Any:
    return Floats.sum(args[0], node.settings[0])


def _averaged(_: Run, node: Node, args: list[Any]) -> Any:
    return args[0].mean(axis=node.settings[0], keepdims=True)


def _of_all(axis: int, _: Run, values: Array) -> Array:
    return np.broadcast_to(values.mean(axis=axis, keepdims=True), values.shape)


def _roots(of: Formula) -> Mutants:
    """Yield wrong inverse roots, and an exponential function that overflows."""
    for node in of.steps:
        if node.op == "sigmoid":
            (z,) = node.args
            yield Cause(f"exp-overflows({z})", f"exp({z!r}) overflows"), {node: _overflowing}
        if node.op != "inverse_root":
            continue
        words = f"no root is taken in {node!r}"
        yield Cause(f"no-root({node})", words), {node: lambda *at: 1 / at[2][0]}
        (inside,) = node.args
        if inside.op != "add":
            continue
        w, eps = inside.args
        cause = Cause(f"added-to-root({eps})", f"{eps!r} is added to the root")
        yield cause, {node: partial(_outside, w, eps)}
        cause = Cause(f"one-for-zero({node})", f"{node!r} is 1 where {w!r} is 0")
        yield cause, {node: partial(_one_for_zero, w)}
        if w.op == "mean":
            words = f"{eps!r} is added to the sum of squares, not to their mean"
            yield Cause(f"added-to-sum({eps})", words), {inside: partial(_added_to_sum, w)}


def _overflowing(run: Run, node: Node, args: list[Any]) -> Any:
    return np.where(args[0] > LARGEST_EXP, np.nan, result_of(node, args, Floats, run.given))


def _outside(w: Node, eps: Node, run: Run, *_: Any) -> Any:
    return 1 / (np.sqrt(run.right(w)) + run.right(eps))


def _one_for_zero(w: Node, run: Run, node: Node, args: list[Any]) -> Any:
    return np.where(run.right(w) <= 0, 1.0, result_of(node, args, Floats, run.given))


def _added_to_sum(w: Node, run: Run, _: Node, args: list[Any]) -> Any:
    return args[0] + args[1] / count_along(run.right(w.args[0]).shape, *w.settings)


def _functions(of: Formula) -> Mutants:
    """Yield other functions, selections and places, and a largest element that is not subtracted.

    Without it, exp overflows.
    """
    for node in of.steps:
        for name, words, values in OTHER_FUNCTIONS.get(node.op, ()):
            yield (
                Cause(f"{name}({node})", words.format(node)),
                {node: partial(_of_argument, values)},
            )
        if node.op == "exp" and node.args[0].op == "sub" and node.args[0].args[1].op == "largest":
            x, top = node.args[0].args
            unshifted: Changes = {top: times(0.0), node: partial(_not_shifted, x)}
            words = f"{top!r} is not subtracted: exp overflows"
            yield Cause(f"exp-unshifted({top})", words), unshifted
        if node.op == "compare" and node.settings[0] != "equal":
            cause = Cause(f"reversed({node})", f"{node!r} is reversed")
            yield cause, {node: changed(lambda _, each: 1.0 - each)}
            for answer, value in (("true", 1.0), ("false", 0.0)):
                words = f"{node!r} is taken for {answer} everywhere"
                always = changed(partial(_constant, value))
                yield Cause(f"always-{answer}({node})", words), {node: always}
        if node.op == "select":
            for place, branch in enumerate(node.args[1:], 1):
                cause = Cause(f"one-branch({branch})", f"{branch!r} is taken everywhere")
                yield cause, {node: partial(_argument, place)}
        if node.op == "power":
            for other in (node.settings[0] - 1, node.settings[0] + 1):
                power = partial(_of_argument, partial(_power, other))
                cause = Cause(f"exponent({node}, {other})", f"{node!r} has the exponent {other}")
                yield cause, {node: power}
        if node.op == "first":
            words = f"all columns of {node!r} count, not the first part"
            yield Cause(f"all-columns({node})", words), {node: partial(_argument, 0)}
        if node.op == "take":
            for side, by in (("after", 1), ("before", -1)):
                cause = Cause(f"element-{side}({node})", f"{node!r} is the element {side} it")
                yield cause, {node: partial(_taken_beside, by)}
        if node.op == "rotate_half":
            for name, words, change in (
                ("rotation-negated", f"the sign of {node!r} is wrong", times(-1)),
                ("neighbours", f"{node!r} rotates neighbours, not halves", _neighbours_rotated),
                ("no-minus", f"{node!r} has no minus sign", _halves_swapped),
            ):
                yield Cause(f"{name}({node})", words), {node: change}


def _of_argument(function: Callable[[Any], Any], _: Run, __: Node, args: list[Any]) -> Any:
    return function(args[0])


def _power(exponent: int, x: Any) -> Any:
    return x**exponent


def _argument(place: int, _: Run, __: Node, args: list[Any]) -> Any:
    return np.broadcast_to(args[place], np.broadcast_shapes(*(np.shape(each) for each in args)))


def _constant(value: float, _: Run, each: Array) -> Array:
    return np.full_like(each, value)


def _halves_swapped(_: Run, __: Node, args: list[Any]) -> Any:
    return np.roll(args[0], args[0].shape[1] // 2, axis=1)


def _not_shifted(x: Node, run: Run, *_: Any) -> Any:
    limit = LARGEST_EXP if run.kind != "float64" else 8 * LARGEST_EXP
    values = run.right(x)
    return np.where(values > limit, np.inf, np.exp(np.minimum(values, limit)))


def _taken_beside(by: int, _: Run, node: Node, args: list[Any]) -> Any:
    values, index = args
    return Floats.take(values, (index + by) % values.shape[1], *node.settings)


def _neighbours_rotated(_: Run, __: Node, args: list[Any]) -> Any:
    pairs = args[0].reshape(len(args[0]), -1, 2)
    return np.stack([-pairs[..., 1], pairs[..., 0]], axis=-1).reshape(args[0].shape)


def _units(of: Formula) -> Mutants:
    """Yield statistics of other rows, or of other parts of a row."""
    for nodes in of.statistics():
        for axis in of.axes:
            if all(axis.number in each.axes for each in nodes):
                those = _listed(nodes, "is that", "are those")
                for cause, index in indices.places(axis.name, axis.plural, those, _ids(nodes)):
                    move = partial(_right_placed, index, axis.number)
                    yield cause, dict.fromkeys(nodes, move)


def _right_placed(index: Indexed, axis: int, run: Run, node: Node, _: list[Any]) -> Any:
    """Return the right numbers of other places, also where several steps are misplaced."""
    return _placed(index, axis, run, run.right(node))


def _placed(index: Indexed, axis: int, _: Run, values: Any) -> Any:
    return values.take(index(values.shape[axis]), axis=axis)


def _inputs(of: Formula) -> Mutants:
    """Yield inputs of other columns or rows, exchanged or rounded ones, and gradients of 1."""
    for node in of.steps:
        if node.op == "given" and node.name in of.gradients:
            cause = Cause(f"gradient-of-1({node})", f"{node!r} is left out: it is 1")
            yield cause, {node: changed(partial(_constant, 1.0))}
    for group in of.inputs:
        for nodes in together_and_alone([each for each in group if each in of.steps]):
            yield from _misplaced(of, nodes)
            for kind in NARROW:
                words = f"{_listed(nodes, 'is', 'are')} rounded to {kind}"
                yield (
                    Cause(f"rounded({_ids(nodes)}, {kind})", words),
                    dict.fromkeys(nodes, to_type(kind)),
                )
        for one, other in combinations(group, 2):
            exchanged = {one: partial(_other, other), other: partial(_other, one)}
            yield (
                Cause(f"exchanged({one}, {other})", f"{one!r} and {other!r} are exchanged"),
                exchanged,
            )


def _misplaced(of: Formula, nodes: Sequence[Node]) -> Mutants:
    """Yield inputs that are read at other indices."""
    those, read = _listed(nodes, "is that", "are those"), _listed(nodes, "is", "are")
    axes = nodes[0].axes
    for axis in of.axes:
        if axis.number in axes:
            for cause, index in indices.places(axis.name, axis.plural, those, _ids(nodes)):
                yield cause, dict.fromkeys(nodes, changed(partial(_placed, index, axis.number)))
        elif axes and axis.number in of.output.axes:
            words = f"{read} indexed by {axis.name}, not by {of.name_of(sorted(axes))[0]}"
            by = partial(_indexed_by, axis.number, len(of.axes), next(iter(of.results.values())))
            cause = Cause(f"indexed-by({_ids(nodes)}, {axis.name})", words)
            yield cause, dict.fromkeys(nodes, changed(by))
    if len(axes) > 1 and 0 not in axes:
        for cause, index in indices.places("column", "columns", those, _ids(nodes)):
            yield cause, dict.fromkeys(nodes, changed(partial(_placed_among_all, index)))


def _placed_among_all(index: Indexed, _: Run, values: Any) -> Any:
    return values.reshape(-1)[index(values.size)].reshape(values.shape)


def _indexed_by(axis: int, count: int, like: Node, run: Run, values: Any) -> Any:
    """Return the numbers of an input at the indices of an axis that the input does not have."""
    size = run.right(like).shape[axis]
    shape = [size if k == axis else 1 for k in range(count)]
    return values.reshape(-1)[np.arange(size) % values.size].reshape(shape)


def _other(node: Node, run: Run, *_: Any) -> Any:
    return run.right(node)


def _roundings(of: Formula) -> Mutants:
    """Yield steps that are rounded to 16 bits."""
    stored = (*FUNCTIONS, *SUMS)
    named = [each for each in of.steps if (each.name or each.op in stored) and each.args]
    alone = [[each] for each in named if each is not of.output]
    statistics = [[each for each in nodes if each in named] for nodes in of.statistics()]
    for kind in NARROW:
        for nodes in [*alone, *filter(None, statistics)]:
            words = f"{_listed(nodes, 'is', 'are')} rounded to {kind}"
            cause = Cause(f"rounded({_ids(nodes)}, {kind})", words)
            yield cause, dict.fromkeys(nodes, partial(_right_rounded, kind))


def _right_rounded(kind: str, run: Run, node: Node, _: list[Any]) -> Any:
    return rounded(run.right(node), kind)


def _other_steps(of: Formula) -> Mutants:
    """Yield products of gradients with other steps of the same shape."""
    full = len(of.axes)
    result = next(iter(of.results.values()))
    named = [each for each in dict.fromkeys((*of.steps, *needed(result))) if each.name]
    alike = [each for each in (*named, result) if len(each.axes) == full and each.op != "sigmoid"]
    for node in of.steps:
        if node.op != "mul" or not of.is_backward(node):
            continue
        for place, arg in enumerate(node.args):
            if len(arg.axes) < full or arg.op == "constant":
                continue
            for other in alike:
                is_later = other is node or node in needed(other)
                if other is arg or is_later or of.is_backward(other) != of.is_backward(arg):
                    continue
                name = "y" if other is result else repr(other)
                change = with_argument(place, partial(_other, other))
                words = f"{name} is used for {arg!r} in {node!r}"
                yield Cause(f"used-for({name}, {arg}, {node})", words), {node: change}


def _outputs(of: Formula) -> Mutants:
    """Yield other results, and sums that lack terms or are summed in 16 bits."""
    for name, node in of.results.items():
        if node is not of.output and node.axes == of.output.axes:
            yield Cause(f"is({name})", f"it is {name}"), {of.output: partial(_other, node)}
    yield Cause("nothing-written", "nothing is written: it is 0"), {of.output: times(0)}
    if of.output.op != "sum":
        return
    summed = of.output.settings[0]
    for axis in of.axes:
        if axis.number in summed:
            rules: dict[Cause, Indexed] = {
                Cause(
                    f"{which}-alone({axis.name})", f"it is that of the {which} {axis.name}"
                ): partial(_only, place)
                for which, place in (("first", 0), ("last", -1))
            }
            count = "n" if axis.number else "N"
            for cause, weights in (*rules.items(), *indices.weights(*axis[1:], count)):
                some = with_argument(0, partial(_weighted_along, weights, axis.number))
                yield cause, {of.output: some}
    if summed:
        cause = Cause("summed-in-type-of-x", "it is summed in the type of x")
        yield cause, {of.output: _in_type_of_x}


def _only(place: int, size: int) -> Array:
    return np.asarray(np.arange(size) == place % size)


def _weighted_along(weights: Indexed, axis: int, _: Run, terms: Any) -> Any:
    factors = weights(terms.shape[axis])
    return terms * factors.reshape(-1, *(1,) * (terms.ndim - axis - 1))


def _in_type_of_x(run: Run, node: Node, args: list[Any]) -> Any:
    """Sum along the first axis with each partial sum rounded, after all other axes."""
    axis, *inner = node.settings[0]
    moved = np.moveaxis(rounded(Floats.sum(args[0], tuple(inner)), run.kind), axis, 0)
    total = accumulate_rows(moved.reshape(len(moved), -1), run.kind)
    return np.moveaxis(total.reshape(1, *moved.shape[1:]), 0, axis)


OF_STEPS = (_functions, _terms, _factors, _multiplied, _means, _roots, _roundings)
SOURCES = (*OF_STEPS, _units, _inputs, _other_steps, _outputs)
