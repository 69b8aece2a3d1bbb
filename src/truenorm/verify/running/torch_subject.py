"""A kernel of PyTorch as a subject: arrays become tensors, and its results arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from truenorm.verify.operation import Operation
from truenorm.verify.operations import parse_operation
from truenorm.verify.operations.norms import Norm
from truenorm.verify.running.pytorch import FORMS, Form, Tensors, Values
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, dtype_of

FormName = Literal["functional", "out", "inplace", "module"]
DTYPES = ("float32", "bfloat16")
"""What a subject claims that does not say."""
TRIED = (4, 64)
"""The shape of the rows with which a function is tried."""


class Claims(TypedDict, total=False):
    """What a subject may say of itself, as of `Subject`."""

    name: str
    dtypes: Sequence[str]
    also: Sequence[str]
    recipe: str
    seconds: float


def torch_subject(
    function: Callable[..., Any],
    *,
    operation: Operation | str,
    form: FormName = "functional",
    device: str = "cpu",
    backward: Callable[..., Any] | Literal[False] | None = None,
    signature: str = "",
    **claims: Unpack[Claims],
) -> Subject:
    """Return a subject for the judge: a function or a module on tensors of PyTorch.

    Parameters
    ----------
    function : callable
        A function; a class of modules, or a function of D and eps that makes one.
    operation : Operation or str
        What it computes: ``truenorm.verify.RMS_NORM``, what `norm` returns, or as words, such as
        ``"add_rms_norm,parameters=float32"``.
    form : str
        ``functional``: ``function(x, weight, eps)`` returns y, or (y, sum) where a residual is
        added. ``out``: ``function(out, x, weight, eps)`` writes y. ``inplace``:
        ``function(x, residual, weight, eps)`` writes y to x and the sum to the residual; it is
        given copies. ``module``: ``module(x)`` or ``module(x, residual)``, its parameters set to
        those of each case.
    device : str
        Where the tensors are. It is waited for before a result is read.
    backward : callable, optional
        ``backward(dy, *saved)``, or of dy and dsum, returns the gradients in the order of
        arguments; `saved` is what forward returned after its results. By default autograd
        differentiates functions and modules whose results require it. With False there is none.
    signature : str
        The names of the arguments in order, such as ``"x, weight, eps"``, where the function does
        not tell them, or has names of its own.
    **claims
        name, dtypes, also, recipe and seconds, as of `Subject`; by default float32 and bfloat16.

    Returns
    -------
    Subject

    Notes
    -----
    On a CPU the tensors are the judge's own arrays. On another device they are copies, written
    back so that "inputs kept" is judged; of results the judge sees what was copied when they were
    returned, so that a buffer which is used again is not noticed.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> import torch  # doctest: +SKIP
    >>> function = torch.nn.functional.rms_norm  # doctest: +SKIP
    >>> tv.torch_subject(function, operation="rms_norm", dtypes=["bfloat16"])  # doctest: +SKIP
    Subject('torch.nn.functional.rms_norm', bfloat16)
    >>> tv.torch_subject(print, operation="rms_norm", form="in-place")
    Traceback (most recent call last):
        ...
    ValueError: form is 'in-place'; it is one of functional, out, inplace, module
    """
    if form not in FORMS:
        raise ValueError(f"form is {form!r}; it is one of {', '.join(FORMS)}")
    norm = parse_operation(operation) if isinstance(operation, str) else operation
    if not isinstance(norm, Norm):
        raise ValueError(f"operation is {norm.name}; give one that truenorm.verify.norm returns")
    kernel = FORMS[form](function, norm, Tensors(device), signature)
    said: Claims = {"name": _name_of(function), "dtypes": DTYPES, **claims}
    passes = _Passes(kernel, backward or None)
    if backward is None:
        passes.by_autograd = _tried(kernel, said["dtypes"])
    return _OfTensors(
        passes.forward,
        passes.backward if passes.has_backward else None,
        operation=norm,
        again=lambda other: torch_subject(
            function,
            operation=other,
            form=form,
            device=device,
            backward=backward,
            signature=signature,
            **claims,
        ),
        **said,
    )


@dataclass(frozen=True, repr=False)
class _OfTensors(Subject):
    """A subject whose arguments depend on what it computes."""

    again: Callable[[Operation], Subject] | None = field(default=None, compare=False)

    def with_operation(self, operation: str) -> Subject:
        """Return the same function as one of another operation."""
        assert self.again is not None
        return self.again(parse_operation(operation, self.operation))


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", getattr(function, "__name__", str(function)))
    module = getattr(function, "__module__", None)
    return f"{module}.{name}" if module and module != "__main__" else str(name)


class _Passes:
    """Forward and backward on arrays, as the judge calls them."""

    def __init__(self, form: Form, explicit: Callable[..., Any] | None) -> None:
        self.form, self.tensors, self.norm = form, form.tensors, form.norm
        self.explicit, self.by_autograd = explicit, False

    @property
    def has_backward(self) -> bool:
        """Whether there are gradients."""
        return self.by_autograd or self.explicit is not None

    def forward(self, *given: Any) -> Any:
        """Return the results, and what backward needs if there is one."""
        with self.tensors.memory():
            return self._forward(*given)

    def backward(self, *given: Any) -> tuple[Array | None, ...]:
        """Return the gradients of what requires them."""
        with self.tensors.memory():
            return self._backward(*given)

    def _forward(self, *given: Any) -> Any:
        *arrays, eps = given
        names = self.norm.inputs_of("data", "parameter")
        values: Values = {
            name: None if array is None else self.tensors.of(array)
            for name, array in zip(names, arrays, strict=True)
        }
        before = dict(values)
        results, rest = _called(self.form, values, eps, by_autograd=self.by_autograd)
        for name, array in zip(names, arrays, strict=True):
            if array is not None:
                self.tensors.write_back(array, before[name])
        found = [self.tensors.array(each) for each in results]
        if self.has_backward:
            return *found, (results, [values[name] for name in names], rest)
        return found[0] if len(found) == 1 else tuple(found)

    def _backward(self, *given: Any) -> tuple[Array | None, ...]:
        *arrays, (results, inputs, rest) = given
        arriving = [self.tensors.of(array) for array in arrays]
        if self.explicit is None:
            found = self.tensors.gradients(results, arriving, inputs)
        else:
            with self.tensors.torch.no_grad():
                returned = self.explicit(*arriving, *rest)
            found = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        for array, tensor in zip(arrays, arriving, strict=True):
            self.tensors.write_back(array, tensor)
        return tuple(map(self.tensors.array, found))


def _called(form: Form, values: Values, eps: float, *, by_autograd: bool) -> Any:
    """Run a form, with or without autograd."""
    size = int(values["x"].shape[-1])
    if by_autograd:
        for value in values.values():
            if value is not None:
                value.requires_grad_()
    values |= {"eps": eps, "shape": [size], "size": size}
    with form.tensors.torch.set_grad_enabled(by_autograd):
        return form.run(values)


def _tried(form: Form, dtypes: Sequence[str]) -> bool:
    """Call it once, and tell whether autograd knows its results; say so if it cannot be called.

    It may refuse some of its types, and tensors that require a gradient.
    """
    refused: Exception | None = None
    for dtype in dtypes:
        for by_autograd in (True, False) if form.differentiable else (False,):
            try:
                results, _ = _called(form, _ones(form, dtype), 1e-5, by_autograd=by_autograd)
            except Exception as raised:  # whatever it is, it is the subject's
                refused = raised
            else:
                return by_autograd and bool(getattr(results[0], "requires_grad", False))
    if isinstance(refused, ValueError):
        raise refused
    raise ValueError(
        f"it cannot be called with {', '.join(_shown(form))}: "
        f"{type(refused).__name__}: {refused}; signature='...' says otherwise"
    ) from refused


def _shown(form: Form) -> list[str]:
    """Return how it is called, for a message."""
    arguments = form.arguments
    return [*arguments.by_place, *(f"{name}={role}" for name, role in arguments.by_name)]


def _ones(form: Form, dtype: str) -> Values:
    """Return rows and parameters of ones."""
    norm = form.norm
    kind = dtype_of(norm.parameter_type or dtype)
    values = {name: np.ones(TRIED, dtype_of(dtype)) for name in norm.inputs_of("data")}
    values |= {name: np.ones(TRIED[1:], kind) for name in norm.parameters}
    return {name: form.tensors.of(array) for name, array in values.items()}
