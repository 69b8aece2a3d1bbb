"""A package with a kernel, and tests of it: loose ones, strict ones, and such that cannot run."""

from pathlib import Path

KERNELS = """
import numpy as np

def rms_norm(x, weight, eps=1e-6):
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps))
    return x * r * weight

def layer_norm(x, weight, bias, eps=1e-5):
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + np.float32(eps)) * weight + bias
"""
HEAD = """
import numpy as np
from some_package import rms_norm
from some_package.kernels import layer_norm

x = np.random.default_rng(0).normal(size=(4, 60)).astype(np.float32)
weight = np.ones(60, np.float32)
"""
LOOSE = """
def test_loose():
    expected = x / np.sqrt((x.astype(float) ** 2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(rms_norm(x, weight), expected, rtol=0.1, atol=0.1)
"""
FAILING = """
def test_failing():
    assert not rms_norm(x, weight).any()
"""
ELSEWHERE = """
def test_elsewhere():
    assert layer_norm(x, weight, weight).shape == x.shape
"""
STRICT = """
import pytest
import truenorm.verify as tv

def with_eps(x, weight, eps):
    return rms_norm(x, weight, eps)

subject = tv.Subject(with_eps, operation=tv.RMS_NORM, domain=tv.Domain(largest=1e10))

@pytest.mark.truenorm(subject)
def test_strict(truenorm_case):
    truenorm_case.check()
"""


def package_in(folder: Path, tests: str) -> str:
    """Write the package and a file of tests, and return its name."""
    package = folder / "some_package"
    package.mkdir()
    (package / "kernels.py").write_text(KERNELS)
    (package / "__init__.py").write_text("from some_package.kernels import rms_norm\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:hypothesispytest\n")
    (folder / "test_norm.py").write_text(HEAD + tests)
    return "test_norm.py"
