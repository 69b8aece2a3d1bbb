"""The judge: each of its verdicts is a test. known.json has the findings of the first run."""

from pathlib import Path

import pytest
from plainnorm.kernels import layer_norm, layer_norm_backward

import truenorm.verify as tv

KNOWN = Path(__file__).with_name("known.json")
subject = tv.Subject(
    layer_norm,
    layer_norm_backward,
    name="plainnorm",
    dtypes=["float32"],
    domain=tv.Domain(largest=1e4),  # the range this kernel supports
)


@pytest.mark.parametrize("verdict", tv.verdicts(subject, baseline=KNOWN))
def test_layer_norm(verdict):
    """Fail with the symptom, the cause and a reproducer."""
    verdict.assert_passed()
