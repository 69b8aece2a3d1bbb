"""A function that stands where somebody's kernel stood: it calls that, and changes its results.

So exceptions, shapes, types and devices, and what else is returned, are the kernel's own.
"""

import functools
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from truenorm.verify.audit.arguments import HINT, Given, MatchError, given_of
from truenorm.verify.audit.kernel import Kernel, given_case, stored
from truenorm.verify.audit.results import as_returned, in_place, new_like, results_of, statistic
from truenorm.verify.audit.seen import Seen
from truenorm.verify.operation import Case
from truenorm.verify.operations.norms.hypotheses.steps import Steps
from truenorm.verify.tensors.pytorch import Tensors, array_of
from truenorm.verify.types import FORMATS, Array, Float64s

__all__ = ["Replacing"]

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
