"""The public functions: their signatures, and how much memory they take."""

import inspect
import tracemalloc
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from ops.judged import Array, assert_same_bits, normal_inputs

MEGABYTE = 10**6


def test_identical_signatures() -> None:
    inference = inspect.signature(tn.layer_norm)
    training = inspect.signature(tn.layer_norm_forward)
    assert inference.parameters == training.parameters
    defaults = {name: parameter.default for name, parameter in inference.parameters.items()}
    assert defaults == {
        "x": inspect.Parameter.empty,
        "gamma": None,
        "beta": None,
        "axis": -1,
        "eps": 1e-5,
        "rounding": "correct",
        "out": None,
        "backend": None,
        "threads": None,
        "stream": None,
    }
    backward = inspect.signature(tn.layer_norm_backward).parameters
    assert list(backward) == ["dy", "saved", "out", "backend", "threads", "stream"]
    for name in ("out", "backend", "threads", "stream"):
        assert backward[name] == inference.parameters[name]


def test_both_forwards_return_the_same(backend: str, rounding: str, dtype: np.dtype[Any]) -> None:
    x, gamma, beta = normal_inputs((5, 67), dtype)[:3]
    options: dict[str, Any] = {"rounding": rounding, "backend": backend}
    y, saved = tn.layer_norm_forward(x, gamma, beta, **options)
    assert type(saved) is tn.Saved
    assert_same_bits((tn.layer_norm(x, gamma, beta, **options),), (y,))


class TestMemory:
    """At (8, 1024, 4096) float32: the result plus at most 8 MB; in the gate, of a quarter."""

    @pytest.fixture(scope="class", params=[2, pytest.param(8, marks=pytest.mark.slow)])
    @classmethod
    def arrays(cls, request: pytest.FixtureRequest) -> tuple[Array, Array, Array]:
        random = np.random.default_rng(0)
        x, dy = random.standard_normal((2, request.param, 1024, 4096), dtype=np.float32)
        return x, dy, random.standard_normal(4096, dtype=np.float32)

    def test_peak(self, backend: str, rounding: str, arrays: tuple[Array, Array, Array]) -> None:
        x, dy, row = arrays
        tn.layer_norm(x[0, :2], backend=backend)  # whatever is imported or compiled on first use
        tracemalloc.start()
        try:
            y, saved = tn.layer_norm_forward(x, row, row, rounding=rounding, backend=backend)
            assert tracemalloc.get_traced_memory()[1] - y.nbytes <= 8 * MEGABYTE
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            gradients = tn.layer_norm_backward(dy, saved, backend=backend)
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak - gradients.dx.nbytes <= 8 * MEGABYTE
        finally:
            tracemalloc.stop()
