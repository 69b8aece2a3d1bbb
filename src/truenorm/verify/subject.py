"""The kernel under test: `Subject`, where it is loaded from, and its description as JSON."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from truenorm.tools.arguments import require_type
from truenorm.verify.operation import EVERYWHERE, MODEL_INPUT, Domain, Operation, require_support
from truenorm.verify.operations import LAYER_NORM, as_operation
from truenorm.verify.types import FORMATS


class _OperationField:
    """The operation of a subject, which may be given as text."""

    def __get__(self, subject: object, _: type) -> Operation:
        operation: Operation = LAYER_NORM if subject is None else vars(subject)["_operation"]
        return operation

    def __set__(self, subject: object, operation: Operation | str) -> None:
        vars(subject)["_operation"] = as_operation(operation)


@dataclass(frozen=True)
class Subject:
    """A kernel under test: layer normalization, or another operation that the judge knows.

    It has either `forward`, with or without `backward`, or `command`.

    Parameters
    ----------
    forward : callable
        ``forward(x, gamma, beta, eps) -> (y, saved)`` on NumPy arrays, x of shape (rows, D); y
        alone if there is no backward. RMS normalization has no beta.
    backward : callable, optional
        ``backward(dy, saved) -> (dx, dgamma, dbeta)``, with the `saved` of its forward; for RMS
        normalization dx and dgamma.
    name : str
        Its name in the report.
    dtypes : sequence of str
        The types it claims to support: float16, bfloat16, float32, float64.
    also : sequence of str
        The extensions it claims to support: see `EXTENSIONS`, and ``operation.extensions``.
    command : sequence of str, optional
        A program and its arguments. It gets a folder as its last argument, reads cases from there
        and writes its results to it, as "Verify your kernel" describes.
    seconds : float
        Time limit of one call, where a call can be stopped.
    operation : Operation or str
        What it computes: text such as ``"rms_norm"`` or ``"add_rms_norm,parameters=float32"``, or
        a result of `truenorm.verify.norm` or `truenorm.verify.formula`, or ``"file.py:name"`` of
        a formula; by default, layer normalization.
    recipe : str
        Where it claims to round intermediate results to 16 bits, such as ``late``: then the bits
        of another recipe are a finding. The page "Recipes" lists them.
    domain : Domain, optional
        The rows that it claims to support. Other rows do not count for the grade. By default, what
        models feed a norm: elements up to 1e4, condition numbers up to 10; with ``strict``, all.

    Examples
    --------
    >>> from truenorm import textbook
    >>> import truenorm.verify as tv
    >>> tv.Subject(textbook.forward, textbook.backward, name="textbook", dtypes=["float64"])
    Subject('textbook', float64)
    """

    forward: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    name: str = "subject"
    dtypes: Sequence[str] = ("float32",)
    also: Sequence[str] = ()
    command: Sequence[str] | None = None
    seconds: float = 60.0
    operation: _OperationField = _OperationField()
    recipe: str = ""
    domain: Domain | None = None

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for arguments that are not valid."""
        norms = "text such as 'rms_norm', or a result of truenorm.verify.norm or formula"
        for name, kind, expected in (
            ("operation", Operation, norms),
            ("name", str, "text"),
            ("seconds", Real, "a number of seconds"),
            ("domain", Domain | None, "a truenorm.verify.Domain"),
        ):
            require_type(name, getattr(self, name), kind, expected)
        for name, function in (("forward", self.forward), ("backward", self.backward)):
            if not (function is None or callable(function)):
                raise TypeError(f"{name} must be a function; got {function!r}")
        if (self.forward is None) == (self.command is None):
            raise ValueError("give either forward (with or without backward) or command")
        if self.backward is not None and not self.operation.outputs_of(backward=True):
            raise ValueError(f"backward must not be given: {self.operation.title} has none")
        if self.command is not None:
            require_support(self.operation, "files", "the folder of a command")
        if self.command is not None and (isinstance(self.command, str) or not self.command):
            raise ValueError(
                f"command must be a list such as ['./my_kernel'], got {self.command!r}: "
                "it is run without a shell"
            )
        for name, values, known in (
            ("dtypes", self.dtypes, FORMATS),
            ("also", self.also, self.operation.extensions),
        ):
            if isinstance(values, str) or not set(values) <= set(known):
                raise ValueError(f"{name} must be a list of {', '.join(known)}; got {values!r}")
        not_for_commands = self.operation.not_for_commands
        if self.command is not None and set(self.also) & not_for_commands:
            raise ValueError(
                f"also of a command must not have {', '.join(sorted(not_for_commands))}; "
                f"got {self.also!r}: its files cannot hold them"
            )
        if self.recipe and self.recipe not in self.operation.knowledge.recipe_names:
            names = ", ".join(self.operation.knowledge.recipe_names)
            expected = f"be one of {names}" if names else "be empty for this operation"
            raise ValueError(f"recipe must {expected}; got {self.recipe!r}")
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds must be finite and above zero, got {self.seconds}")
        if not self.dtypes:
            raise ValueError("dtypes must have at least one type, got none")

    def __repr__(self) -> str:
        """Return the name and the types."""
        return f"Subject({self.name!r}, {', '.join(self.dtypes)})"

    def with_operation(self, operation: str) -> "Subject":
        """Return the subject with another operation, given by its name and options."""
        return replace(self, operation=as_operation(operation, self.operation))

    def required_domain(self, *, strict: bool) -> Domain:
        """Return the declared domain, or else that of model input or, if strict, of all rows."""
        return self.domain or (EVERYWHERE if strict else MODEL_INPUT)

    def with_options(self, options: "SubjectOptions", *, strict: bool = False) -> "Subject":
        """Return the subject with another recipe, with fewer types and with another domain."""
        dtypes = options.get("dtypes") or self.dtypes
        if not set(dtypes) <= set(self.dtypes):
            raise ValueError(
                f"{self.name} claims {', '.join(self.dtypes)}, not {', '.join(dtypes)}"
            )
        largest, kappa, domain = options.get("largest"), options.get("kappa"), self.domain
        if largest is not None or kappa is not None:
            domain = self.required_domain(strict=strict)
            largest = domain.largest if largest is None else largest
            domain = Domain(largest, domain.kappa if kappa is None else kappa)
        recipe = options.get("recipe") or self.recipe
        return replace(self, dtypes=tuple(dtypes), recipe=recipe, domain=domain)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its results."""
        forward = self.operation.outputs_of(backward=False)
        if self.command is None and self.backward is None:
            return tuple(forward)
        return (*forward, *self.operation.outputs_of(backward=True))

    @property
    def signature(self) -> str:
        """Return how the functions of a subject are called, and what they return.

        Examples
        --------
        >>> Subject(lambda x, gamma, beta, eps: x).signature
        'forward(x, gamma, beta, eps) -> y'
        """
        operation = self.operation
        inputs = operation.inputs_of("data", "parameter")
        results = operation.outputs_of(backward=False)
        arguments = ", ".join([*inputs, *["eps"][: operation.takes_eps]])
        if self.backward is None:
            names = ", ".join(results)
            return f"forward({arguments}) -> {names if len(results) == 1 else f'({names})'}"
        dy = ", ".join([*operation.inputs_of("gradient"), "saved"])
        gradients = ", ".join(operation.outputs_of(backward=True))
        return (
            f"forward({arguments}) -> ({', '.join([*results, 'saved'])}) "
            f"and backward({dy}) -> ({gradients})"
        )

    def to_description(self) -> dict[str, Any]:
        """Return the claims of the subject as JSON values, for another process."""
        domain = self.domain
        return {
            "name": self.name,
            "dtypes": list(self.dtypes),
            "also": list(self.also),
            "seconds": self.seconds,
            "callable": self.forward is not None,
            "operation": self.operation.spec,
            "recipe": self.recipe,
            "domain": domain and [domain.largest.hex(), domain.kappa.hex()],
            "backward": self.command is not None or self.backward is not None,
        }

    @staticmethod
    def from_description(
        description: dict[str, Any],
        options: "SubjectOptions | None" = None,
        *,
        strict: bool = False,
    ) -> "Subject":
        """Return the subject of a description, with options: it runs in the process that sent it.

        Raise ValueError if the operation is defined only in the file of the subject.
        """
        try:
            operation = as_operation(description["operation"])
        except ValueError as unknown:
            raise ValueError(
                f"the operation {description['operation']!r} must be a name that another process "
                f"can read: {unknown}"
            ) from unknown
        domain = description["domain"]
        functions: dict[str, Any] = {"command": ["(in another process)"]}
        if description["callable"]:
            backward = in_another_process if description["backward"] else None
            functions = {"forward": in_another_process, "backward": backward}
        subject = Subject(
            **functions,
            name=description["name"],
            dtypes=description["dtypes"],
            also=description["also"],
            seconds=description["seconds"],
            operation=operation,
            recipe=description["recipe"],
            domain=domain and Domain(*map(float.fromhex, domain)),
        )
        return subject.with_options(options or {}, strict=strict)

    def spec(self, file: str = "", name: str = "subject", operation: str = "") -> "SubjectSpec":
        """Return the spec of the subject, which is defined in a file under a name."""
        forward, backward = self.forward is not None, self.backward is not None
        return SubjectSpec(file, name, forward, backward, operation)


def require_subject(subject: Subject) -> None:
    """Raise TypeError for what is no `Subject`, such as the function itself."""
    if not isinstance(subject, Subject):
        raise TypeError(
            f"expected a Subject; got {subject!r}: use truenorm.verify.Subject(function) or "
            "truenorm.verify.load('file.py:function')"
        )


class SubjectOptions(TypedDict, total=False):
    """Options of the command line that override what a subject says of itself.

    `operation` as text, `recipe`, the `dtypes` to judge, and the domain: the `largest` number and
    `kappa`. `shapes` and `data` files add user cases.
    """

    operation: str | None
    recipe: str
    dtypes: Collection[str] | None
    largest: float | None
    kappa: float | None
    shapes: Sequence[str]
    data: Sequence[Path]


class SubjectSpec(NamedTuple):
    """Where a subject is defined, and how it is called.

    `file` and `name` say where it is defined; without them a reproducer has a line to fill in.
    `operation` overrides the operation of the subject if it is not empty. `recipe` is the one that
    the results were compared with.
    """

    file: str = ""
    name: str = "subject"
    callable: bool = True
    backward: bool = True
    operation: str = ""
    recipe: str = ""

    @property
    def target(self) -> str:
        """The target string: ``file.py:name`` or ``torch:package.module.function``."""
        return f"{self.file}:{self.name}"


def in_another_process(*_: object) -> None:
    """Stand for a function that this process does not have."""
    raise TypeError("this subject runs in another process")
