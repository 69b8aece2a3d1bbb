"""Types of the extension module; `module.c` and `entry.c` document the functions."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

CENTRED: int
FAST: int
WIDE: int
ROWS_AT: int
STRIP: int
FIRST_PLACE: int
PLACES: int

Array = NDArray[Any]

def connect(
    array_api: Any,
    ndarray: type,
    float32: Any,
    float16: Any,
    bfloat16: Any,
    float64: Any,
    saved: type,
    gradients: type,
    layer_norm: Any,
    os: dict[str, Any],
    keys: tuple[Any, ...],
    settings_of: Callable[..., Any],
    settings_of_backward: Callable[..., Any],
    thread_count: Callable[..., int],
    type_code: Callable[..., int | None],
    /,
) -> bool: ...

# NotImplemented: the general path must compute the call, or raise its error.
def forward(
    norm: Any,
    x: Any,
    gamma: Any,
    beta: Any,
    axis: Any,
    eps: Any,
    rounding: Any,
    out: Any,
    backend: Any,
    threads: Any,
    stream: Any,
    needs_saved: bool,
    /,
) -> Any: ...  # y, or y and a Saved
def backward(
    norm: Any, dy: Any, saved: Any, out: Any, backend: Any, threads: Any, stream: Any, /
) -> Any: ...  # Gradients
def backward_partial(
    norm: Any, dy: Any, saved: Any, out: Any, backend: Any, threads: Any, stream: Any, /
) -> Any: ...  # dx, and dgamma and dbeta in fixed point: first place and limbs
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
def add_strips(
    dy: Array, x: Array, columns: Array, sums: Array, eps: float, mode: int, /
) -> None: ...
def add_numbers(
    first: int, limbs: Array, other_first: int, other_limbs: Array, /
) -> tuple[int, bytearray]: ...
def statistics(x: Array, saved: Array, mode: int, /) -> int: ...
def is_exact_sum(smallest: int, largest: int, rows: int, /) -> bool: ...
def merge(sums: Array, others: Array, /) -> None: ...
def select(name: str | None, /) -> str: ...
def scale_bounds(factor: float, /) -> None: ...
