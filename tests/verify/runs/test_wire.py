"""Messages between two processes: arrays, and no objects."""

import io

import numpy as np
import pytest

from truenorm.verify.running.process import BrokenMessageError, receive, send


def test_the_wire_carries_arrays_and_no_objects() -> None:
    pipe = io.BytesIO()
    arrays = {"a": np.arange(6, dtype=np.float16).reshape(2, 3)[:, ::2], "b": None}
    send(pipe, {"text": "<ü\n>"}, arrays)
    pipe.seek(0)
    received = receive(pipe, lambda: 100)
    assert received is not None
    message, found = received
    assert message == {"text": "<ü\n>"}
    assert found["b"] is None
    assert (np.asarray(found["a"]) == arrays["a"]).all()
    assert receive(pipe, lambda: 100) is None


@pytest.mark.parametrize(
    "line",
    [
        b"noise\n",
        b"[]\n",
        b'{"arrays": {"a": ["object", [1]]}}\n12345678',
        b'{"arrays": {"a": ["float32", [-1]]}}\n',
        b'{"arrays": {"a": ["float64", [1000000000000]]}}\n',
        b'{"arrays": {"a": ["float64", [2]]}}\n12345678',
    ],
)
def test_a_broken_message_is_refused_before_anything_is_allocated(line: bytes) -> None:
    with pytest.raises(BrokenMessageError):
        receive(io.BytesIO(line), lambda: 1000)
