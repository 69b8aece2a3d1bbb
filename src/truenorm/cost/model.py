"""What a call costs: the three forms, their passes, and the time that follows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from truenorm.cost.counting import Sizes, Step, on_chip, through_memory
from truenorm.cost.program import LAYER_NORM, RMS_NORM, Forms, Keep, Operation

__all__ = ["ITEMSIZES", "Cost", "Form", "PassCost", "layer_norm_cost", "rms_norm_cost"]

Form = Literal["textbook", "blocked", "fused"]

ITEMSIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

BLOCK = 2**16
"""Elements of each temporary of the blocked form, as in the reference backend."""

FEWEST_ROWS, MOST_SHARES = 16, 1024
"""Of the fused backward: rows that have a share of dgamma and dbeta together, and how many shares
there are as long as rows are few. It depends on the number of rows alone, and so do the bits."""


class _Counted:
    """What follows from steps, of one pass or of both."""

    steps: tuple[Step, ...]

    @property
    def flops(self) -> int:
        """Floating-point operations."""
        return sum(step.flops for step in self.steps)

    @property
    def bytes_read(self) -> int:
        """Bytes read from memory."""
        return sum(step.bytes_read for step in self.steps)

    @property
    def bytes_written(self) -> int:
        """Bytes written to memory."""
        return sum(step.bytes_written for step in self.steps)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """FLOPs for each byte that is moved."""
        return self.flops / self.bytes_moved


@dataclass(frozen=True)
class PassCost(_Counted):
    """What one pass costs.

    Attributes
    ----------
    steps : tuple of Step
        In the order in which they are done.
    one_sweep : bool
        Whether all steps are done while the data are on the chip, so that only the slower of
        memory and arithmetic takes time. If not, that holds for each step by itself.
    """

    steps: tuple[Step, ...]
    one_sweep: bool

    @property
    def peak(self) -> int:
        """The most bytes that exist at once beyond the arguments of the pass, results included."""
        return max(step.alive for step in self.steps)

    def seconds(self, bandwidth: float, flops_rate: float = math.inf) -> float:
        """Return the time by the roofline model, for bytes and FLOPs per second."""
        sweeps = [(self.bytes_moved, self.flops)]
        if not self.one_sweep:
            sweeps = [(step.bytes_read + step.bytes_written, step.flops) for step in self.steps]
        return sum(max(moved / bandwidth, flops / flops_rate) for moved, flops in sweeps)


@dataclass(frozen=True)
class Cost(_Counted):
    """What forward and backward cost together.

    Attributes
    ----------
    shape : tuple of int
        Of x; the last axis is the one that is normalized.
    dtype, form, keep : str
        As `layer_norm_cost`, or `rms_norm_cost`, was asked.
    forward, backward : PassCost
        Each pass by itself.
    kept : int
        Bytes that forward allocates for backward.
    referenced : int
        Bytes of the caller's own arrays, gamma and perhaps x, that are kept alive for backward.
    """

    shape: tuple[int, ...]
    dtype: str
    form: Form
    keep: Keep
    forward: PassCost
    backward: PassCost
    kept: int
    referenced: int

    @property
    def steps(self) -> tuple[Step, ...]:  # type: ignore[override]
        """The steps of both passes."""
        return self.forward.steps + self.backward.steps

    @property
    def passes(self) -> dict[str, PassCost]:
        """Both passes by name."""
        return {"forward": self.forward, "backward": self.backward}

    @property
    def peak(self) -> int:
        """The most bytes that exist at once in either pass beyond the caller's arrays."""
        return max(self.forward.peak, self.kept + self.backward.peak)

    def seconds(self, bandwidth: float, flops_rate: float = math.inf) -> float:
        """Return the time of both passes by the roofline model.

        Parameters
        ----------
        bandwidth : float
            Bytes that the machine moves in a second; `measure_bandwidth` finds out.
        flops_rate : float
            Floating-point operations in a second. Without it, memory alone is counted.

        Returns
        -------
        float
            The time, for arrays that no cache holds.

        Examples
        --------
        >>> from truenorm.cost import layer_norm_cost
        >>> print(f"{layer_norm_cost((8, 1024, 4096)).seconds(bandwidth=20e9):.3f}")
        0.035
        """
        return sum(each.seconds(bandwidth, flops_rate) for each in (self.forward, self.backward))


def layer_norm_cost(
    shape: Sequence[int], dtype: str = "float32", form: Form = "fused", keep: Keep = "x"
) -> Cost:
    """Count FLOPs, bytes and memory of layer normalization over the last axis.

    Parameters
    ----------
    shape : sequence of int
        The shape of x.
    dtype : str
        "float16", "bfloat16", "float32" or "float64": the type of all arrays. The fused form has
        its statistics and sums in float32 or wider.
    form : str
        "textbook" is `truenorm.textbook`, where every NumPy operation goes through memory.
        "blocked" does the same operations on blocks of rows that stay in a cache. "fused" is one
        kernel a pass that has a row in registers.
    keep : str
        What backward starts from, "x" or "xhat". `truenorm.textbook` keeps xhat; with "x" it is
        computed again.

    Returns
    -------
    Cost
        Step by step and in total.

    Examples
    --------
    >>> from truenorm.cost import layer_norm_cost
    >>> for form in ("textbook", "blocked", "fused"):
    ...     cost = layer_norm_cost((8, 1024, 4096), form=form, keep="xhat")
    ...     print(f"{form:9s}{cost.bytes_moved / 1e6:6.0f} MB {cost.intensity:.2f} FLOPs a byte")
    textbook   4430 MB 0.14 FLOPs a byte
    blocked     805 MB 0.75 FLOPs a byte
    fused       839 MB 0.80 FLOPs a byte
    """
    return _cost(LAYER_NORM, shape, dtype, form, keep)


def rms_norm_cost(
    shape: Sequence[int], dtype: str = "float32", form: Form = "fused", keep: Keep = "x"
) -> Cost:
    """Count FLOPs, bytes and memory of RMSNorm over the last axis.

    Parameters
    ----------
    shape, dtype, form, keep
        As in `layer_norm_cost`.

    Returns
    -------
    Cost
        Step by step and in total.

    Examples
    --------
    One kernel a pass moves what layer norm moves, and computes little more than half as much:

    >>> from truenorm.cost import layer_norm_cost, rms_norm_cost
    >>> layer, rms = (count((8, 1024, 4096)) for count in (layer_norm_cost, rms_norm_cost))
    >>> print(f"{rms.bytes_moved / layer.bytes_moved:.2f} {rms.flops / layer.flops:.2f}")
    0.98 0.56
    """
    return _cost(RMS_NORM, shape, dtype, form, keep)


def _cost(norm: Forms, shape: Sequence[int], dtype: str, form: Form, keep: Keep) -> Cost:
    """Count both passes of a norm."""
    _check(shape, dtype, form, keep)
    rows, width, itemsize = math.prod(shape[:-1]), shape[-1], ITEMSIZES[dtype]
    sizes, program = Sizes(rows, width, itemsize, itemsize), norm.textbook
    if form == "fused":
        program = norm.fused
        rows_of_a_share = max(FEWEST_ROWS, -(-rows // MOST_SHARES))
        sizes = sizes._replace(wide=max(4, itemsize), shares=-(-rows // rows_of_a_share))
    kept: tuple[str, ...] = ("xhat", "rstd")
    backward, referenced = program.backward, ["gamma"]
    if keep == "x":
        kept, backward = program.statistics, program.rebuild + program.backward
        referenced = ["gamma", "x"]
    return Cost(
        tuple(shape),
        dtype,
        form,
        keep,
        _pass(form, program.forward, sizes, results=["y", *kept]),
        _pass(form, backward, sizes, results=norm.gradients),
        kept=sizes.total(kept),
        referenced=sizes.total(referenced),
    )


def _pass(
    form: Form, operations: Sequence[Operation], sizes: Sizes, results: Sequence[str]
) -> PassCost:
    """Count one pass of a form."""
    if form == "textbook":
        return PassCost(through_memory(operations, sizes), one_sweep=False)
    scratch = 0
    if form == "blocked":
        block = sizes._replace(rows=min(sizes.rows, max(1, BLOCK // sizes.width)))
        scratch = max(step.alive for step in through_memory(operations, block))
    return PassCost(on_chip(operations, sizes, results, scratch), one_sweep=True)


def _check(shape: Sequence[int], dtype: str, form: str, keep: str) -> None:
    """Refuse what has no cost, and say what is known."""
    if not shape or min(shape) < 1:
        raise ValueError(
            f"the shape {tuple(shape)} has no elements: every axis needs a length of at least 1"
        )
    for name, value, known in (
        ("dtype", dtype, tuple(ITEMSIZES)),
        ("form", form, get_args(Form)),
        ("keep", keep, get_args(Keep)),
    ):
        if value not in known:
            raise ValueError(f"{name} is {value!r}: choose one of {', '.join(known)}")
