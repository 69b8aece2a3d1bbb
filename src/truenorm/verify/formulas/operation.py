"""Operations of formulas: `formula` makes an operation that the judge knows like a norm.

The formula is called once with symbolic arrays. Its arguments are the inputs by name, and its
assignments, which are read from its source, name the steps.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.causes import Cause
from truenorm.verify.formulas.answers import Answers
from truenorm.verify.formulas.arithmetic import Arbs, Floats, Values, evaluate, result_of
from truenorm.verify.formulas.cases import formula_cases
from truenorm.verify.formulas.functions import flint
from truenorm.verify.formulas.graph import Node, constant, derive, given, merged, needed, step
from truenorm.verify.formulas.mutants import Axis, Changes, Formula, Run
from truenorm.verify.formulas.recipes import by_recipe
from truenorm.verify.formulas.tolerance import is_centring, natural_scales, terms_of
from truenorm.verify.operation import (
    MODEL_INPUT,
    Case,
    Hypothesis,
    Input,
    Knowledge,
    Operation,
    Output,
    RecipeResult,
    Results,
)
from truenorm.verify.oracle import AnswerBounds, Expected, output_types
from truenorm.verify.types import FORMATS, Array, Float64s

Steps = dict[str, Node]
PARAMETERS = ("gamma", "beta", "weight", "bias")
"""Arguments that have one number for each column, unless `formula` is told otherwise."""
BITS = 400
LATE, STEPWISE = "late", "stepwise"
"""Recipes: no step is rounded but the result, or each one with a name."""
RECENT = 64
"""Cases whose steps stay in memory."""
Range = tuple[float, float]
NEEDED = {
    "files": "whose arrays have names in files",
    "enclosures": "whose rows have answers of any size",
    "recording": "whose arguments the file runner.py knows",
    "score": "whose arguments are known by name",
    "torch_subject": "whose arguments are known by name, unlike those that load passes in order",
}
"""By use that formulas do not support: the property of a norm that the use needs."""
INSTEAD = (
    "a formula works with verify, check, compare, verdicts, and bound of at most 4096 elements"
)


class FormulaOperation(Operation):
    """An operation that a formula defines; `truenorm.verify.formula` makes and documents it.

    Attributes
    ----------
    function : callable
        The formula.
    ranges : mapping of str to tuple
        By input: the least and the largest number.
    """

    takes_eps: bool
    in_order = True
    condition = "1"
    condition_description = "κ is 1: the tolerance of each element is that of its own steps."

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        roles: Mapping[str, Collection[str]],
        ranges: Mapping[str, Range],
        multiple: int,
    ) -> None:
        self.function, self.name, self.title = function, name, name.replace("_", " ")
        self.ranges, self.multiple = ranges, multiple
        self.columns, self.indices = frozenset(roles["columns"]), frozenset(roles["indices"])
        self.columns |= self.indices
        names = _arguments(function)
        self.takes_eps = "eps" in names
        self._names = [each for each in names if each != "eps"]
        unknown = {*ranges, *(each for some in roles.values() for each in some)} - {*names}
        if unknown or not self._names:
            expected = f"arguments of the formula, {', '.join(names) or 'which has none'}"
            raise ValueError(f"{self.name} must be told of {expected}; got {sorted(unknown)}")
        self._parameters = frozenset(roles["parameters"])
        if self._names[0] in self._parameters | self.columns:
            raise ValueError(f"the first argument of {name}, {self._names[0]}, must be rows")
        self.graph, results = self._forward()
        self._add_backward(results, frozenset(roles["constants"]) | self.indices)
        gradients = [each for each in self.graph if each.startswith("d") and each[1:] in results]
        self.inputs = (
            *(Input(n, "parameter" if n in self._parameters else "data") for n in self._names),
            *(Input(each, "gradient") for each in gradients),
        )
        first = self._names[0]
        wanted = [n for n in self._names if gradients and f"d{n}" in self.graph]
        self.outputs = (
            *(Output(each, like=first) for each in results),
            *(Output(f"d{each}", like=each, backward=True) for each in wanted),
        )
        narrow = [n for n, node in self.graph.items() if node.axes == {0}]
        self.columns |= frozenset(each for each in narrow if each not in ("eps",))
        self.reshapes = bool(self.columns)
        self.centred = any(map(is_centring, needed(*(self.graph[each] for each in results))))
        self.expected_type = FormulaExpected
        self._recipes = self._rounded_steps()
        late = {LATE: "one rounding, at the end"}
        self.knowledge = Knowledge(
            late | {name: "rounded to the type of x" for name in self._recipes if name != LATE},
            recipes=self._recipe_results,
            hypotheses=self.hypotheses,
            unchanged=self._unchanged,
            scale_of=self._scale_of,
        )
        self.instead = INSTEAD
        self.unsupported = {use: f"a norm, {why}" for use, why in NEEDED.items()}

    def _rounded_steps(self) -> dict[str, list[Node]]:
        """Return the steps that each recipe rounds: none, one with a name, or all of them."""
        result = self.graph[self._results[0]]
        named = [each for each in needed(result) if each.name and each.args and each is not result]
        return {LATE: [], **{each.name: [each] for each in named}, STEPWISE: named}

    def _recipe_results(self, case: Case, _: Results) -> dict[str, RecipeResult]:
        """Return the first result by every recipe, for ordinary rows of a type of 16 bits."""
        if FORMATS[case.dtype].precision > FORMATS["float16"].precision or case.family != "normal":
            return {}
        name, given_arrays = self._results[0], self.given_of(case)
        results = {}
        for recipe, nodes in self._recipes.items():
            found = by_recipe(self.graph[name], nodes, given_arrays, case.dtype, case.dtype)
            results[recipe] = RecipeResult(*(self.shaped(name, each, case) for each in found))
        return results

    def _forward(self) -> tuple[Steps, list[str]]:
        """Return inputs and results by name, and the names of the results."""
        rows = frozenset({0, 1})
        axes = {name: frozenset({1}) for name in self._parameters}
        axes |= {name: frozenset({0}) for name in self.columns}
        graph: Steps = {name: given(name, axes.get(name, rows)) for name in self._names}
        graph |= {n: Node("index", (), {0}, (n,), n) for n in self.indices}
        if self.takes_eps:
            graph["eps"] = given("eps", ())
        function, names = _with_names(self.function)
        try:
            returned = function(**graph)
        except Exception as error:
            raise ValueError(
                f"the formula {self.name} raised {type(error).__name__}: {error}; it may use "
                "numbers, + - * / ** abs, comparisons, and what truenorm.verify.formulas exports"
            ) from error
        results = list(returned) if isinstance(returned, tuple) else [returned]
        names = names if len(names) == len(results) > 1 else ["y"]
        results = merged(results) if all(isinstance(each, Node) for each in results) else results
        if len(names) != len(results) or not all(isinstance(each, Node) for each in results):
            kinds = ", ".join(type(each).__name__ for each in results)
            expected = "one step, or a tuple of assigned names as in return y, top"
            raise ValueError(f"the formula {self.name} must return {expected}; got {kinds}")
        for name, node in zip(names, results, strict=True):
            if 0 not in node.axes:
                raise ValueError(
                    f"{name} of {self.name} must have a number for each element or each row; it "
                    "does not depend on rows"
                )
            graph[name] = step(name, node) if node.args else node + constant(0.0)
        self._check_lengths(graph, names)
        return graph, names

    def _samples(self, axes_of: Mapping[str, Collection[int]], size: int) -> dict[str, Float64s]:
        """Return random numbers within ranges for 3 rows of inputs."""
        random_numbers = np.random.default_rng(0)
        numbers = {"eps": np.full((1, 1), 0.125)}
        for name, axes in axes_of.items():
            shape = [length if k in axes else 1 for k, length in enumerate((3, size))]
            low, high = self.ranges.get(name, (-np.inf, np.inf))
            span = min(high - low, 6.0)
            low = min(max(low, -3.0), high - span)
            values = random_numbers.uniform(low, low + span, shape)
            numbers[name] = np.zeros(shape) if name in self.indices else values
        return numbers

    def _check_lengths(self, graph: Steps, results: Sequence[str]) -> None:
        """Raise ValueError where rows of different lengths meet, or are a result."""
        size = 64 * self.multiple
        numbers = self._samples({name: graph[name].axes for name in self._names}, size)
        values: Values = {}
        for node in needed(*(graph[name] for name in results)):
            args = [values[each] for each in node.args]
            try:
                with np.errstate(all="ignore"):
                    values[node] = result_of(node, args, Floats, numbers)
            except ValueError as error:
                lengths = ", ".join(
                    f"{arg!r}: {array.shape[1]}"
                    for arg, array in zip(node.args, args, strict=True)
                    if array.ndim > 1
                )
                raise ValueError(
                    f"{node!r} of the formula {self.name} needs rows of one length; got, of "
                    f"{size} columns, {lengths}; first returns shorter rows"
                ) from error
        for name in results:
            length = values[graph[name]].shape[1]
            if length not in (1, size):
                raise ValueError(
                    f"{name} of the formula {self.name} must have as many columns as "
                    f"{self._names[0]}, or one; got {length} of {size}"
                )

    def _add_backward(self, results: Sequence[str], constants: Collection[str]) -> None:
        """Add the gradients of results and inputs to the graph."""
        wanted = [each for each in self._names if each not in constants]
        if not wanted:
            return
        seeds = {each: given(f"d{each}", self.graph[each].axes) for each in results}
        outputs = {self.graph[each]: seed for each, seed in seeds.items()}
        without = self._without_effect(outputs)
        found = derive(outputs, [self.graph[each] for each in wanted], without)
        for name, node in zip(wanted, found, strict=True):
            if self.graph[name].axes == {1} and node.op not in ("sum", "constant"):
                raise ValueError(f"the gradient of {name} must be one sum over rows; got {node}")
            self.graph[f"d{name}"] = step(f"d{name}", node)
        self.graph |= {f"d{each}": seed for each, seed in seeds.items()}

    def _without_effect(self, outputs: Mapping[Node, Node]) -> list[Node]:
        """Return largest elements that results do not depend on, as in a softmax.

        Their gradients are zero, up to cancellation, at random numbers.
        """
        steps = [each for each in needed(*outputs) if each.op == "largest"]
        steps = [each for each in steps if each.args[0].op != "constant"]
        if not steps:
            return []
        gradients = derive(outputs, steps)
        axes_of = {name: self.graph[name].axes for name in self._names}
        axes_of |= {str(each): each.axes for each in outputs.values()}
        numbers = self._samples(axes_of, 4 * self.multiple)
        with flint().ctx.workprec(BITS), np.errstate(all="ignore"):
            values_of = evaluate(gradients, Arbs, numbers)
            tiny = flint().arb(2) ** (-BITS // 2)
            return [
                each
                for each, gradient in zip(steps, gradients, strict=True)
                if all(abs(value) < tiny for value in np.ravel(values_of[gradient]))
            ]

    @property
    def spec(self) -> str:
        """The file and the name of the formula, or the name of one that ships."""
        module = self.function.__module__
        file = self.function.__code__.co_filename
        return self.name if module.startswith("truenorm.") else f"{file}:{self.name}"

    @property
    def label(self) -> str:
        """The text of `spec` without the folder of the file."""
        return Path(self.spec).name

    def cases(self, dtype: str, level: str, seed: int = 0) -> Iterable[Case]:
        """Return the cases of all roles."""
        return formula_cases(self, dtype, level, seed)

    def given_of(self, case: Case) -> dict[str, Float64s]:
        """Return the inputs of a case in float64, with the axes of the graph."""
        arrays = {
            name: np.atleast_2d(array.astype(np.float64))
            for name, array in case.inputs.items()
            if array is not None
        }
        return arrays | {"eps": np.full((1, 1), case.eps)}

    def exact(self, case: Case) -> dict[str, Float64s]:
        """Return the answers.

        They are NaN in finite rows where a result has no value. With comparisons, whose result for
        NaN is a choice, they are NaN in rows that are not finite.
        """
        once = case.part(slice(case.shape[0] // case.repeats))
        kinds, inputs = output_types(once), self.given_of(once)
        answers = Answers({name: self.graph[name] for name in kinds}, inputs, case.repeats)
        arrays = {}
        for name, kind in kinds.items():
            arrays[name] = self.shaped(name, answers.rounded(name, kind), once)
        special = _nan_rows({name: 0.0 * each for name, each in once.rows.items()})
        undefined = _nan_rows({name: arrays[name][..., 0] for name in self._results}) & ~special
        if self._compares:
            undefined = undefined | special
        for name, pairs in arrays.items():
            nan = undefined if self.is_rows(name) else undefined.max(axis=0)
            arrays[name] = np.where(nan[..., np.newaxis], np.array([np.nan, 0.0]), pairs)
        return arrays

    @property
    def _results(self) -> list[str]:
        return self.outputs_of(backward=False)

    @cached_property
    def _compares(self) -> bool:
        """Return True if a result depends on a comparison."""
        return any(each.op == "compare" for each in needed(*self.graph.values()))

    def shaped(self, output: str, values: Array, case: Case) -> Array:
        """Return numbers with the shape of an output; axes behind those of rows stay."""
        (rows, size), is_rows = case.shape, self.is_rows(output)
        shape = rows if is_rows else 1, 1 if output in self.columns else size
        whole = np.broadcast_to(values, (*shape, *values.shape[2:]))
        return whole if is_rows else whole[0]

    def scales(self, case: Case, exact: Mapping[str, Float64s]) -> "FormulaScales":
        """Return the natural scales."""
        return FormulaScales(self, case, exact)

    def result_shapes(self, output: str, rows: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the shapes that a result may have, given the shape of x; the first is named."""
        if output in self.columns:
            return rows[:-1], (*rows[:-1], 1)
        return super().result_shapes(output, rows)

    def give(self, name: str, array: Array, shape: tuple[int, ...]) -> Array:
        """Return one number for each row as an array without the last axis of x."""
        return array.reshape(shape[:-1]) if name in self.columns else array

    def hypotheses(self, output: str) -> Mapping[Cause, Hypothesis]:
        """Return the mutants of an output by their causes."""
        return {cause: partial(self._mutated, output, cause) for cause in self._mutants(output)}

    def _unchanged(self, output: str) -> Hypothesis:
        return partial(self._mutated, output, None)

    @lru_cache(maxsize=RECENT)  # noqa: B019 (an operation is kept as long as its cases)
    def _mutants(self, output: str) -> dict[Cause, Changes]:
        results = {each.name: self.graph[each.name] for each in self.outputs}
        axes = [Axis(0, "row", "rows"), Axis(1, "column", "columns")]
        by_axes: dict[tuple[str, frozenset[int]], list[str]] = {}
        for each in self.inputs:
            by_axes.setdefault((each.role, self.graph[each.name].axes), []).append(each.name)
        groups = [*by_axes.values()]
        gradients = self.inputs_of("gradient")
        return Formula(output, results, groups, gradients, axes).mutants()

    @lru_cache(maxsize=RECENT)  # noqa: B019 (likewise)
    def _run(self, case: Case) -> Run:
        return Run(self.given_of(case), case.dtype)

    def _mutated(self, output: str, cause: Cause | None, case: Case) -> Float64s:
        changes = {} if cause is None else self._mutants(output)[cause]
        return self.shaped(output, self._run(case).result(self.graph[output], changes), case)

    def _scale_of(self, output: str, cause: Cause, case: Case) -> Float64s:
        """Return the natural scale of a mutant, or 0 where it has none."""
        scale = self._run(case).scale(self.graph[output], self._mutants(output).get(cause, {}))
        return self.shaped(output, np.nan_to_num(scale, posinf=0.0), case)


class FormulaScales:
    """The natural scales of one case: see `truenorm.verify.operation.Scales`."""

    def __init__(
        self, operation: FormulaOperation, case: Case, exact: Mapping[str, Float64s]
    ) -> None:
        self._operation, self._case = operation, case
        self._once = case.part(slice(case.shape[0] // case.repeats))
        self._given, self._exact = operation.given_of(self._once), exact
        self._known: dict[int, dict[str, Float64s]] = {}
        self.kappa = np.ones((self._once.shape[0], 1))

    def terms(self, output: str) -> int:
        """Return how many numbers are summed for one element of the output."""
        return terms_of(self._operation.graph[output], self._operation.given_of(self._case))

    def of(self, output: str, power: int = 0) -> Float64s:
        """Return the scale of each element."""
        power = min(power, 1)
        if power not in self._known:
            self._known[power] = self._scales(power)
        return self._known[power][output]

    def _scales(self, power: int) -> dict[str, Float64s]:
        operation, case = self._operation, self._once
        outputs = {each.name: operation.graph[each.name] for each in operation.outputs}
        scales = {}
        for name, sized in natural_scales(outputs, self._given, case.dtype, power).items():
            scale, value = (operation.shaped(name, n, case) for n in (sized.error, sized.values))
            self._check(name, np.isfinite(self._exact[name][..., 0]) & ~np.isfinite(value))
            scales[name] = np.where(np.isnan(scale), np.inf, scale)
        return scales

    def _check(self, name: str, overflows: NDArray[np.bool_]) -> None:
        """Raise ValueError if the formula overflows in float64 on input of a model."""
        arrays = self._given.values()
        if overflows.any() and all((np.abs(each) <= MODEL_INPUT.largest).all() for each in arrays):
            raise ValueError(
                f"{name} of the formula {self._operation.name} overflows in float64 for "
                f"{self._case.name}: subtract the largest element, or declare ranges"
            )


class FormulaExpected(Expected):
    """Answers of a formula, which has no value at some infinite inputs."""

    def undefined(self, output: str) -> NDArray[np.bool_]:
        """Return True where the formula gives NaN without an input that is NaN, as for 0*inf.

        Kernels choose a limit, or NaN. So do comparisons with NaN.
        """
        operation = self._case.operation
        assert isinstance(operation, FormulaOperation)
        nan = _nan_rows({**self._case.inputs, **self._case.rows})
        if not operation.is_rows(output):
            nan = nan.max(axis=0)
        return np.isnan(self.wide[output]) & ~(nan & (not operation._compares))

    def misplaced(
        self, output: str, result: Array, bounds: AnswerBounds | None = None
    ) -> NDArray[np.bool_]:
        """Return True for each element that should be NaN or infinite and is not."""
        wrong = super().misplaced(output, result, bounds)
        return np.asarray(wrong & ~self.undefined(output)) if wrong.any() else wrong


def _nan_rows(arrays: Mapping[str, Array | None]) -> NDArray[np.bool_]:
    """Return True for each row with NaN, as a column; parameters belong to all rows."""
    nan: NDArray[np.bool_] = np.zeros((1, 1), bool)
    for array in arrays.values():
        if array is not None:
            rows = np.isnan(np.atleast_2d(array.astype(np.float64)))
            nan = np.logical_or(nan, rows.max(axis=1, keepdims=True))
    return nan


def _arguments(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments without a default."""
    if not inspect.isfunction(function):
        raise TypeError(f"a formula must be a function, got {function!r}")
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters):
        raise ValueError(f"a formula must name its arguments, got {inspect.signature(function)}")
    return [each.name for each in parameters if each.default is each.empty]


class _Names(ast.NodeTransformer):
    """Names each step that is assigned to a variable."""

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        match node.targets:
            case [ast.Name(id=name)]:
                call = ast.Name("__named__", ast.Load())
                node.value = ast.Call(call, [ast.Constant(name), node.value], [])
        return node


def _with_names(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[str]]:
    """Return a formula that names its steps, and the names in a tuple that it returns.

    Without the source, as in an interactive session, steps have no names.
    """
    try:
        source = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return function, []
    if len(tree.body) != 1 or not isinstance(definition := tree.body[0], ast.FunctionDef):
        return function, []  # a lambda among other code
    returned = definition.body[-1]
    names = []
    if isinstance(returned, ast.Return) and isinstance(returned.value, ast.Tuple):
        parts = returned.value.elts
        names = [each.id for each in parts if isinstance(each, ast.Name)]
    definition.decorator_list = []
    _Names().visit(definition)
    known = inspect.getclosurevars(function).nonlocals
    names_in = {**function.__globals__, **known, "__named__": _named}
    code = compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec")
    exec(code, names_in)
    named: Callable[..., Any] = names_in[definition.name]
    return named, names


def _named(name: str, value: Any) -> Any:
    return step(name, value) if isinstance(value, Node) else value


def formula(
    function: Callable[..., Any],
    *,
    name: str = "",
    parameters: Collection[str] | None = None,
    columns: Collection[str] = (),
    indices: Collection[str] = (),
    constants: Collection[str] = (),
    ranges: Mapping[str, Range] | None = None,
    multiple: int = 1,
) -> FormulaOperation:
    """Return an operation for `Subject` that is defined by a formula.

    The formula is a function of rows. It may use numbers, ``+ - * /``, ``**`` with an integer,
    ``abs``, comparisons, and what `truenorm.verify.formulas` exports. Exact answers, gradients,
    tolerances, cases and causes are derived from it.

    Parameters
    ----------
    function : callable
        Its arguments without a default are the inputs, rows first. ``eps`` is a number.
    name : str
        By default, the name of the function.
    parameters : collection of str, optional
        Inputs with a number for each column; by default, gamma, beta, weight and bias.
    columns : collection of str
        Inputs with one number for each row.
    indices : collection of str
        Inputs with one integer for each row: an index for `truenorm.verify.formulas.take`.
    constants : collection of str
        Inputs without a gradient, such as a mask.
    ranges : mapping of str to tuple of float
        By input, the least and the largest number that cases have.
    multiple : int
        The number of columns is a multiple of it: 2 for `truenorm.verify.formulas.rotate_half`.

    Returns
    -------
    FormulaOperation

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm.verify as tv
    >>> from truenorm.verify.formulas import exp, largest, total
    >>> def softmax(x):
    ...     top = largest(x)
    ...     e = exp(x - top)
    ...     return e / total(e)
    >>> def kernel(x):
    ...     e = np.exp(x)
    ...     return e / e.sum(axis=-1, keepdims=True)
    >>> subject = tv.Subject(kernel, operation=tv.formula(softmax))
    >>> tv.check(subject, tv.case("float32-normal-4x17", operation=subject.operation))
    """
    names = _arguments(function)
    known = [each for each in PARAMETERS if each in names]
    roles = {
        "parameters": known if parameters is None else parameters,
        "columns": columns,
        "indices": indices,
        "constants": constants,
    }
    return FormulaOperation(function, name or function.__name__, roles, ranges or {}, multiple)
