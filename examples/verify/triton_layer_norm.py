"""Layer norm in Triton, one kernel for each pass; docs/learn/fuse.md explains both.

On a GPU they are compiled. Without one, Triton's interpreter runs them on a CPU:

    TRITON_INTERPRET=1 truenorm verify triton_layer_norm.py --dtype float32
    TRITON_INTERPRET=1 python count_bytes.py

It needs PyTorch, Triton and the extra verify of truenorm.
"""

from typing import Any

import torch  # type: ignore[import-not-found]
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

import truenorm.verify as tv

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TILE = 2**13  # elements of a tile: 8 warps have 32 each in registers
FEWEST_ROWS, MOST_RUNS = 16, 1024  # of a run, as in truenorm.cost; a run has at least a tile
COLUMNS = 256  # of a tile of shares


@triton.jit  # type: ignore[untyped-decorator]
def forward_kernel(  # type: ignore[no-untyped-def]
    x,
    gamma,
    beta,
    y,
    saved,
    rows,
    size,
    eps,
    ROWS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Normalize ROWS rows of x."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < size)
    items = tl.load(x + row * size + column, mask=inside, other=0.0).to(tl.float32)
    hi = tl.sum(items, axis=1, keep_dims=True) / size  # (D1), rounded
    rest = tl.where(inside, items - hi, 0.0)
    lo = tl.sum(rest, axis=1, keep_dims=True) / size  # the mean is hi + lo
    centred = tl.where(inside, rest - lo, 0.0)  # (D2), and zero beyond the row
    var = tl.sum(centred * centred, axis=1, keep_dims=True) / size  # (D3)
    rstd = tl.div_rn(1.0, tl.sqrt_rn(var + eps))  # (D4)
    gain = tl.load(gamma + column, mask=column < size, other=0.0).to(tl.float32)
    shift = tl.load(beta + column, mask=column < size, other=0.0).to(tl.float32)
    result = gain * (centred * rstd) + shift  # (D5), (D6)
    tl.store(y + row * size + column, result.to(y.dtype.element_ty), mask=inside)
    tl.store(saved + row, hi, mask=row < rows)
    tl.store(saved + rows + row, lo, mask=row < rows)
    tl.store(saved + 2 * rows + row, rstd, mask=row < rows)


@triton.jit  # type: ignore[untyped-decorator]
def add_shares(  # type: ignore[no-untyped-def]
    shares,
    sums,
    first,
    runs,
    width,
    COLUMNS: tl.constexpr,  # noqa: N803
):
    """Add the shares of all runs, in their order, for the columns from `first` on."""
    column = first + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros([1, COLUMNS], tl.float32)
    for start in range(0, runs, 32):
        run = start + tl.arange(0, 32)[:, None]
        inside = (run < runs) & (column < width)
        share = tl.load(shares + run * width + column, mask=inside, other=0.0)
        total += tl.sum(share, axis=0, keep_dims=True)
    tl.store(sums + column, total, mask=column < width)


@triton.jit  # type: ignore[untyped-decorator]
def backward_kernel(  # type: ignore[no-untyped-def]
    dy,
    x,
    gamma,
    saved,
    dx,
    shares,
    sums,
    arrived,
    rows,
    size,
    run,
    ROWS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    ONE_LAUNCH: tl.constexpr,  # noqa: N803
):
    """Compute dx of a run of rows, and its shares; the last program adds all shares."""
    column = tl.arange(0, BLOCK)[None, :]
    gain = tl.load(gamma + column, mask=column < size, other=0.0).to(tl.float32)
    dgamma = tl.zeros([1, BLOCK], tl.float32)
    dbeta = tl.zeros([1, BLOCK], tl.float32)
    first = tl.program_id(0).to(tl.int64) * run
    for start in range(0, run, ROWS):
        row = first + start + tl.arange(0, ROWS)[:, None]
        there = (row < first + run) & (row < rows)
        inside = there & (column < size)
        at = row * size + column
        items = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        incoming = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        hi = tl.load(saved + row, mask=there, other=0.0)
        lo = tl.load(saved + rows + row, mask=there, other=0.0)
        rstd = tl.load(saved + 2 * rows + row, mask=there, other=0.0)
        xhat = tl.where(inside, ((items - hi) - lo) * rstd, 0.0)  # (D5) again, from x
        g = gain * incoming  # (D9)
        mean_g = tl.sum(g, axis=1, keep_dims=True) / size
        mean_gxhat = tl.sum(g * xhat, axis=1, keep_dims=True) / size
        result = rstd * (g - mean_g - xhat * mean_gxhat)  # (D17)
        tl.store(dx + at, result.to(dx.dtype.element_ty), mask=inside)
        dgamma += tl.sum(incoming * xhat, axis=0, keep_dims=True)  # (D8), of these rows
        dbeta += tl.sum(incoming, axis=0, keep_dims=True)  # (D7), of these rows
    place = shares + tl.program_id(0).to(tl.int64) * 2 * size + column
    tl.store(place, dgamma, mask=column < size)
    tl.store(place + size, dbeta, mask=column < size)
    if ONE_LAUNCH:
        tl.debug_barrier()  # all threads of this program have stored their shares
        runs = tl.num_programs(0)
        if tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == runs - 1:
            for start in range(0, 2 * size, COLUMNS):
                add_shares(shares, sums, start, runs, 2 * size, COLUMNS)


@triton.jit  # type: ignore[untyped-decorator]
def sum_kernel(  # type: ignore[no-untyped-def]
    shares,
    sums,
    runs,
    width,
    COLUMNS: tl.constexpr,  # noqa: N803
):
    """Add the shares in a launch of its own, a program for each tile of columns."""
    add_shares(shares, sums, tl.program_id(0) * COLUMNS, runs, width, COLUMNS)


def forward(input: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, ...]:  # noqa: A002
    """Return y, and what backward needs: references to x and gamma, three numbers a row."""
    rows, size = input.shape
    block = triton.next_power_of_2(size)
    tile = max(1, TILE // block)
    y, saved = torch.empty_like(input), input.new_empty((3, rows), dtype=torch.float32)
    launch = forward_kernel[(triton.cdiv(rows, tile),)]
    launch(input, weight, bias, y, saved, rows, size, eps, ROWS=tile, BLOCK=block, num_warps=8)
    return y, input, weight, saved


def backward(dy: Any, x: Any, gamma: Any, saved: Any) -> tuple[Any, ...]:
    """Return dx, dgamma and dbeta, by one launch."""
    return gradients(dy, x, gamma, saved, one_launch=True)


def gradients(dy: Any, x: Any, gamma: Any, saved: Any, *, one_launch: bool) -> tuple[Any, ...]:
    """Return dx, dgamma and dbeta, by one launch or by two."""
    rows, size = x.shape
    block = triton.next_power_of_2(size)
    tile = max(1, TILE // block)
    run = max(FEWEST_ROWS, tile, triton.cdiv(rows, MOST_RUNS))
    runs = triton.cdiv(rows, run)
    dx, shares = torch.empty_like(x), saved.new_empty((runs, 2, size))
    sums, arrived = saved.new_empty((2, size)), saved.new_zeros(1, dtype=torch.int32)
    arrays = dy, x, gamma, saved, dx, shares, sums, arrived
    shape = {"ROWS": tile, "BLOCK": block, "COLUMNS": COLUMNS, "num_warps": 8}
    backward_kernel[(runs,)](*arrays, rows, size, run, ONE_LAUNCH=one_launch, **shape)
    if not one_launch:
        launch = sum_kernel[(triton.cdiv(2 * size, COLUMNS),)]
        launch(shares, sums, runs, 2 * size, COLUMNS=COLUMNS)
    dgamma, dbeta = sums.to(gamma.dtype)
    return dx, dgamma, dbeta


subject = tv.torch_subject(
    forward,
    operation="layer_norm",
    backward=backward,
    device=DEVICE,
    name="layer norm in Triton",
    dtypes=["float32", "float16"],
)
