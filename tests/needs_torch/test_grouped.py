"""Grouped, gated and modulated norms on tensors: arguments of libraries, and PyTorch's kernels.

The kernels have the arguments of mamba_ssm and vLLM, fla and Liger, and compute in float64.
"""

from typing import Any

import pytest

SLOW = pytest.mark.slow(reason="a verdict takes half a minute")

torch = pytest.importorskip("torch")

import truenorm.verify as tv
from needs_torch.kernels import Tensor

F = torch.nn.functional


def rmsnorm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    z: Tensor = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    activation: str = "swish",
) -> Tensor:
    """Normalize groups of the last axis, after or before the gate."""
    assert bias is None
    wide, weight = x.double(), weight.double()
    gate = None
    if z is not None:
        gate = torch.sigmoid(z.double())
        gate = gate if activation == "sigmoid" else gate * z.double()
    if gate is not None and not norm_before_gate:
        wide = wide * gate
    units = wide if group_size is None else wide.unflatten(-1, (-1, group_size))
    units = units / torch.sqrt(units.square().mean(-1, keepdim=True) + eps)
    y = units.reshape(x.shape) * weight
    return (y * gate if gate is not None and norm_before_gate else y).to(x.dtype)


def rms_norm_gated(
    x: Tensor,
    g: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str = "swish",
    eps: float = 1e-5,
) -> Tensor:
    """Normalize, then multiply by the gate g."""
    return rmsnorm_fn(x, weight, bias, g, eps, activation=activation)


def modulated_rms_norm(
    x: Tensor, w: Tensor, scale: Tensor, shift: Tensor, eps: float, casting_mode: str
) -> Tensor:
    """Normalize and modulate each row."""
    assert casting_mode == "none"
    y = rmsnorm_fn(x.double(), w.double(), None, eps=eps)
    return (y * (1 + scale.double()) + shift.double()).to(x.dtype)


class Gated(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A gated norm with the arguments of Mamba2's in Transformers, which needs a group size."""

    def __init__(self, hidden_size: int, group_size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.eps, self.group_size = eps, group_size

    def forward(self, hidden_states: Tensor, gate: Tensor = None) -> Tensor:
        size = self.group_size
        assert hidden_states.shape[-1] % size == 0
        return rmsnorm_fn(hidden_states, self.weight, None, gate, self.eps, size, False)


RIGHT: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "group norm": (F.group_norm, "group_norm,groups=2", {}),
    "group norm, a module": (torch.nn.GroupNorm, "group_norm,groups=2", {"form": "module"}),
    "instance norm": (F.instance_norm, "instance_norm", {}),
    "groups": (rmsnorm_fn, "rms_norm,groups=4", {}),
    "one group, a module": (Gated, "rms_norm,gate=silu-first", {"form": "module"}),
    "no gate, a module": (Gated, "rms_norm", {"form": "module"}),
    "groups, a module": (Gated, "rms_norm,groups=4,gate=silu-first", {"form": "module"}),
    "gate last": (rmsnorm_fn, "rms_norm,groups=2,gate=silu", {}),
    "gate first": (rmsnorm_fn, "rms_norm,groups=2,gate=sigmoid-first", {}),
    "g": (rms_norm_gated, "rms_norm,gate=sigmoid", {}),
    "scale": (modulated_rms_norm, "rms_norm,modulate=row", {"settings": {"casting_mode": "none"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels(name: str) -> None:
    function, operation, options = RIGHT[name]
    subject = tv.torch_subject(function, operation=operation, dtypes=["float32"], **options)
    assert subject.backward is not None
    for size in (17, 67):
        tv.check(subject, tv.case(f"float32-normal-4x{size}", operation=operation))


def test_another_gate_is_wrong() -> None:
    """`settings` replace what the operation determines, so the gate is another here."""
    subject = tv.torch_subject(
        rms_norm_gated, operation="rms_norm,gate=silu", settings={"activation": "sigmoid"}
    )
    with pytest.raises(AssertionError, match="the exact answer"):
        tv.check(subject, tv.case("float32-normal-4x67", operation="rms_norm,gate=silu"))


def test_missing_arguments() -> None:
    with pytest.raises(ValueError, match=r"no argument for z \(z, gate, g\)"):
        tv.torch_subject(F.rms_norm, operation="rms_norm,gate=silu")
    with pytest.raises(ValueError, match="unknown arguments casting_mode"):
        tv.torch_subject(modulated_rms_norm, operation="rms_norm,modulate=row")


@SLOW
def test_group_norm_of_pytorch() -> None:
    """Sums of PyTorch over many rows drift in float32, as far as |x| <= 1e4."""
    subject = tv.torch_subject(F.group_norm, operation="group_norm,groups=2", dtypes=["float32"])
    report = tv.verify(subject)
    grades = {each.output: each.grade for each in report.grades}
    assert grades == {"y": "stable", "dx": "stable", "dgamma": "stable", "dbeta": "conditional"}
    assert [each.case for each in report.findings] == ["float32-long-columns"]


def test_group_norm_of_pytorch_saves_its_statistics_in_bfloat16() -> None:
    """On a CPU, backward gets a mean and an rstd of 8 bits."""
    operation = "group_norm,groups=2"
    subject = tv.torch_subject(F.group_norm, operation=operation, dtypes=["bfloat16"])
    with pytest.raises(AssertionError, match=r"dx\[.*off by"):
        tv.check(subject, tv.case("bfloat16-mean-8-8x48", operation=operation))
