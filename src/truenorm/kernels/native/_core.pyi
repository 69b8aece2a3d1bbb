"""Types of the extension module; `module.c` documents the functions."""

from typing import Any

from numpy.typing import NDArray

CENTRED: int
FAST: int
ROWS_AT: int
FIRST_PLACE: int
PLACES: int

Array = NDArray[Any]

def forward(
    x: Any,
    gamma: Any,
    beta: Any,
    y: Any,
    saved: Array,
    eps: float,
    mode: int,
    threads: int,
    /,
) -> bool: ...
def backward(
    dy: Any,
    x: Any,
    gamma: Any,
    saved: Array,
    dx: Any,
    dgamma: Array | None,
    dbeta: Array | None,
    eps: float,
    mode: int,
    threads: int,
    /,
) -> bool: ...
def forward_rows(
    x: Array,
    gamma: Array,
    beta: Array,
    y: Array,
    saved: Array,
    status: Array,
    eps: float,
    mode: int,
    /,
) -> int: ...
def backward_rows(
    dy: Array,
    x: Array,
    gamma: Array,
    saved: Array,
    dx: Array,
    sums: Array,
    status: Array,
    eps: float,
    mode: int,
    /,
) -> tuple[int, int, int]: ...
def backward_partial(
    dy: Any,
    x: Any,
    gamma: Any,
    saved: Array,
    dx: Any,
    has_dbeta: bool,
    eps: float,
    mode: int,
    threads: int,
    /,
) -> tuple[tuple[int, bytearray], tuple[int, bytearray]] | None: ...
def add_terms(
    dy: Array,
    x: Array,
    status: Array,
    undecided: Array,
    limbs: Array,
    eps: float,
    mode: int,
    /,
) -> int: ...
def add_numbers(
    first: int, limbs: Array, other_first: int, other_limbs: Array, /
) -> tuple[int, bytearray]: ...
def statistics(x: Array, saved: Array, mode: int, /) -> int: ...
def is_exact_sum(smallest: int, largest: int, rows: int, /) -> bool: ...
def merge(sums: Array, others: Array, /) -> None: ...
def select(name: str | None, /) -> str: ...
def scale_bounds(factor: float, /) -> None: ...
