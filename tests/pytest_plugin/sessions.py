"""Sessions of pytest with the plugin, and kernels to judge in them."""

from importlib.metadata import entry_points

import pytest

import truenorm.pytest_plugin

KERNELS = """
import numpy as np
import truenorm.verify as tv

def forward(x, gamma, beta, eps, ddof=0):
    c = x - x.mean(axis=-1, keepdims=True)
    var = x.var(axis=-1, ddof=ddof, keepdims=True)
    return gamma * c / np.sqrt(var + x.dtype.type(eps)) + beta

def without_mean(x, gamma, eps):
    return gamma * x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps))

def divides_by_less(*arguments):
    return forward(*arguments, ddof=1)

def raises(*_):
    raise ValueError("the kernel's own words")

right = tv.Subject(forward, name="a right kernel", dtypes=["float32"])
wrong = tv.Subject(divides_by_less, name="a wrong kernel", dtypes=["float32"])
broken = tv.Subject(raises, name="a broken kernel", dtypes=["float32"])
rms_norm = tv.Subject(without_mean, dtypes=["float32"], operation=tv.RMS_NORM)
claims = tv.Subject(forward, dtypes=["float32"], domain=tv.Domain(kappa=10))
CASES = [tv.case(f"float32-{name}") for name in ("normal-4x17", "offset-1e4-4x67")]
LARGE = tv.case("float32-inputs-near-1e30", operation=tv.RMS_NORM)
"""
TESTS = """
import pytest
from judged_kernels import *

@pytest.mark.truenorm({marker})
def test_kernel(truenorm_case):
    truenorm_case.check()
"""


class Session:
    """Runs pytest with the plugin, which an installed truenorm registers."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        registered = [each.value for each in entry_points(group="pytest11")]
        name = truenorm.pytest_plugin.__name__
        # The plugin of Hypothesis is slow to import when a session fails.
        without = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
        self.options = without if name in registered else [*without, "-p", name]

    def run(self, marker: str, *options: str) -> pytest.RunResult:
        """Run a test with a marker in this process."""
        self.pytester.makepyfile(test_it=TESTS.format(marker=marker))
        return self.pytester.runpytest_inprocess(*self.options, *options)

    def run_apart(self, marker: str, *options: str) -> pytest.RunResult:
        """Run it in another process, which has imported nothing yet."""
        self.pytester.makepyfile(test_it=TESTS.format(marker=marker))
        return self.pytester.runpytest_subprocess(*self.options, *options)
