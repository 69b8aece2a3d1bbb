"""The step check: which line of a hand-derived backward pass is wrong."""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from truenorm.gradient_check.checker import MethodName, gradcheck
from truenorm.gradient_check.problem import Array, Backward, checked_input
from truenorm.gradient_check.result import SEVERITY, GradientCheck, Verdict

Values = dict[str, Any]
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, repr=False)
class StepsCheck:
    """The outcome of `truenorm.gradcheck_steps`; true for the verdict PASS only.

    ``repr()`` is one line, and ``str()`` is a report in the order of backward.

    Attributes
    ----------
    gradients : dict of str to GradientCheck
        The check of each gradient, such as "dvar", in the order of backward.
    depends_on : dict of str to tuple of str
        The gradients that each gradient is computed from, that of the output included.
    """

    gradients: dict[str, GradientCheck]
    depends_on: dict[str, tuple[str, ...]]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on a gradient."""
        return max((check.verdict for check in self.gradients.values()), key=SEVERITY.index)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """The wrong gradients that depend on right ones only: their lines have a mistake."""
        wrong = [name for name in self.gradients if self.gradients[name].verdict is Verdict.FAIL]
        return tuple(name for name in wrong if not self._doubtful(name))

    def __bool__(self) -> bool:
        """Return True if the verdict is PASS, so that a test can assert the result itself."""
        return self.verdict is Verdict.PASS

    def __repr__(self) -> str:
        """Return the verdict and the lines that have a mistake."""
        return f"<StepsCheck, {self._headline}>"

    def __str__(self) -> str:
        """Return the verdict, and one line for each gradient; below a wrong one, the reason."""
        lines = [self._headline]
        for name, result in self.gradients.items():
            (check,) = result.inputs
            lines.append(f"  {name}: {check.verdict}, {check}")
            if check.explanation:
                lines.append(f"    {check.explanation}")
            if check.verdict is Verdict.FAIL:
                lines.append(f"    {self._reason(name)}")
        return "\n".join(lines)

    @property
    def _headline(self) -> str:
        if self.mistakes:
            lines = " and in the line that computes ".join(self.mistakes)
            return f"{self.verdict}: the mistake is in the line that computes {lines}"
        names = [n for n in self.gradients if self.gradients[n].verdict is self.verdict]
        return f"{self.verdict}: {', '.join(names)}"

    def _doubtful(self, name: str) -> list[str]:
        """Return the gradients that this one depends on and that are not known to be right."""
        return [each for each in self.depends_on[name] if not self.gradients.get(each, True)]

    def _reason(self, name: str) -> str:
        """Return why a gradient is wrong: its own line, or one that it depends on."""
        if doubtful := self._doubtful(name):
            parts = [f"{each} ({self.gradients[each].verdict})" for each in doubtful]
            return f"{name} may be wrong because of {', '.join(parts)}"
        return (
            f"the mistake is in the line that computes {name}: it depends on right gradients "
            f"only ({', '.join(self.depends_on[name])})"
        )


def gradcheck_steps(
    steps: Mapping[str, Callable[..., Any]],
    backward: Backward,
    inputs: Mapping[str, Array],
    *,
    method: MethodName = "auto",
    tol: float | None = None,
    probes: int = 4,
    seed: int = 0,
    raise_exception: bool = False,
) -> StepsCheck:
    """Check every gradient of a backward pass, and name the line that has the mistake.

    The gradient of an intermediate value is compared with the derivative of the later steps with
    respect to it. If it is wrong, while the gradients it is computed from are right, then its own
    line has the mistake.

    Parameters
    ----------
    steps : dict of str to callable
        The forward pass: the name of each value, and the function that computes it. The parameters
        of the function are the names of inputs and of earlier steps. The last step is the output.
    backward : callable
        ``backward(dy, ...)`` returns a dict with the gradient of each input and of each step but
        the last: "dx" for x, "dvar" for var. Each is the total derivative of the loss, through all
        later steps. Its other parameters are names of inputs and steps, and it gets their values.
    inputs : dict of str to ndarray
        The point to check at: finite floating-point arrays. They are copied, never changed.
    method, tol, probes, seed, raise_exception
        As in `gradcheck`, which checks each gradient.

    Returns
    -------
    StepsCheck
        `mistakes` has the names of the gradients whose lines are wrong, `gradients` the check of
        each. It is true only for the verdict PASS, and ``str()`` is a report.

    Notes
    -----
    A second mistake can hide behind the first one: correct the line and check again.

    Examples
    --------
    A softmax, with a wrong sign in one line:

    >>> import numpy as np
    >>> import truenorm as tn
    >>> steps = {
    ...     "e": lambda x: np.exp(x),
    ...     "total": lambda e: e.sum(),
    ...     "y": lambda e, total: e / total,
    ... }
    >>> def backward(dy, e, total):
    ...     dtotal = (dy * e).sum() / total**2  # should be negative
    ...     de = dy / total + dtotal
    ...     dx = de * e
    ...     return {"dtotal": dtotal, "de": de, "dx": dx}
    >>> result = tn.gradcheck_steps(steps, backward, {"x": np.array([1.0, 2.0, 4.0])})
    >>> result
    <StepsCheck, FAIL: the mistake is in the line that computes dtotal>
    >>> print({name: str(check.verdict) for name, check in result.gradients.items()})
    {'dtotal': 'FAIL', 'de': 'FAIL', 'dx': 'FAIL'}
    """
    __tracebackhide__ = True  # pytest shows the line of the caller
    passes = _Passes(steps, backward, inputs)
    # The same seed draws the same dy for all.
    check = partial(gradcheck, method=method, tol=tol, probes=probes, seed=seed)
    gradients, depends_on = {}, {}
    for name, users in passes.users.items():
        part = _Downstream(passes, name)
        gradients[f"d{name}"] = check(part, part.gradient, [passes.values[name]])
        depends_on[f"d{name}"] = tuple(f"d{user}" for user in users)
    result = StepsCheck(gradients, depends_on)
    if raise_exception and not result:
        raise AssertionError(str(result))
    return result


class _Passes:
    """The forward pass as named steps, its values, and the backward pass.

    `users` has, for each value but the output, the steps that use it; it is in the order of
    backward, a value after all values that are computed from it.
    """

    def __init__(
        self,
        steps: Mapping[str, Callable[..., Any]],
        backward: Backward,
        inputs: Mapping[str, Array],
    ) -> None:
        arguments: dict[str, Any] = {"steps": steps, "inputs": inputs}
        for label, argument in arguments.items():
            if not isinstance(argument, Mapping) or not argument:
                raise TypeError(f"{label} must be a dict with at least one name, got {argument!r}")
        if both := sorted(steps.keys() & inputs.keys()):
            raise ValueError(f"{', '.join(both)} is an input and a step: rename the step")
        self._steps = steps
        self._backward = backward
        self.uses: dict[str, list[str]] = {}
        for name, step in steps.items():
            self.uses[name] = _used(f"step {name!r}", step, [*inputs, *self.uses])
        self._backward_uses = _used("backward", backward, [*inputs, *steps], skipped=1)
        order = list(steps)
        self.output = order[-1]
        names = [name for name in [*inputs, *steps] if name != self.output]
        users = {name: [step for step in order if name in self.uses[step]] for name in names}
        if unused := [name for name in names if not users[name]]:
            raise ValueError(f"no step uses {', '.join(unused)}: remove it, or use it in a step")
        self.users = dict(sorted(users.items(), key=lambda item: -order.index(item[1][0])))
        self.values = self.completed({name: checked_input(name, inputs[name]) for name in inputs})

    def completed(self, values: Values) -> Values:
        """Return the values together with those of the steps that are not among them."""
        for name, step in self._steps.items():
            if name not in values:
                values = {**values, name: step(**_copies(values, self.uses[name]))}
        return values

    def gradients(self, dy: Array, values: Values) -> Mapping[str, Any]:
        """Run backward, or raise an error unless it returns the gradient of each value."""
        gradients = self._backward(dy, **_copies(values, self._backward_uses))
        expected = [f"d{name}" for name in self.users]
        if not isinstance(gradients, Mapping):
            returned = f"a {type(gradients).__name__}"
        elif missing := [name for name in expected if name not in gradients]:
            returned = f"a dict without {', '.join(missing)}"
        elif unknown := [str(name) for name in gradients if name not in expected]:
            returned = f"a dict with the unknown {', '.join(unknown)}"
        else:
            return gradients
        raise ValueError(f"backward must return a dict of {', '.join(expected)}; got {returned}")


class _Downstream:
    """The output, and one gradient of backward, as functions of one value; others are fixed."""

    def __init__(self, passes: _Passes, name: str) -> None:
        self._passes = passes
        self._name = name
        moving = {name}
        for step, uses in passes.uses.items():
            if not moving.isdisjoint(uses):
                moving.add(step)
        self._fixed = {each: passes.values[each] for each in passes.values if each not in moving}
        # `gradcheck` takes the name of the value from here.
        self.__signature__ = inspect.Signature([inspect.Parameter(name, BY_NAME[0])])

    def __call__(self, value: Array) -> Any:
        """Run the later steps."""
        return self._values(value)[self._passes.output]

    def gradient(self, dy: Array, value: Array) -> tuple[Any]:
        """Run backward on the value and those of the later steps."""
        return (self._passes.gradients(dy, self._values(value))[f"d{self._name}"],)

    def _values(self, value: Array) -> Values:
        return self._passes.completed({**self._fixed, self._name: value})


def _used(label: str, function: Any, known: list[str], *, skipped: int = 0) -> list[str]:
    """Return the values that a function takes by name, or raise an error if it takes others."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[skipped:]
    except (TypeError, ValueError):
        raise TypeError(f"{label} must be a Python function, got {function!r}") from None
    names = [each.name for each in parameters if each.name in known and each.kind in BY_NAME]
    for each in parameters:
        if each.name not in names and each.default is each.empty:
            raise ValueError(
                f"{label} has the parameter {each}: expected names of inputs and earlier steps "
                f"({', '.join(known)}), or a default"
            )
    return names


def _copies(values: Values, names: list[str]) -> Values:
    """Return copies, which a step or backward may modify."""
    return {name: copy(values[name]) for name in names}
