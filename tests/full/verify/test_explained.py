"""A cause explains the error of the case that is printed beside it.

The kernels imitate packages for which a cause was named beside a case that it did not explain.
"""

import re
from collections.abc import Callable

import numpy as np
import pytest

import truenorm.verify as tv
from full.verify.test_sums import in_lanes
from truenorm.verify.grading.report import Finding
from truenorm.verify.oracle import expected
from truenorm.verify.report.wording import conclusion
from truenorm.verify.types import Array, Float64s

float32 = np.float32


def rms_norm_of_openvino(x: Array, gamma: Array, eps: float) -> Array:
    with np.errstate(all="ignore"):
        square = in_lanes(16, x * x) / float32(x.shape[1])
        return np.asarray(x * (1 / np.sqrt(square + float32(eps))) * gamma)


def layer_norm_of_paddle(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    size = float32(x.shape[1])
    with np.errstate(all="ignore"):
        c = x - in_lanes(8, x) / size
        return np.asarray(c / np.sqrt(in_lanes(8, c * c) / size + float32(eps)) * gamma + beta)


def finding_about_y(name: str, forward: Callable[..., Array]) -> Finding:
    subject = tv.Subject(forward=forward, operation=name, dtypes=["float32"])
    report = tv.verify(subject)
    (finding,) = report.findings
    assert finding.output == "y"
    assert [each.grade for each in report.grades] == ["conditional"]
    assert re.fullmatch(
        r"1 finding; below stable: y in float32 \(\d+ units\)\.", conclusion(report)
    )
    return finding


def printed_share(cause: str) -> float:
    found = re.search(r"explains (\d+) % of the error of this case\)$", cause)
    assert found, cause
    return int(found[1]) / 100


def explained(errors: Float64s, rest: Float64s) -> float:
    return float(1 - np.linalg.norm(rest) / np.linalg.norm(errors))


@pytest.mark.parametrize(("name", "forward", "lanes"), [
    ("rms_norm", rms_norm_of_openvino, 16),
    ("layer_norm", layer_norm_of_paddle, 8),
])  # fmt: skip
@pytest.mark.usefixtures("without_long_calls")
def test_a_sum_in_lanes_is_the_cause(name: str, forward: Callable[..., Array], lanes: int) -> None:
    finding = finding_about_y(name, forward)
    cause, case = finding.cause, tv.case(finding.case, operation=name)
    assert [each.id for each in finding.causes] == [f"squares-summed(float32, lanes={lanes})"]
    # Of a row of equal magnitudes, an error of the sum is a factor of y - beta.
    assert case.family == "equal-magnitudes"
    exact = expected(case).wide["y"]
    gamma = case.gamma.astype(np.float64)
    beta = case.beta.astype(np.float64) if name == "layer_norm" else 0.0
    inputs = (case.x, case.gamma, *([case.beta] if name == "layer_norm" else []))
    errors = forward(*inputs, case.eps).astype(np.float64) - exact
    w = float32(0.7) * float32(0.7)
    total = in_lanes(lanes, np.full((1, case.shape[1]), w)).astype(np.float64) / case.shape[1]
    right = float(float32(0.7)) ** 2 + case.eps
    rest = errors - (exact - beta) * (np.sqrt(right / (total + case.eps)) - 1)
    scale = expected(case).scale("y") * np.ones_like(gamma)
    share = explained(errors / scale, rest / scale)
    assert share > 0.9
    assert abs(printed_share(cause) - share) < 0.02


def test_the_number_before_rounding() -> None:
    """The share of an error does not count the rounding of the exact answer, 0.3 ulp."""
    case = tv.case("bfloat16-normal-4x17", operation="rms_norm")
    x, gamma = (each.astype(np.float64) for each in (case.x, case.gamma))
    y = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + case.eps) * gamma
    np.testing.assert_allclose(expected(case).number("y"), y, rtol=1e-13)
    assert np.abs(expected(case).wide["y"] / y - 1).max() > 1e-3


def test_rows_added_one_by_one_are_the_cause_of_many_rows() -> None:
    def forward(
        x: Array, gamma: Array, beta: Array, eps: float
    ) -> tuple[Array, tuple[Array, ...]]:
        c = x - x.mean(axis=1, dtype=float, keepdims=True)
        r = 1 / np.sqrt((c * c).mean(axis=1, keepdims=True) + eps)
        return (c * r * gamma + beta).astype(x.dtype), (c * r, r, gamma)

    def backward(dy: Array, saved: tuple[Array, ...]) -> tuple[Array, ...]:
        xhat, r, gamma = saved
        g = dy.astype(float) * gamma
        dx = r * (g - g.mean(1, keepdims=True) - xhat * (g * xhat).mean(1, keepdims=True))
        one_by_one = np.cumsum(dy, axis=0, dtype=float32)[-1]
        return dx.astype(float32), (dy * xhat).sum(axis=0).astype(float32), one_by_one

    report = tv.verify(tv.Subject(forward, backward, dtypes=["float32"]))
    (finding,) = report.findings
    assert [each.id for each in finding.causes] == ["rows-added(dbeta)(float32, lanes=1)"]
    assert printed_share(finding.cause) >= 0.99
