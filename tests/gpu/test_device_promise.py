"""The promise on a device: the families, numbers from anywhere, and what is beside a boundary.

A device compiles for each width and type, which takes PoCL seconds: the gate has two types, one of
each norm, and some of the widths; the session `gpu` has all.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from promise.bounds import FastBounds
from promise.cached_cases import some_cached_cases
from promise.checking import both_passes, check
from promise.families import DTYPES, Case, cases, full_range_cases
from promise.hard_cases import OUTPUTS, hard_cases, isolated_cases

NARROW = [dtype for dtype in DTYPES if dtype != np.float64]
GATED_WIDTHS = (2, 67)
of_each_norm = pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
of_each_type = pytest.mark.parametrize("dtype", NARROW, ids=str)
ELEMENTS = 2000
pytestmark = pytest.mark.usefixtures("device")


def without_float64(made: Iterable[Case]) -> Iterator[Case]:
    """Leave out what a device refuses."""
    for case in made:
        given = (case.x, case.gamma, case.beta)
        if not any(each is not None and each.dtype == np.float64 for each in given):
            yield case


def assert_right(made: Iterable[Case], outputs: tuple[str, ...] = OUTPUTS) -> int:
    compared = 0
    for case in without_float64(made):
        count, wrong = check(case, outputs, ["gpu"])
        compared += count
        assert not wrong, wrong
    return compared


@pytest.mark.parametrize(("dtype", "centred"), [("float32", True), ("bfloat16", False)])
def test_some_widths(dtype: str, *, centred: bool) -> None:
    made = (case for case in cases(dtype, 0) if case.x.shape[1] in GATED_WIDTHS)
    assert assert_right(case if centred else case.as_rms_norm() for case in made) >= 1000


@pytest.mark.slow
@of_each_type
@of_each_norm
def test_families(dtype: np.dtype[Any], *, centred: bool) -> None:
    made = cases(dtype, 31_000)
    assert assert_right(case if centred else case.as_rms_norm() for case in made) >= 30_000


@pytest.mark.slow
@of_each_type
def test_numbers_from_anywhere_in_the_range(dtype: np.dtype[Any]) -> None:
    assert assert_right(full_range_cases(dtype, 60)) > 0


@pytest.mark.slow
@of_each_type
@of_each_norm
@pytest.mark.parametrize("output", OUTPUTS)
def test_beside_a_boundary(dtype: np.dtype[Any], output: str, *, centred: bool) -> None:
    if output == "dbeta" and not centred:
        pytest.skip("RMSNorm has none")
    some = some_cached_cases(output, dtype, ELEMENTS)
    assert assert_right(some if centred else _of_rms_norm(output, dtype), (output,)) > 0


@pytest.mark.slow
def test_alone_in_their_rows() -> None:
    some = some_cached_cases("y", np.float32, 10_000)
    assert assert_right(isolated_cases(some, ELEMENTS // 4), ("y",)) > 0


def test_some_beside_a_boundary() -> None:
    assert assert_right(some_cached_cases("y", np.float32, 300), ("y",)) > 0


def _of_rms_norm(output: str, dtype: np.dtype[Any]) -> Iterable[Case]:
    return hard_cases(output, dtype, ELEMENTS, centred=False)


@pytest.mark.slow
@of_each_type
@of_each_norm
def test_fast_mode_keeps_its_bounds(dtype: np.dtype[Any], *, centred: bool) -> None:
    checked = 0
    for case in without_float64(cases(dtype, 14_000)):
        asked = case if centred else case.as_rms_norm()
        if asked.x.size > 2000 or asked.has_undefined_rows:
            continue
        wrong = FastBounds(asked).violations(both_passes(asked, "gpu", "fast"))
        assert not wrong, (str(asked), wrong[:5])
        checked += 1
    assert checked >= 10


@pytest.mark.slow
@of_each_norm
@pytest.mark.parametrize("output", ["y", "dx", "dgamma"])
def test_bounds_divided_by_64_are_seen(
    output: str, monkeypatch: pytest.MonkeyPatch, *, centred: bool
) -> None:
    from truenorm.kernels.gpu import opencl
    from truenorm.kernels.gpu.plan import source_of

    def divided(kernel: str) -> str:
        text = source_of(kernel)
        assert "#define SLACK 1.01" in text
        return text.replace("#define SLACK 1.01", "#define SLACK (1.01 / 64)")

    monkeypatch.setattr(opencl, "source_of", divided)
    monkeypatch.setattr("truenorm.kernels.gpu.backend.SLACK", 1.01 / 64)
    monkeypatch.setattr(opencl, "compiled", cache(opencl.compiled.__wrapped__))
    some: Iterable[Case] = some_cached_cases(output, np.float32, ELEMENTS)
    if output == "y":  # a row with another element that is refused is done again as a whole
        some = isolated_cases(some_cached_cases("y", np.float32, 10_000), ELEMENTS // 4)
    made = some if centred else _of_rms_norm(output, np.dtype(np.float32))
    assert any(check(case, [output], ["gpu"])[1] for case in without_float64(made))
