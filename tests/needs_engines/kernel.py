"""A kernel for workers; each process that loads it leaves a file in the folder WORKERS.

Workers load it by the path of this file, so it imports nothing of the tests.
"""

import os
import socket
from pathlib import Path

import truenorm.verify as tv
from truenorm.verify.types import Array


def one_pass(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    mean = x.mean(axis=-1, keepdims=True)
    variance = (x * x).mean(axis=-1, keepdims=True) - mean * mean
    y: Array = gamma * (x - mean) / (variance + x.dtype.type(eps)) ** 0.5 + beta
    return y


if "WORKERS" in os.environ:
    (Path(os.environ["WORKERS"]) / f"{socket.gethostname()}-{os.getppid()}").touch()
subject = tv.Subject(one_pass, name="one pass")
