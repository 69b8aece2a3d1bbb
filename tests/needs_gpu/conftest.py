"""A device to compute on; with TRUENORM_NEEDS_GPU its absence is a failure."""

import os
from typing import Any

import pytest

import truenorm as tn

STATUS = {status.name: status for status in tn.backends()}["gpu"]


@pytest.fixture(scope="session")
def device() -> None:
    if STATUS.usable:
        return
    if os.environ.get("TRUENORM_NEEDS_GPU"):
        pytest.fail(f"the backend gpu cannot be used: {STATUS.reason}")
    pytest.skip(STATUS.reason)


@pytest.fixture(scope="session")
def queue(device: None) -> Any:  # noqa: ARG001
    from truenorm.kernels.gpu.opencl import default_runtime

    return default_runtime().queue
