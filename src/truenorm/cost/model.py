"""What a call costs: both norms in the three forms."""

import math
from collections.abc import Sequence
from typing import get_args

from truenorm.cost.counted import Cost, Form, PassCost
from truenorm.cost.counting import Sizes, on_chip, through_memory
from truenorm.cost.program import LAYER_NORM, RMS_NORM, Forms, Keep, Operation

__all__ = ["ITEMSIZES", "layer_norm_cost", "rms_norm_cost"]

ITEMSIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

BLOCK = 2**16
"""Elements of each temporary of the blocked form, as in the reference backend."""

FEWEST_ROWS, MOST_SHARES = 16, 1024
"""Of the fused backward: rows that have a share of dgamma and dbeta together, and how many shares
there are as long as rows are few. It depends on the number of rows alone, and so do the bits."""


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
