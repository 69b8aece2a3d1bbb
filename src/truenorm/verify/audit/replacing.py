"""Put a wrong kernel in the place of a function, in the process that runs the tests.

A call of the function is matched to the inputs of the norm by the names of its arguments. The
function runs as before, and its results are replaced by those of the wrong kernel.
"""

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

from truenorm.verify.audit.planted import (
    CONTROL,
    Kernel,
    PlantedBug,
    case_of_inputs,
    planted_bugs,
    round_to,
)
from truenorm.verify.audit.quantized import QuantizedKernel, quantized_bugs
from truenorm.verify.norms.norm import Norm, require_norm
from truenorm.verify.norms.steps import Steps
from truenorm.verify.operation import Case
from truenorm.verify.operations import as_operation
from truenorm.verify.running.array_functions import names_of, role_of
from truenorm.verify.running.pytorch import Tensors, array_of
from truenorm.verify.types import FORMATS, Array, Float64s

ENVIRONMENT_VARIABLE = "TRUENORM_AUDIT"
PLUGIN = "truenorm.pytest_plugin.replaced"
HINT = "give the names in order, as --signature 'x, weight, eps'"
SCALARS = ("eps", "shape", "size")
UNUSED = "_"
"""In a signature: an argument that the norm does not use."""
SELF = "self"
"""In the signature of a method: the module that has the parameters."""
STATISTICS = ("r", "mean", "w")
STATISTIC_TOLERANCE = 1e-2
"""Relative difference up to which a returned array is taken for a statistic."""
KEPT_CALLS = 256
"""Forward calls that are kept for a later backward pass."""


def parse_kernel_path(path: str) -> tuple[str, str]:
    """Return the module and the name of ``package.module:name``.

    Examples
    --------
    >>> parse_kernel_path("mypackage.kernels:rms_norm")
    ('mypackage.kernels', 'rms_norm')
    """
    module, colon, name = path.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(f"expected a path such as mypackage.kernels:rms_norm, got {path!r}")
    return module, name


@dataclass(frozen=True)
class AuditTask:
    """The kernel to replace, and the kernel that replaces it in one run of the tests."""

    replace: str  # package.module:name of the kernel
    operation: str  # that it computes, as text
    backward: str = ""  # package.module:name of its backward pass, if that is a function
    signature: str = ""  # the names of its arguments in order, if its own names do not tell
    eps: float | None = None  # for a kernel without such an argument
    recipe: str = ""  # the required rounding recipe
    kernel: str = CONTROL  # the name of the planted bug
    folder: str = ""  # where each process writes its observations

    @property
    def norm(self) -> Norm:
        """The operation that the kernel computes."""
        return require_norm(as_operation(self.operation), "truenorm audit", "audit")

    def bugs(self) -> list[PlantedBug]:
        """Return the bugs that can be planted in the kernel."""
        norm = self.norm
        if norm.is_quantized:
            return quantized_bugs(norm, self.recipe)
        return planted_bugs(norm, self.recipe)

    def make_kernel(self) -> Kernel:
        """Return the kernel with its bug."""
        norm, bugs = self.norm, {bug.name: bug for bug in self.bugs()}
        kind = QuantizedKernel if norm.is_quantized else Kernel
        return kind(norm, bugs.get(self.kernel), self.recipe)

    def to_environment(self) -> dict[str, str]:
        """Return the environment variables for a session of pytest and its workers."""
        plugins = [os.environ.get("PYTEST_PLUGINS", ""), PLUGIN]
        return {
            ENVIRONMENT_VARIABLE: json.dumps(asdict(self)),
            "PYTEST_PLUGINS": ",".join(filter(None, plugins)),
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "AuditTask":
        """Return the task of this session."""
        return cls(**json.loads(environment[ENVIRONMENT_VARIABLE]))

    @property
    def file(self) -> Path:
        """The file with the observations of this process."""
        return Path(self.folder) / f"{os.getpid()}.json"


@dataclass
class Observations:
    """What the replaced kernel observed in a run of tests.

    `largest` has, by result, the largest difference from the right one, and the largest number of
    the right one. `arguments` and `results` are those of the replaced calls, as the judge names
    them.
    """

    imported: bool = False  # the module of the kernel was imported
    calls: int = 0
    backward_calls: int = 0
    dtypes: list[str] = field(default_factory=list)  # types of x, in the order of the calls
    largest: dict[str, list[float]] = field(default_factory=dict)
    failed: str = ""  # the first test that failed
    error: str = ""  # why the audit could not replace a call
    arguments: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def add_names(self, arguments: Iterable[str], results: Iterable[str]) -> None:
        """Add the arguments and the replaced results of a call."""
        self.arguments += [name for name in arguments if name not in self.arguments]
        self.results += [name for name in results if name not in self.results]

    def add_difference(self, output: str, values: Float64s, right: Float64s) -> None:
        """Add the difference of a result from the right one; infinite if only one is finite."""
        if not values.size:
            return
        distance = np.abs(values - right)
        same = (values == right) | (np.isnan(values) & np.isnan(right))
        distance = np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf))
        known = self.largest.setdefault(output, [0.0, 0.0])
        size = np.abs(right[np.isfinite(right)]).max(initial=0.0)
        if distance.max() > known[0] or not known[1]:
            self.largest[output] = [max(float(distance.max()), known[0]), float(size)]

    def write(self, file: Path) -> None:
        """Write the observations of this process to a file."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Observations":
        """Merge the observations of all processes of a run."""
        total = cls()
        for file in sorted(folder.glob("*.json")):
            one = cls(**json.loads(file.read_text(encoding="utf-8")))
            total.imported |= one.imported
            total.calls += one.calls
            total.backward_calls += one.backward_calls
            total.dtypes += [dtype for dtype in one.dtypes if dtype not in total.dtypes]
            for output, (difference, size) in one.largest.items():
                if [difference, size] > total.largest.get(output, [-1.0, 0.0]):
                    total.largest[output] = [difference, size]
            total.failed = total.failed or one.failed
            total.error = total.error or one.error
            total.add_names(one.arguments, one.results)
        return total


class MatchError(ValueError):
    """The arguments of a call cannot be matched to the inputs of the norm."""


class CallArguments(NamedTuple):
    """The arrays or tensors of a call by role, and copies of them from before the call."""

    originals: Mapping[str, Any]
    arrays: Mapping[str, Array]
    eps: float | None
    size: int


def parse_signature(text: str, norm: Norm) -> inspect.Signature:
    """Return the signature that is written like ``x, weight, eps=1e-6``.

    Examples
    --------
    >>> from truenorm.verify.operations import RMS_NORM
    >>> str(parse_signature("x, weight, _, eps=1e-6", RMS_NORM))
    '(x, weight, _2, eps=1e-06)'
    """
    parameters, names = [], names_of(norm)
    for position, part in enumerate(text.split(",")):
        name, _, default = (each.strip() for each in part.partition("="))
        unused = name == UNUSED
        if not (unused or role_of(name, names) or (name == SELF and not position)):
            known = ", ".join(each[0] for each in names.values())
            raise MatchError(
                f"signature has the unknown name {name!r}; write names such as {known}, "
                f"or {UNUSED} for any other argument"
            )
        parameters.append(
            inspect.Parameter(
                f"_{position}" if unused else name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=float(default) if default else inspect.Parameter.empty,
            )
        )
    return inspect.Signature(parameters)


def match_arguments(
    original: Callable[..., Any],
    written: str,
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
    norm: Norm,
) -> CallArguments:
    """Match the arguments of a call to roles by their names, and copy the arrays."""
    try:
        signature = parse_signature(written, norm) if written else inspect.signature(original)
        bound = signature.bind(*arguments, **named)
    except (TypeError, ValueError) as error:
        how = f"by --signature {written!r}" if written else "by name"
        raise MatchError(f"the arguments cannot be matched {how}: {error}; {HINT}") from error
    bound.apply_defaults()
    values: dict[str, Any] = {}
    names, settings = names_of(norm), norm.inputs_of("setting")
    for name, value in bound.arguments.items():
        role = role_of(name, names)
        if name == SELF:
            values = _module_arguments(value, names)
        elif role in SCALARS or hasattr(value, "shape"):
            values.setdefault(role, value)
        elif role in settings and isinstance(value, (int, float)):
            values[role] = np.float32(value)
    originals = {role: value for role, value in values.items() if role and role not in SCALARS}
    arrays = {role: np.array(array_of(value)) for role, value in originals.items()}
    eps, shape = values.get("eps"), values.get("shape")
    size = math.prod(shape) if isinstance(shape, (tuple, list)) else 0
    return CallArguments(originals, arrays, None if eps is None else float(eps), size)


def _module_arguments(module: Any, names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for path, parameter in module.named_parameters():
        values.setdefault(role_of(path.rpartition(".")[2], names), parameter)
    for name, value in vars(module).items():
        role = role_of(name, names)
        if role in SCALARS:
            values.setdefault(role, value)
    return values


class Replacer:
    """Replaces functions by a kernel and records observations.

    With `keeps_calls`, it keeps forward calls for a backward pass that is a separate function.
    """

    def __init__(
        self,
        kernel: Kernel,
        observations: Observations,
        eps: float | None = None,
        *,
        keeps_calls: bool = False,
    ) -> None:
        self.kernel, self.observations, self.norm = kernel, observations, kernel.norm
        self._control = kernel.without_bug()
        self._eps = eps
        self._calls: deque[tuple[list[Any], CallArguments]] = deque(
            maxlen=KEPT_CALLS * keeps_calls
        )

    def wrap(self, original: Callable[..., Any], signature: str = "") -> Callable[..., Any]:
        """Return the function to call in place of the original."""

        @functools.wraps(original)
        def replaced(*arguments: Any, **named: Any) -> Any:
            # Match first: the original may overwrite its arguments.
            try:
                call = match_arguments(original, signature, arguments, named, self.norm)
            except Exception as error:
                original(*arguments, **named)  # a test may expect its exception
                self._record(error)
                raise
            returned = original(*arguments, **named)
            values = [*arguments, *named.values()]
            return self._recording(lambda: self._replace(call, returned, values))

        return replaced

    def _recording(self, work: Callable[[], Any]) -> Any:
        """Compute our results, and record an exception as an error of the audit."""
        try:
            with np.errstate(all="ignore"):
                return work()
        except Exception as error:
            self._record(error)
            raise

    def _record(self, error: Exception) -> None:
        if not self.observations.error:
            is_match = isinstance(error, MatchError)
            text = str(error) if is_match else "".join(traceback.format_exception(error))
            self.observations.error = text

    def _replace(self, call: CallArguments, returned: Any, values: Sequence[Any]) -> Any:
        if "dy" in call.arrays:
            return self._backward(self._with_forward_call(call, values), returned)
        return self._forward(call, returned)

    def _case(self, call: CallArguments) -> Case:
        x = call.arrays.get("x")
        if x is None:
            raise MatchError(f"no argument for x: {HINT}")
        if "residual" in call.arrays and not self.norm.adds:
            raise MatchError(f"the call has a residual: give --operation add_{self.norm.name}")
        if x.dtype.name not in FORMATS:
            raise MatchError(f"x must be one of {', '.join(FORMATS)}; got {x.dtype.name}")
        eps = self._eps if call.eps is None else call.eps
        if eps is None:
            raise MatchError("no argument for eps, or it is None: give --eps NUMBER")
        for name in self.norm.inputs_of("setting"):
            if name not in call.arrays:
                raise MatchError(f"no argument for {name}: {HINT}")
            if call.arrays[name].size != 1:
                raise MatchError(f"{name} must be one number; got {call.arrays[name].size}")
        case = case_of_inputs(self.norm, call.arrays, eps, call.size)
        if case.dtype not in self.observations.dtypes:
            self.observations.dtypes.append(case.dtype)
        return case

    def _forward(self, call: CallArguments, returned: Any) -> Any:
        case, originals = self._case(call), call.originals
        self.observations.calls += 1
        right, wrong = self._control.steps(case), self.kernel.steps(case)
        names = self.norm.outputs_of(backward=False)
        results = [] if returned is None else _as_list(returned)
        outputs = dict(zip(names, results, strict=False))
        # Results that are not returned are written to arguments.
        for name, role in self.kernel.written_arguments(originals).items():
            if name in names[len(results) :] and (returned is None or _is_written(call, role)):
                if role not in originals:
                    raise MatchError(f"no argument for the result {name}: {HINT}")
                outputs[name] = originals[role]
        self.observations.add_names(call.arrays, outputs)
        values = {name: self._result(name, right, wrong) for name in outputs}
        arrays = [self._as_array(name, values[name], each) for name, each in outputs.items()]
        pairs = list(zip(outputs.values(), arrays, strict=True))
        if any(output is array for output in outputs.values() for array in originals.values()):
            new = [_write_to(output, array) for output, array in pairs]
        else:
            new = [_new_like(output, array) for output, array in pairs]
            new = self._differentiable(call, case, list(outputs), new)
        extras = [_statistic(each, right, wrong) for each in results[len(names) :]]
        self._calls.append((extras, call))
        if returned is None:
            return None
        return _as_returned(returned, [*new, *extras] if extras else new[: len(results)])

    def _as_array(self, name: str, values: Float64s, model: Any) -> Array:
        """Return a result of the kernel in the shape and the type of the function's."""
        if not hasattr(model, "shape"):
            raise MatchError(f"the result {name} is no array: {type(model).__name__}")
        try:
            return self.kernel.as_array(name, values, tuple(model.shape), array_of(model).dtype)
        except ValueError as error:
            raise MatchError(f"{error}; check --operation") from error

    def _result(self, name: str, right: Steps, wrong: Steps) -> Float64s:
        """Return a result of the kernel, and record its difference from the right one."""
        values = self.kernel.result(wrong, name)
        if self.kernel.bug is not None:
            self.observations.add_difference(name, values, self._control.result(right, name))
        return values

    def _differentiable(
        self, call: CallArguments, case: Case, names: Sequence[str], results: list[Any]
    ) -> list[Any]:
        """Return tensors that autograd differentiates by the backward pass of the kernel."""
        inputs = {
            name: call.originals[name]
            for name in self.norm.inputs_of("data", "parameter")
            if name in call.originals
        }
        wanted = [name for name, each in inputs.items() if getattr(each, "requires_grad", False)]
        if not wanted or not self.norm.inputs_of("gradient"):
            return results

        def backward(incoming: list[Array | None]) -> list[Array | None]:
            dy = dict(zip([f"d{name}" for name in names], incoming, strict=True))
            gradients = self._gradients(case, dy, [f"d{name}" for name in wanted])
            return [
                round_to(gradients[f"d{name}"], call.arrays[name].dtype).reshape(tensor.shape)
                if name in wanted
                else None
                for name, tensor in inputs.items()
            ]

        return Tensors(results[0].device).with_gradients(
            results,
            list(inputs.values()),
            lambda incoming: list(self._recording(lambda: backward(incoming))),
        )

    def _gradients(
        self, case: Case, dy: Mapping[str, Array | None], names: Sequence[str]
    ) -> dict[str, Float64s]:
        """Return the gradients of these names from the incoming gradients dy and dsum."""
        self.observations.backward_calls += 1
        rows = {name: each.reshape(case.shape) for name, each in dy.items() if each is not None}
        self.observations.add_names(rows, names)
        case = case.with_inputs(**rows)
        right, wrong = self._control.steps(case), self.kernel.steps(case)
        return {name: self._result(name, right, wrong) for name in names}

    def _backward(self, call: CallArguments, returned: Any) -> Any:
        """Return the results of a function of dy with their gradients replaced."""
        dy = {name: call.arrays.get(name) for name in self.norm.inputs_of("gradient")}
        names, results = self.norm.outputs_of(backward=True), _as_list(returned)
        outputs = dict(zip(names, results, strict=False))
        present = [name for name, output in outputs.items() if output is not None]
        values = self._gradients(self._case(call), dy, present)
        self.observations.add_names(call.arrays, present)
        new = [
            _new_like(output, self._as_array(name, values[name], output))
            if name in values
            else None
            for name, output in outputs.items()
        ]
        return _as_returned(returned, [*new, *results[len(new) :]])

    def _with_forward_call(self, call: CallArguments, values: Sequence[Any]) -> CallArguments:
        """Add the arguments of the forward pass to those of its backward pass."""
        for extras, forward in reversed(self._calls):
            known = [each for each in [*extras, forward.originals["x"]] if each is not None]
            if any(value is each for value in values for each in known):
                return CallArguments(
                    {**forward.originals, **call.originals},
                    {**forward.arrays, **call.arrays},
                    forward.eps if call.eps is None else call.eps,
                    forward.size,
                )
        if "x" not in call.arrays:
            raise MatchError(
                "a backward pass has neither x nor a result of the forward pass as argument: "
                "name the forward pass with --replace, and this one with --backward"
            )
        return call


def _is_written(call: CallArguments, name: str) -> bool:
    """Return True if the function has changed an argument."""
    if name not in call.originals:
        return False
    return np.array(array_of(call.originals[name])).tobytes() != call.arrays[name].tobytes()


def _as_list(returned: Any) -> list[Any]:
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _as_returned(returned: Any, results: Sequence[Any]) -> Any:
    """Return results in the type that a function returned: one array, a list or a tuple."""
    if not isinstance(returned, (tuple, list)):
        return results[0]
    kind = type(returned)
    return kind(*results) if hasattr(returned, "_fields") else kind(results)


def _new_like(model: Any, array: Array) -> Any:
    """Return an array, or a tensor of the type and the device of another."""
    if isinstance(model, (np.ndarray, np.generic)):
        return array
    tensors, dtype = Tensors(model.device), model.dtype
    if dtype.itemsize == 1:  # NumPy's types of codes are not PyTorch's
        return tensors.of(array.view(np.uint8)).view(dtype)
    return tensors.of(array)


def _write_to(destination: Any, array: Array) -> Any:
    new = _new_like(destination, array)
    if isinstance(destination, np.ndarray):
        destination[...] = new
    else:
        destination.detach().copy_(new)
    return destination


def _statistic(returned: Any, right: Steps, wrong: Steps) -> Any:
    """Return the wrong kernel's statistic if that is what the function returned.

    A statistic is recognized by its values: kernels return 1/sqrt(... + eps) in many ways.
    """
    if not hasattr(returned, "shape"):
        return returned
    array = array_of(returned)
    if array.size != right.count or array.dtype.name not in FORMATS:
        return returned
    values = array.astype(np.float64).ravel()
    for step in STATISTICS:
        if np.allclose(values, right[step].ravel(), rtol=STATISTIC_TOLERANCE):
            values = np.broadcast_to(wrong[step], right[step].shape)
            return _new_like(returned, round_to(values, array.dtype).reshape(array.shape))
    return returned
