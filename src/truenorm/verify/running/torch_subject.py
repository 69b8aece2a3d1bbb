"""`torch_subject`: a kernel on PyTorch tensors as a subject of the judge."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypedDict, Unpack

from truenorm.verify.norms.norm import require_norm
from truenorm.verify.operation import Operation
from truenorm.verify.operations import as_operation
from truenorm.verify.running.array_functions import (
    Values,
    arguments_of_norm,
    constants_of,
    names_of,
    parameters_of,
    role_of,
    trial_arrays,
)
from truenorm.verify.running.pytorch import FORMS, Form, Tensors, Unpacking
from truenorm.verify.running.records import describe_error, traceback_of
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array

FormName = Literal["functional", "out", "inplace", "module"]
DTYPES = ("float32", "bfloat16")
"""The types of a subject by default."""


class Claims(TypedDict, total=False):
    """Options of `Subject`."""

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
    backward: Callable[..., Any] | bool | None = None,
    signature: str = "",
    unpack: Unpacking | None = None,
    settings: Mapping[str, Any] | None = None,
    **claims: Unpack[Claims],
) -> Subject:
    """Return a subject for the judge: a function or a module on PyTorch tensors.

    Parameters
    ----------
    function : callable
        A function; a class of modules, or a function of D and eps that returns a module.
    operation : Operation or str
        What it computes: ``truenorm.verify.RMS_NORM``, the result of `norm`, or text such as
        ``"add_rms_norm,parameters=float32"``.
    form : str
        ``functional``: ``function(x, weight, eps)`` returns y, or (y, sum) where a residual is
        added. ``out``: ``function(out, x, weight, eps)`` writes y; other results have arguments
        of their own, and the sum may replace the residual. ``inplace``:
        ``function(x, residual, weight, eps)`` writes y to x and the sum to the residual; it is
        given copies. ``module``: ``module(x)`` or ``module(x, residual)``, its parameters set to
        those of each case.
    device : str
        The device of the tensors. It is synchronized before a result is read.
    backward : callable, optional
        ``backward(dy, *saved)``, or of dy and dsum, returns the gradients in the order of
        arguments; `saved` are the values that forward returned after its results. By default,
        autograd differentiates functions and modules whose results require it; a first call with
        rows of 64 finds out. With True it does so without that call, and with False there is no
        backward pass.
    signature : str
        The names of the arguments in order, such as ``"x, weight, eps"``, if the function has no
        signature or other names.
    unpack : callable, optional
        ``unpack(scales, rows, groups)`` returns the scales of a quantized norm as an array of
        this shape, from the array that was returned; `unswizzled` is one. In the form ``out``,
        `scales` has one axis, with room for multiples of 128 rows and of 4 groups.
    settings : mapping, optional
        Further arguments by name that are the same in every call, such as
        ``{"casting_mode": "gemma"}``. Those that the operation determines are known by name:
        num_groups, group_size, num_heads, activation, norm_before_gate, variance_size, norm_type.
    **claims
        name, dtypes, also, recipe and seconds, as of `Subject`; by default float32 and bfloat16.

    Returns
    -------
    Subject

    Notes
    -----
    On a CPU the tensors share memory with the arrays of the judge. On another device they are
    copies, which are written back so that "inputs kept" is judged. Results are copied when they
    are returned, so that a reused output buffer is not detected there.

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
    ValueError: form must be one of functional, out, inplace, module; got 'in-place'
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; got {form!r}")
    norm = require_norm(as_operation(operation), "torch_subject", "torch_subject")
    called = partial(function, **settings) if settings else function
    kernel = FORMS[form](called, norm, Tensors(device), signature, unpack)
    options: Claims = {"name": _name_of(function), "dtypes": DTYPES, **claims}
    passes = _Passes(kernel, None if isinstance(backward, bool) else backward)
    passes.by_autograd = backward is True
    if backward is None:
        passes.by_autograd = _is_differentiable(kernel, options["dtypes"])
    return _TorchSubject(
        passes.forward,
        passes.backward if passes.has_backward else None,
        operation=norm,
        rebuild=lambda other: torch_subject(
            function,
            operation=other,
            form=form,
            device=device,
            backward=backward,
            signature=signature,
            unpack=unpack,
            settings=settings,
            **claims,
        ),
        **options,
    )


def form_of(function: Callable[..., Any], operation: Operation | str) -> FormName:
    """Return ``out`` for a function that must be given an output, else ``functional``."""
    norm = require_norm(as_operation(operation), "torch_subject")
    required = [each for each in parameters_of(function) or () if each.default is each.empty]
    written = any(role_of(each.name, names_of(norm)) == "out" for each in required)
    return "out" if written else "functional"


@dataclass(frozen=True, repr=False)
class _TorchSubject(Subject):
    """A subject whose arguments are matched again for another operation."""

    rebuild: Callable[[Operation], Subject] | None = field(default=None, compare=False)

    def with_operation(self, operation: str) -> Subject:
        """Return the same function as one of another operation."""
        assert self.rebuild is not None
        return self.rebuild(super().with_operation(operation).operation)


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
        """True if there are gradients."""
        return self.by_autograd or self.explicit is not None

    def forward(self, *arguments: Any) -> Any:
        """Return the results, and the saved values if there is a backward pass."""
        arrays = dict(zip(arguments_of_norm(self.norm), arguments, strict=True))
        eps = arrays.pop("eps")
        with self.tensors.memory():
            values: Values = {
                name: None if array is None else self.tensors.of(array)
                for name, array in arrays.items()
            }
            inputs = dict(values)
            results, rest = _call(self.form, values, eps, by_autograd=self.by_autograd)
            for name, array in arrays.items():
                if array is not None:
                    self.tensors.write_back(array, inputs[name])
            outputs = self.form.arrays(results, inputs["x"])
        if self.has_backward:
            return *outputs, (results, [values[name] for name in arrays], rest)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def backward(self, *arguments: Any) -> tuple[Array | None, ...]:
        """Return the gradients."""
        *arrays, (results, inputs, rest) = arguments
        with self.tensors.memory():
            incoming = [self.tensors.of(array) for array in arrays]
            if self.explicit is None:
                gradients = self.tensors.gradients(results, incoming, inputs)
            else:
                with self.tensors.torch.no_grad():
                    returned = self.explicit(*incoming, *rest)
                gradients = list(returned) if isinstance(returned, (tuple, list)) else [returned]
            for array, tensor in zip(arrays, incoming, strict=True):
                self.tensors.write_back(array, tensor)
            return tuple(map(self.tensors.array, gradients))


def _call(form: Form, values: Values, eps: float, *, by_autograd: bool) -> Any:
    """Run a form with or without autograd."""
    if by_autograd:
        for value in values.values():
            if value is not None:
                value.requires_grad_()
    values |= {"eps": eps, **constants_of(form.norm, values["x"].shape)}
    with form.tensors.torch.set_grad_enabled(by_autograd):
        return form.run(values)


def _is_differentiable(form: Form, dtypes: Sequence[str]) -> bool:
    """Call a kernel once and return True if autograd can differentiate its result.

    The kernel may reject some types, and tensors that require a gradient. Raise ValueError if it
    rejects all of them.
    """
    rejected: Exception | None = None
    for dtype in dtypes:
        differentiable = form.differentiable and form.norm.outputs_of(backward=True)
        for by_autograd in (True, False) if differentiable else (False,):
            try:
                results, _ = _call(form, _ones(form, dtype), 1e-5, by_autograd=by_autograd)
            except Exception as error:  # any exception is the kernel's
                rejected = error
            else:
                return by_autograd and bool(getattr(results[0], "requires_grad", False))
    assert rejected is not None
    if isinstance(rejected, ValueError):
        raise rejected
    by_place, by_name = form.arguments
    arguments = ", ".join([*by_place, *(f"{name}={role}" for name, role in by_name)])
    # An error inside the kernel is no matter of its arguments.
    inside = traceback_of(rejected)
    advice = f"\n{inside}" if inside else "; if its arguments are others, give signature='...'"
    raise ValueError(
        f"it cannot be called with {arguments}: {describe_error(rejected)}{advice}"
    ) from rejected


def _ones(form: Form, dtype: str) -> Values:
    return {name: form.tensors.of(array) for name, array in trial_arrays(form.norm, dtype).items()}
