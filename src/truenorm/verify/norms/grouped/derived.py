"""Hypotheses about any norm that are derived from its formula: mutants of its steps."""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache, partial
from itertools import combinations
from typing import Any

from truenorm.verify.causes import Cause
from truenorm.verify.formulas.arithmetic import Floats, result_of
from truenorm.verify.formulas.graph import Node, needed
from truenorm.verify.formulas.mutants import Axis, Changes, Formula, Mutants, Run
from truenorm.verify.norms.grouped.formulas import (
    MODULATION,
    Key,
    given_of,
    graph_of,
    key_of,
)
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.types import Float64s

RECENT = 64
"""Cases whose steps stay in memory."""


@cache
def derived_of(norm: Norm, output: str) -> dict[Cause, Hypothesis]:
    """Return the hypotheses about an output that are mutants of the formula, by their causes."""
    key = Key.of(norm.geometry_of(1, "as-1x1"), (each.name for each in norm.inputs))
    return {each: partial(mutated, norm, output, each) for each in _mutants(norm, output, key)}


@cache
def _mutants(norm: Norm, output: str, key: Key) -> dict[Cause, Changes]:
    """Return the mutants of the formula by their causes."""
    graph = graph_of(norm, key)
    if output not in graph:
        return {}
    results = {each.name: graph[each.name] for each in norm.outputs if each.name in graph}
    axes = [Axis(0, "row", "rows"), *axes_of(norm, key.axes)]
    gradients = norm.inputs_of("gradient")
    alone = [[name] for name in (*norm.inputs_of("data"), *gradients) if name not in MODULATION]
    inputs = [norm.parameters, MODULATION, *alone]
    formula = Formula(output, results, inputs, gradients, axes)
    return formula.mutants() | (dict(_over_other_axes(formula)) if norm.share == 1 else {})


def _over_other_axes(formula: Formula) -> Mutants:
    """Yield means that are taken over other axes than those of a unit, some means or all."""
    parts = formula.means()
    every = [*dict.fromkeys(node for part in parts for node in part)]
    for part, name in [*zip(parts, map(_subject, parts), strict=True), (every, "means are")]:
        unit = part[0].settings[0] if part else ()
        for axes, words in other_axes(formula.axes[1:], unit):
            steps = ", ".join(map(repr, part)) if part is not every else "means"
            cause = Cause(f"along({steps}, {axes})", f"{name} {words}")
            yield cause, dict.fromkeys(part, partial(_along, axes))


def _subject(nodes: Sequence[Node]) -> str:
    """Return the names of means and a verb.

    A variance over other axes also has the mean over them. Alone, its terms keep the right mean,
    so that it is named by its terms.
    """
    names = [*map(repr, nodes)]
    terms = nodes[0].args[0]
    if len(nodes) == 1 and repr(terms) not in names[0] and _has_mean(terms):
        names = [f"the mean of {terms!r}"]
    return f"{' and '.join(names)} {'are' if len(nodes) > 1 else 'is'}"


def _has_mean(node: Node) -> bool:
    return any(each.op == "mean" for each in needed(node))


def other_axes(axes: Sequence[Axis], unit: Sequence[int]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield other axes than those of a unit, and the words for them."""
    names = {each.number: each.plural for each in axes}
    for count in range(1, len(names) + 1 if unit else 1):
        for some in combinations(names, count):
            over, instead = (" and ".join(names[each] for each in one) for one in (some, unit))
            if some != tuple(unit):
                yield some, f"over {over}, not {instead}"


def _along(axes: tuple[int, ...], run: Run, node: Node, args: list[Any]) -> Any:
    """Return a sum or a mean along other axes."""
    other = Node(node.op, node.args, (), (axes, *node.settings[1:]))
    return result_of(other, args, Floats, run.given)


def axes_of(norm: Norm, letters: str) -> list[Axis]:
    """Return the axes of a row."""
    return [Axis(k, *_axis_words(norm, each)) for k, each in enumerate(letters.split(), 1)]


def _axis_words(norm: Norm, letter: str) -> tuple[str, str]:
    """Return the singular and the plural of the things that an axis of a row numbers."""
    if letter == "t":
        return ("head", "heads") if norm.heads else ("row of a sample", "rows of a sample")
    of_groups = "channel" if norm.name == "instance_norm" else "group"
    names = {"g": of_groups, "c": "channel", "s": "place", "d": "column"}
    return names[letter], f"{names[letter]}s"


@lru_cache(maxsize=RECENT)
def _run(norm: Norm, case: Case) -> tuple[Key, Run]:
    """Return the key of a case, and the steps of its formula."""
    return key_of(norm, case), Run(given_of(norm, case, norm.geometry(case)), case.dtype)


def mutated(norm: Norm, output: str, cause: Cause | None, case: Case) -> Float64s:
    """Return an output by a mutant; the right output if the case lacks the input of the mutant."""
    key, run = _run(norm, case)
    changes = {} if cause is None else _mutants(norm, output, key).get(cause, {})
    values = run.result(graph_of(norm, key)[output], changes)
    return shaped(norm, output, case, values)


def shaped(norm: Norm, output: str, case: Case, values: Float64s) -> Float64s:
    """Return an output in the shape that the judge has it in."""
    return values.reshape(len(case.x), -1) if norm.is_rows(output) else values.reshape(-1)
