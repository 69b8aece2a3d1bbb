"""The judge: each of its cases is a test. What was known on the first day is in known.json."""

import pytest
from plainnorm.kernels import layer_norm, layer_norm_backward

import truenorm.verify as tv

subject = tv.Subject(
    layer_norm,
    layer_norm_backward,
    name="plainnorm",
    dtypes=["float32"],
    domain=tv.Domain(largest=1e4),  # what this kernel is for; beyond, it is not judged
)


@pytest.mark.truenorm(subject, baseline="known.json")
def test_layer_norm(truenorm_case):
    """Fail with the symptom, the cause and lines that show it again."""
    truenorm_case.check()
