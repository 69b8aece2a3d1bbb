"""A device beside other backends: one does forward, another backward; partials; changed rows."""

import numpy as np
import pytest
from numpy.typing import NDArray

import truenorm as tn
from programs import run_python
from promise.checking import bytes_of

pytestmark = pytest.mark.usefixtures("device")

SIZE = 67


@pytest.fixture
def given() -> list[NDArray[np.float32]]:
    """Return x, dy, gamma and beta."""
    random = np.random.default_rng(3)
    rows = random.normal(2.0, 1.0, (2, 30, SIZE)).astype(np.float32)
    return [*rows, *random.normal(size=(2, SIZE)).astype(np.float32)]


@pytest.mark.parametrize("pair", [("gpu", "gpu"), ("gpu", "reference"), ("reference", "gpu")])
def test_same_bits(given: list[NDArray[np.float32]], pair: tuple[str, str]) -> None:
    x, dy, gamma, beta = given
    y, saved = tn.layer_norm_forward(x, gamma, beta, backend="reference")
    right = bytes_of(y, *tn.layer_norm_backward(dy, saved, backend="reference"))
    y, saved = tn.layer_norm_forward(x, gamma, beta, backend=pair[0])
    assert bytes_of(y, *tn.layer_norm_backward(dy, saved, backend=pair[1])) == right


@pytest.mark.parametrize("forward", ["gpu", "reference"])
def test_changed_rows_are_noticed(given: list[NDArray[np.float32]], forward: str) -> None:
    x, dy, gamma, beta = given
    _, saved = tn.layer_norm_forward(x, gamma, beta, backend=forward)
    x[4, 5] += 0.01
    with pytest.raises(RuntimeError, match="x changed since the forward pass"):
        tn.layer_norm_backward(dy, saved, backend="gpu")


def test_partials_have_the_same_bytes(given: list[NDArray[np.float32]]) -> None:
    x, dy, gamma, beta = given
    found = []
    for backend in ("gpu", "reference"):
        _, saved = tn.layer_norm_forward(x, gamma, beta, backend=backend)
        dx, partial = tn.layer_norm_backward_partial(dy, saved, backend=backend)
        found.append((dx.tobytes(), partial.tobytes()))
    assert found[0] == found[1]


def test_no_device_is_looked_for_unless_asked() -> None:
    calls = "tn.layer_norm(x), tn.layer_norm(x, backend='reference')"
    code = f"import sys, truenorm as tn, numpy as np; x = np.eye(3); {calls}"
    assert run_python(f"{code}; print('pyopencl' in sys.modules)") == ["False"]


def test_any_number_of_calls_at_once(given: list[NDArray[np.float32]]) -> None:
    """A kernel of OpenCL holds its arguments: two threads must not mix theirs."""
    from concurrent.futures import ThreadPoolExecutor

    x, _, gamma, beta = given
    right = [tn.layer_norm(x * k, gamma, beta, backend="reference").tobytes() for k in range(1, 9)]

    def on_device(k: int) -> bytes:
        return tn.layer_norm(x * k, gamma, beta, backend="gpu").tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(on_device, range(1, 9))) == right
