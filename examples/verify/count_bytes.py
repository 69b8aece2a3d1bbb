"""Count the bytes that the kernels of `triton_layer_norm.py` load and store.

    TRITON_INTERPRET=1 python count_bytes.py

Triton's interpreter runs each load and store by a method, which is wrapped here. Addresses that
are loaded again can come from a cache, so distinct bytes are those that memory has to move. They
are compared with `truenorm.cost`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch  # type: ignore[import-not-found]
import triton_layer_norm as kernels
from triton.runtime.interpreter import interpreter_builder  # type: ignore[import-not-found]

from truenorm.cost import PassCost, layer_norm_cost

SHAPE = 128, 4096


class Traffic(NamedTuple):
    """The addresses of the elements that were loaded and stored, and the size of an element."""

    loads: list[tuple[Any, int]]
    stores: list[tuple[Any, int]]


def total(accesses: list[tuple[Any, int]]) -> int:
    """Return the bytes of all accesses."""
    return sum(addresses.size * itemsize for addresses, itemsize in accesses)


def distinct(accesses: list[tuple[Any, int]]) -> int:
    """Return the bytes of the elements that were accessed, each of them once."""
    sizes = {itemsize for _, itemsize in accesses}
    by_size = ([each for each, itemsize in accesses if itemsize == size] for size in sizes)
    return sum(
        np.unique(np.concatenate(each)).size * size
        for each, size in zip(by_size, sizes, strict=True)
    )


@contextmanager
def counted() -> Iterator[Traffic]:
    """Note the addresses of all loads and stores."""
    traffic = Traffic([], [])
    load, store = interpreter_builder.create_masked_load, interpreter_builder.create_masked_store

    def noted(accesses: list[tuple[Any, int]], pointers: Any, mask: Any) -> None:
        itemsize = pointers.get_element_ty().primitive_bitwidth // 8
        addresses, inside = np.broadcast_arrays(pointers.data, mask.data)
        accesses.append((addresses[inside], itemsize))

    def noting_load(pointers: Any, mask: Any, *others: Any) -> Any:
        noted(traffic.loads, pointers, mask)
        return load(pointers, mask, *others)

    def noting_store(pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        noted(traffic.stores, pointers, mask)
        return store(pointers, value, mask, *others)

    interpreter_builder.create_masked_load = noting_load
    interpreter_builder.create_masked_store = noting_store
    try:
        yield traffic
    finally:
        del interpreter_builder.create_masked_load, interpreter_builder.create_masked_store


def count(shape: tuple[int, int]) -> dict[str, tuple[Traffic, PassCost]]:
    """Run both passes; return what each accessed, beside the model."""
    random = torch.Generator().manual_seed(0)
    x, dy = torch.randn(2, *shape, generator=random)
    gamma, beta = torch.randn(2, shape[-1], generator=random)
    with counted() as forward:
        _, *saved = kernels.forward(x, gamma, beta, 1e-5)
    with counted() as backward:
        kernels.backward(dy, *saved)
    cost = layer_norm_cost(shape, "float32", form="fused", keep="x")
    return {"forward": (forward, cost.forward), "backward": (backward, cost.backward)}


def line(*words: object) -> str:
    """Return a line of the table."""
    return f"{words[0]:18}" + "".join(f"{each:>12}" for each in words[1:])


def main() -> None:
    """Print a table."""
    print(f"{SHAPE}, float32, bytes:\n")
    print(line("", "executed", "distinct", "model"))
    for name, (traffic, cost) in count(SHAPE).items():
        for kind, accesses, model in (
            ("loads", traffic.loads, cost.bytes_read),
            ("stores", traffic.stores, cost.bytes_written),
        ):
            numbers = total(accesses), distinct(accesses), model
            print(line(f"{name}, {kind}", *(f"{each:,}" for each in numbers)))


if __name__ == "__main__":
    main()
