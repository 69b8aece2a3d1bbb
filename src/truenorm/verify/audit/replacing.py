"""What a call of somebody's kernel is given, by what the judge calls it."""

import functools
import inspect
import json
import math
import os
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.audit.planted import CONTROL, Kernel, given_case, planted_kernels, stored
from truenorm.verify.operation import Case
from truenorm.verify.operations import parse_operation
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.steps import Steps
from truenorm.verify.running.pytorch import NAMES, Tensors, array_of, role_of
from truenorm.verify.types import FORMATS, Array, Float64s

HINT = "--signature 'x, weight, eps' says what they are, in order"
OF_NUMBERS = ("eps", "shape", "size")
PASSED_OVER = "_"
"""In a signature: an argument that is none of the norm's."""
SELF = "self"
"""In the signature of a method: the module, which has the parameters."""


class MatchError(ValueError):
    """The arguments of a call cannot be told apart."""


class Given(NamedTuple):
    """Arrays or tensors by role, as they are in the call; and copies of them, before it."""

    things: Mapping[str, Any]
    arrays: Mapping[str, Array]
    eps: float | None
    size: int


def signature_of(text: str) -> inspect.Signature:
    """Return the signature that is written like ``x, weight, eps=1e-6``.

    Examples
    --------
    >>> str(signature_of("x, weight, _, eps=1e-6"))
    '(x, weight, _2, eps=1e-06)'
    """
    parameters = []
    for place, part in enumerate(text.split(",")):
        name, _, default = (each.strip() for each in part.partition("="))
        unnamed = name == PASSED_OVER
        if not (unnamed or role_of(name) or (name == SELF and not place)):
            known = ", ".join(names[0] for names in NAMES.values())
            raise MatchError(
                f"signature has {name!r}, of which nothing is known; write names such as {known}, "
                f"or {PASSED_OVER} for an argument that is none of these"
            )
        parameters.append(
            inspect.Parameter(
                f"_{place}" if unnamed else name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=float(default) if default else inspect.Parameter.empty,
            )
        )
    return inspect.Signature(parameters)


def given_of(
    original: Callable[..., Any],
    written: str,
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
) -> Given:
    """Tell the arguments of a call apart by their names, and copy arrays."""
    try:
        signature = signature_of(written) if written else inspect.signature(original)
        bound = signature.bind(*arguments, **named)
    except (TypeError, ValueError) as refused:
        of = f"by --signature {written!r}" if written else "by name"
        raise MatchError(f"the arguments cannot be matched {of}: {refused}; {HINT}") from refused
    bound.apply_defaults()
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        role = role_of(name)
        if name == SELF:
            found = _of_module(value)
        elif role in OF_NUMBERS or hasattr(value, "shape"):
            found.setdefault(role, value)
    return _given(found)


def _of_module(module: Any) -> dict[str, Any]:
    """Return the parameters of a module, its eps and its shape."""
    found: dict[str, Any] = {}
    for path, parameter in module.named_parameters():
        found.setdefault(role_of(path.rpartition(".")[2]), parameter)
    for name, value in vars(module).items():
        role = role_of(name)
        if role in OF_NUMBERS:
            found.setdefault(role, value)
    return found


def _given(found: Mapping[str, Any]) -> Given:
    things = {role: value for role, value in found.items() if role and role not in OF_NUMBERS}
    arrays = {role: np.array(array_of(value)) for role, value in things.items()}
    eps = found.get("eps")
    shape = found.get("shape")
    size = math.prod(shape) if isinstance(shape, (tuple, list)) else 0
    return Given(things, arrays, None if eps is None else float(eps), size)


STATISTICS = ("r", "mean", "w")
NEAR = 1e-2
"""So near is a statistic that a kernel returns to what it is taken for."""


def results_of(returned: Any) -> list[Any]:
    """Return what a function returned, as a list."""
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def as_returned(returned: Any, results: Sequence[Any]) -> Any:
    """Return results in the kind of tuple that a function returned, or the one that it did."""
    if not isinstance(returned, (tuple, list)):
        return results[0]
    kind = type(returned)
    return kind(*results) if hasattr(returned, "_fields") else kind(results)


def new_like(thing: Any, values: Float64s) -> Any:
    """Return values as an array or a tensor of the type, shape and device of another."""
    array = stored(values, array_of(thing).dtype).reshape(thing.shape)
    return array if isinstance(thing, np.ndarray) else Tensors(thing.device).of(array)


def in_place(thing: Any, values: Float64s) -> Any:
    """Write values to an array or a tensor, and return it."""
    new = new_like(thing, values)
    if isinstance(thing, np.ndarray):
        thing[...] = new
    else:
        thing.detach().copy_(new)
    return thing


def statistic(thing: Any, right: Steps, wrong: Steps) -> Any:
    """Return a mean or a root as the planted kernel has it, if that is what was returned.

    What that is is told by its numbers: a kernel that keeps 1/sqrt(... + eps) keeps its own.
    """
    if not hasattr(thing, "shape"):
        return thing
    array = array_of(thing)
    if array.size != right.count or array.dtype.name not in FORMATS:
        return thing
    for step in STATISTICS:
        if np.allclose(array.astype(np.float64).ravel(), right[step].ravel(), rtol=NEAR):
            return new_like(thing, np.broadcast_to(wrong[step], right[step].shape))
    return thing


@dataclass
class Seen:
    """A run of tests, as the replaced kernel saw it.

    Attributes
    ----------
    imported : bool
        Whether the module of the kernel was.
    calls, backwards : int
        Of forward, and of backward.
    dtypes : list of str
        The types of x, in the order in which they came.
    largest : dict of str to list of float
        By result, the largest difference from the right one, and the largest number of that.
    failed : str
        The first test that failed.
    raised : str
        What was wrong with a call that is no fault of the kernel.
    arguments, results : list of str
        What calls were given, and which of their results were replaced, as the judge names them.
    """

    imported: bool = False
    calls: int = 0
    backwards: int = 0
    dtypes: list[str] = field(default_factory=list)
    largest: dict[str, list[float]] = field(default_factory=dict)
    failed: str = ""
    raised: str = ""
    arguments: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def had(self, arguments: Iterable[str], results: Iterable[str]) -> None:
        """Note what a call was given, and which of its results were replaced."""
        self.arguments += [name for name in arguments if name not in self.arguments]
        self.results += [name for name in results if name not in self.results]

    def differs(self, output: str, values: Float64s, right: Float64s) -> None:
        """Note how far a result is from the right one: what is not finite there is infinitely."""
        if not values.size:
            return
        away = np.abs(values - right)
        same = (values == right) | (np.isnan(values) & np.isnan(right))
        far = np.where(same, 0.0, np.where(np.isfinite(away), away, np.inf))
        known = self.largest.setdefault(output, [0.0, 0.0])
        size = np.abs(right[np.isfinite(right)]).max(initial=0.0)
        if far.max() > known[0] or not known[1]:
            self.largest[output] = [max(float(far.max()), known[0]), float(size)]

    def write(self, file: Path) -> None:
        """Write it to a file, for another process."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read(folder: Path) -> Seen:
    """Return what all processes of a run have written to a folder."""
    files = sorted(folder.glob("*.json"))
    return merged([json.loads(file.read_text(encoding="utf-8")) for file in files])


def merged(told: list[dict[str, Any]]) -> Seen:
    """Return what several processes saw together."""
    total = Seen()
    for each in told:
        total.imported |= each["imported"]
        total.calls += each["calls"]
        total.backwards += each["backwards"]
        total.dtypes += [dtype for dtype in each["dtypes"] if dtype not in total.dtypes]
        for output, (difference, size) in each["largest"].items():
            if [difference, size] > total.largest.get(output, [-1.0, 0.0]):
                total.largest[output] = [difference, size]
        total.failed = total.failed or each["failed"]
        total.raised = total.raised or each["raised"]
        total.had(each["arguments"], each["results"])
    return total


VARIABLE = "TRUENORM_AUDIT"
PLUGIN = "truenorm.pytest_plugin.replaced"


def place_of(target: str) -> tuple[str, str]:
    """Return the module and the name of ``package.module:name``.

    Examples
    --------
    >>> place_of("mypackage.kernels:rms_norm")
    ('mypackage.kernels', 'rms_norm')
    """
    module, colon, name = target.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{target!r} is no place such as mypackage.kernels:rms_norm")
    return module, name


@dataclass(frozen=True)
class Task:
    """One run: of the right kernel, or of a planted one.

    Attributes
    ----------
    replace, backward : str
        ``package.module:name`` of the kernel, and of its backward pass if that is a function.
    operation : str
        What it computes, in words.
    signature : str
        The names of its arguments in order, if they are not its own.
    eps : float, optional
        Where it has none of its own.
    recipe : str
        Where it rounds.
    kernel : str
        The name of the planted kernel.
    folder : str
        Where each process writes what it saw.
    """

    replace: str
    operation: str
    backward: str = ""
    signature: str = ""
    eps: float | None = None
    recipe: str = ""
    kernel: str = CONTROL
    folder: str = ""

    @property
    def norm(self) -> Norm:
        """What the kernel computes."""
        found = parse_operation(self.operation)
        assert isinstance(found, Norm)
        return found

    def planted(self) -> Kernel:
        """Return the kernel that takes the place."""
        known = {each.name: each for each in planted_kernels(self.norm, self.recipe)}
        return Kernel(self.norm, known.get(self.kernel), self.recipe)

    def environment(self) -> dict[str, str]:
        """Return the variables by which a session of pytest finds it, and its workers, too."""
        plugins = [os.environ.get("PYTEST_PLUGINS", ""), PLUGIN]
        return {
            VARIABLE: json.dumps(asdict(self)),
            "PYTEST_PLUGINS": ",".join(filter(None, plugins)),
        }

    @classmethod
    def found(cls, environment: Mapping[str, str]) -> "Task":
        """Return the task of this session."""
        return cls(**json.loads(environment[VARIABLE]))

    @property
    def file(self) -> Path:
        """Where this process writes what it saw."""
        return Path(self.folder) / f"{os.getpid()}.json"


REMEMBERED = 256
"""Forward calls whose backward pass may come yet."""


class Replacing:
    """Puts a planted kernel, or the right one, in the place of functions.

    With `remembers`, calls are kept for a backward pass that is a function of its own.
    """

    def __init__(
        self, kernel: Kernel, seen: Seen, eps: float | None = None, *, remembers: bool = False
    ) -> None:
        self.kernel, self.seen, self.norm = kernel, seen, kernel.norm
        self._control = Kernel(kernel.norm, recipe=kernel.recipe)
        self._eps = eps
        self._remembered: deque[tuple[list[Any], Given]] = deque(maxlen=REMEMBERED * remembers)

    def instead_of(self, original: Callable[..., Any], signature: str = "") -> Callable[..., Any]:
        """Return what is to be called instead of a function."""

        @functools.wraps(original)
        def replaced(*arguments: Any, **named: Any) -> Any:
            # It may write to what it is given; what it raises is its own affair.
            try:
                given = given_of(original, signature, arguments, named)
            except Exception as raised:
                original(*arguments, **named)  # A test may be about calls that it refuses.
                self._note(raised)
                raise
            returned = original(*arguments, **named)
            others = [*arguments, *named.values()]
            return self._told(lambda: self._changed(given, returned, others))

        return replaced

    def _told(self, work: Callable[[], Any]) -> Any:
        """Do our own part of a call, and note what goes wrong with it: tests did not find that."""
        try:
            with np.errstate(all="ignore"):
                return work()
        except Exception as raised:
            self._note(raised)
            raise

    def _note(self, raised: Exception) -> None:
        plain = isinstance(raised, MatchError)
        said = str(raised) if plain else "".join(traceback.format_exception(raised))
        self.seen.raised = self.seen.raised or said

    def _changed(self, given: Given, returned: Any, arguments: Sequence[Any]) -> Any:
        if "dy" in given.arrays:
            return self._backward(self._completed(given, arguments), returned)
        return self._forward(given, returned)

    def _case(self, given: Given) -> Case:
        """Return the rows of a call."""
        x = given.arrays.get("x")
        if x is None:
            raise MatchError(f"x is none of its arguments: {HINT}")
        if "residual" in given.arrays and not self.norm.adds:
            raise MatchError(f"a residual is given: --operation add_{self.norm.name} adds it")
        if x.dtype.name not in FORMATS:
            raise MatchError(f"x is {x.dtype.name}; an audit knows {', '.join(FORMATS)}")
        eps = self._eps if given.eps is None else given.eps
        if eps is None:
            raise MatchError("eps is none of its arguments, or None: give --eps NUMBER")
        case = given_case(self.norm, given.arrays, eps, given.size)
        if case.dtype not in self.seen.dtypes:
            self.seen.dtypes.append(case.dtype)
        return case

    def _forward(self, given: Given, returned: Any) -> Any:
        case = self._case(given)
        self.seen.calls += 1
        right, wrong = self._control.steps(case), self.kernel.steps(case)
        names = self.norm.outputs_of(backward=False)
        # Where nothing is returned, y is written to out, or to x, and the sum to the residual.
        places = [given.things.get("out", given.things["x"]), given.things.get("residual")]
        results = results_of(places[: len(names)] if returned is None else returned)
        count = len(results)
        if count < len(names) and _is_written(given, "residual"):
            results.append(given.things["residual"])
        arguments = list(given.things.values())
        found = dict(zip(names, results, strict=False))
        self.seen.had(given.arrays, found)
        values = {name: self._compared(name, right, wrong) for name in found}
        if any(each is one for each in found.values() for one in arguments):
            new = [in_place(thing, values[name]) for name, thing in found.items()]
        else:
            new = [new_like(thing, values[name]) for name, thing in found.items()]
            new = self._differentiable(given, case, list(found), new)
        extras = [statistic(each, right, wrong) for each in results[len(new) :]]
        self._remembered.append((extras, given))
        return None if returned is None else as_returned(returned, [*new, *extras][:count])

    def _compared(self, name: str, right: Steps, wrong: Steps) -> Float64s:
        """Return a result of the kernel, and note how far it is from the right one."""
        values = self.kernel.result(wrong, name)
        if self.kernel.planted is not None:
            self.seen.differs(name, values, self._control.result(right, name))
        return values

    def _differentiable(
        self, given: Given, case: Case, names: Sequence[str], results: list[Any]
    ) -> list[Any]:
        """Return tensors that autograd differentiates by the backward pass of the kernel."""
        inputs = {
            name: given.things[name]
            for name in self.norm.inputs_of("data", "parameter")
            if name in given.things
        }
        wanted = [name for name, each in inputs.items() if getattr(each, "requires_grad", False)]
        if not wanted:
            return results

        def backward(arriving: list[Array | None]) -> list[Array | None]:
            slopes = dict(zip([f"d{name}" for name in names], arriving, strict=True))
            found = self._gradients(case, slopes, [f"d{name}" for name in wanted])
            return [
                stored(found[f"d{name}"], given.arrays[name].dtype).reshape(thing.shape)
                if name in wanted
                else None
                for name, thing in inputs.items()
            ]

        return Tensors(results[0].device).with_gradients(
            results,
            list(inputs.values()),
            lambda arriving: list(self._told(lambda: backward(arriving))),
        )

    def _gradients(
        self, case: Case, slopes: Mapping[str, Array | None], names: Sequence[str]
    ) -> dict[str, Float64s]:
        """Return gradients of these names, from what arrives at y and at the sum."""
        self.seen.backwards += 1
        rows = {
            name: each.reshape(case.shape) for name, each in slopes.items() if each is not None
        }
        self.seen.had(rows, names)
        case = case.with_inputs(**rows)
        right, wrong = self._control.steps(case), self.kernel.steps(case)
        return {name: self._compared(name, right, wrong) for name in names}

    def _backward(self, given: Given, returned: Any) -> Any:
        """Return what a function of dy returned, with other gradients in it."""
        slopes = {name: given.arrays.get(name) for name in self.norm.inputs_of("gradient")}
        names, results = self.norm.outputs_of(backward=True), results_of(returned)
        found = dict(zip(names, results, strict=False))
        there = [name for name, thing in found.items() if thing is not None]
        values = self._gradients(self._case(given), slopes, there)
        self.seen.had(given.arrays, there)
        new = [
            new_like(thing, values[name]) if name in values else None
            for name, thing in found.items()
        ]
        return as_returned(returned, [*new, *results[len(new) :]])

    def _completed(self, given: Given, arguments: Sequence[Any]) -> Given:
        """Add what the forward pass was given to what its backward pass is."""
        for extras, before in reversed(self._remembered):
            known = [*extras, before.things["x"]]
            if any(one is other for one in arguments for other in known if other is not None):
                return Given(
                    {**before.things, **given.things},
                    {**before.arrays, **given.arrays},
                    before.eps if given.eps is None else given.eps,
                    before.size,
                )
        if "x" not in given.arrays:
            raise MatchError(
                "a backward pass is given neither x nor anything that the forward pass returned: "
                "name that with --replace, and this with --backward"
            )
        return given


def _is_written(given: Given, name: str) -> bool:
    """Tell whether an argument is no longer what it was before the call."""
    if name not in given.things:
        return False
    return np.array(array_of(given.things[name])).tobytes() != given.arrays[name].tobytes()
