"""Layer norms in Triton, one program a row, each with a planted bug; `right` has none."""

from typing import Any

import torch  # type: ignore[import-not-found]
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

import truenorm.verify as tv

BUGS = {
    "padding": "padding-in-variance(power of two)",
    "divisor": "square-over-size-less-1",
    "eps": "eps-outside-root",
    "beta": "beta-times-gamma",
    "one_pass": "one-pass",
    "no_beta": "no-term(beta)",
}
"""By name, the id of a cause of the first finding."""


@triton.jit  # type: ignore[untyped-decorator]
def kernel(  # type: ignore[no-untyped-def]
    x,
    gamma,
    beta,
    y,
    size,
    eps,
    BUG: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    column = tl.arange(0, BLOCK)
    inside = column < size
    start = tl.program_id(0).to(tl.int64) * size
    items = tl.load(x + start + column, mask=inside, other=0.0)
    mean = tl.sum(items, axis=0) / size
    centred = items - mean
    if BUG != "padding":
        centred = tl.where(inside, centred, 0.0)
    var = tl.sum(centred * centred, axis=0) / (size - 1 if BUG == "divisor" else size)
    if BUG == "one_pass":
        var = tl.sum(items * items, axis=0) / size - mean * mean
    rstd = 1 / (tl.sqrt(var) + eps) if BUG == "eps" else 1 / tl.sqrt(var + eps)
    gain = tl.load(gamma + column, mask=inside, other=0.0)
    shift = tl.load(beta + column, mask=inside, other=0.0)
    result = centred * rstd * gain
    if BUG == "beta":
        result += shift * gain
    elif BUG != "no_beta":
        result += shift
    tl.store(y + start + column, result, mask=inside)


def subject_with(bug: str) -> tv.Subject:
    """Return a subject with a bug."""

    def layer_norm(input: Any, weight: Any, bias: Any, eps: float) -> Any:  # noqa: A002
        rows, size = input.shape
        y, block = torch.empty_like(input), triton.next_power_of_2(size)
        if rows:
            kernel[(rows,)](input, weight, bias, y, size, eps, BUG=bug, BLOCK=block)
        return y

    return tv.torch_subject(
        layer_norm, operation="layer_norm", dtypes=["float32"], backward=False, name=bug
    )


def __getattr__(name: str) -> tv.Subject:
    """Make a subject when it is asked for."""
    if name in BUGS or name == "right":
        return subject_with(name)
    raise AttributeError(name)
