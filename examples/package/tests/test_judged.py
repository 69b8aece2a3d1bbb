"""The judge: each of its verdicts is a test. known.json has the findings of the first run."""

import pytest
from plainnorm.kernels import layer_norm, layer_norm_backward

import truenorm.verify as tv

subject = tv.Subject(
    layer_norm,
    layer_norm_backward,
    name="plainnorm",
    dtypes=["float32"],
    domain=tv.Domain(largest=1e4),  # the range this kernel supports
)


@pytest.mark.truenorm(subject, baseline="known.json")
def test_layer_norm(truenorm_case):
    """Fail with the symptom, the cause and a reproducer."""
    truenorm_case.check()
