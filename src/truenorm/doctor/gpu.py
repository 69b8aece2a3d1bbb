"""Devices examined: their bits beside those of NumPy, then their speed beside a copy."""

import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.doctor.cards import Card, by_cuda, by_opencl
from truenorm.doctor.report import Line, Section
from truenorm.doctor.surroundings import error_text
from truenorm.ops.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.ops.rms_norm import rms_norm_backward, rms_norm_forward
from truenorm.tools.progress import Progress, announced
from truenorm.tools.stopwatch import Stopwatch
from truenorm.verify.types import dtype_of

__all__ = ["devices"]

SIZES, TIMED_SIZES, ELEMENTS = (64, 1000, 4096), (1024, 4096, 16384), 2**25
"""Lengths of rows that are compared, and that are timed; elements that are timed."""
FEWER_SIZES, FEWER_TIMED, FEWER_ELEMENTS = (1000,), (1024,), 2**18
"""The same of a processor, for which a kernel takes a second to compile."""
COMPARED, ROUNDS = 2**13, 9
"""Elements of x that are compared for each length; how often contestants take turns."""
DIFFERENT = "please report this with all lines above; until then use another backend"

Array = NDArray[Any]
Results = list[Any]


def devices(progress: Progress | None = None) -> list[Section]:
    """Look for devices, compare their bits and time them."""
    found = by_opencl(), by_cuda()
    cards = [each for each in found if isinstance(each, Card)]
    lines = [
        line for each in found for line in (each.facts if isinstance(each, Card) else (each,))
    ]
    sections = [Section("Devices", tuple(lines))]
    for card in cards:
        sections.append(_timed(f"Bits, {card.interface}", _bits(card, progress)))
        sections.append(_timed(f"Speed, {card.interface}", _speed(card, progress)))
    return sections


def _timed(title: str, lines: Iterator[Line]) -> Section:
    started = time.perf_counter()
    made = tuple(lines)
    return Section(title, made, time.perf_counter() - started)


def _bits(card: Card, progress: Progress | None) -> Iterator[Line]:
    sizes = SIZES if card.is_gpu else FEWER_SIZES
    for dtype in announced(card.types, progress, lambda each: f"{each}, compiled the first time"):
        try:
            compared = [
                _compared(card, _rows(size, COMPARED // size, dtype), centred=centred)
                for size, centred in product(sizes, (True, False))
            ]
        except Exception as broken:  # a driver can fail in any way
            yield Line(dtype, f"FAILED: {error_text(broken)}", DIFFERENT)
            continue
        count, wrong = (sum(each) for each in zip(*compared, strict=True))
        widths = ", ".join(map(str, sizes))
        if wrong:
            yield Line(dtype, f"WRONG: {wrong:,} of {count:,} numbers (D = {widths})", DIFFERENT)
        else:
            told = f"{count:,} numbers, both norms, forward and backward, D = {widths}"
            yield Line(dtype, f"correct to the bit ({told})")


def _rows(size: int, count: int, dtype: str) -> list[Array]:
    """Return x, every other row of which is far from zero, dy, gamma and beta."""
    random = np.random.default_rng(size)
    x, dy = random.standard_normal((2, count, size), np.float32)
    x[::2] += 100
    given = x, dy, *random.standard_normal((2, size), np.float32)
    return [each.astype(dtype_of(dtype)) for each in given]


def _compared(card: Card, given: list[Array], *, centred: bool) -> tuple[int, int]:
    """Return how many results there are, and how many have other bits than NumPy's."""
    right = _passes(given, centred=centred, backend="reference")
    found = _passes([card.put(each) for each in given], centred=centred)
    pairs = [
        (_bits_of(np.asarray(card.get(mine))), _bits_of(theirs))
        for mine, theirs in zip(found, right, strict=True)
    ]
    return sum(each.size for _, each in pairs), sum(int((a != b).sum()) for a, b in pairs)


def _bits_of(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def _passes(given: Results, *, centred: bool, **options: Any) -> Results:
    """Return y, dx, dgamma and, of layer norm, dbeta."""
    x, dy, gamma, beta = given
    if centred:
        y, saved = layer_norm_forward(x, gamma, beta, **options)
        return [y, *layer_norm_backward(dy, saved, **options)]
    y, saved = rms_norm_forward(x, gamma, **options)
    return [y, *rms_norm_backward(dy, saved, **options)[:2]]


def _speed(card: Card, progress: Progress | None) -> Iterator[Line]:
    if not card.is_gpu:
        yield Line("a processor", "this is no GPU, and these are no times of one")
    types = [each for each in card.types if each != "float16"]
    jobs = list(product(types, TIMED_SIZES if card.is_gpu else FEWER_TIMED))
    for dtype, size in announced(jobs, progress, lambda job: f"{job[0]}, rows of {job[1]}"):
        elements = ELEMENTS if card.is_gpu else FEWER_ELEMENTS
        try:
            watch = _raced(card, [card.put(each) for each in _rows(size, elements // size, dtype)])
        except Exception as broken:
            yield Line(f"{dtype}, {size}", f"FAILED: {error_text(broken)}", DIFFERENT)
            continue
        copied = watch.p50("copy")
        rate = 2 * elements * dtype_of(dtype).itemsize / copied / 1e9
        times = "; ".join(
            f"{mode} {watch.ratio(f'{mode} forward', 'copy'):.2f} forward, "
            f"{watch.ratio(f'{mode} backward', 'copy') / 1.5:.2f} backward"
            for mode in ("correct", "fast")
        )
        yield Line(f"{dtype}, {size}", f"{times}; a copy {copied * 1e3:.3g} ms, {rate:.0f} GB/s")


def _raced(card: Card, given: Results) -> Stopwatch:
    """Time a copy of x and both passes of layer norm in both modes, in turns."""
    x, dy, gamma, beta = given
    contestants: dict[str, Callable[[], object]] = {"copy": lambda: card.copy(x)}
    for mode in ("correct", "fast"):
        _, saved = layer_norm_forward(x, gamma, beta, rounding=mode)
        contestants[f"{mode} forward"] = lambda mode=mode: layer_norm_forward(  # type: ignore[misc]
            x, gamma, beta, rounding=mode
        )
        contestants[f"{mode} backward"] = lambda saved=saved: layer_norm_backward(dy, saved)  # type: ignore[misc]
    waiting = {name: _waiting(card, work) for name, work in contestants.items()}
    for work in waiting.values():
        work()
    watch = Stopwatch()
    for _ in range(ROUNDS):
        watch.go_round(waiting)
    return watch


def _waiting(card: Card, work: Callable[[], object]) -> Callable[[], object]:
    """Return the work with the wait for the device, which else would be somebody else's time."""

    def done() -> None:
        work()
        card.wait()

    return done
