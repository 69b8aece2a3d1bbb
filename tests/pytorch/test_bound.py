"""A bound takes tensors, and says the same of them as of arrays."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import truenorm.verify as tv


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_of_any_rank_with_gradients(dtype: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5, 96, dtype=dtype, requires_grad=True)
    weight = torch.nn.Parameter(torch.randn(96, dtype=dtype))
    dy = torch.randn(4, 5, 96, dtype=dtype)
    y = torch.nn.functional.rms_norm(x, (96,), weight, 1e-6)
    dx, dweight = torch.autograd.grad(y, (x, weight), dy)
    bound = tv.bound("rms_norm", x, weight, eps=1e-6, dy=dy)
    bound.assert_close((y, dx, dweight))
    with pytest.raises(
        AssertionError, match=r"dgamma is not stable: [89][0-9] of 96.*\n.*worst: dgamma\["
    ):
        bound.assert_close(y, dgamma=1.25 * dweight)


def test_another_type_is_said() -> None:
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    with pytest.raises(AssertionError, match="y is float32; it should be bfloat16"):
        tv.bound("rms_norm", x).assert_close(x.float())
