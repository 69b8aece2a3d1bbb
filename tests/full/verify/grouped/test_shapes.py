"""Channels last, and the arguments of libraries."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.grouped.kernels import Array, Textbook, few_cases, judge_cases
from shared.verify.grouped.planted import grouped
from truenorm.verify.running.array_functions import arguments_of, arguments_of_norm, names_of
from truenorm.verify.running.records import CannotRunError

LAST = "group_norm,groups=2,channels=last"


class ChannelsLast(Textbook):
    """A group norm of x (N, S, C), by that of (N, C, S)."""

    def __init__(self, *, twice: bool = False) -> None:
        super().__init__(grouped("group_norm,groups=2"))
        self.twice = twice

    def forward(self, *arguments: Any) -> Any:
        x, gamma, beta, eps = arguments
        assert x.flags.c_contiguous
        assert gamma.shape == x.shape[-1:]
        y, saved = super().forward(np.moveaxis(x, -1, 1), gamma, beta, eps)
        return (y if self.twice else np.moveaxis(y, 1, -1)), saved

    def backward(self, dy: Array, *rest: Any) -> Any:
        dx, *sums = super().backward(np.moveaxis(dy, -1, 1), *rest)
        return np.moveaxis(dx, 1, -1), *sums


def test_channels_last() -> None:
    subject = ChannelsLast().subject(operation=LAST)
    report = judge_cases(subject, few_cases(subject, 700))
    assert report.passed, report.findings[0].symptom


def test_channels_of_results() -> None:
    with pytest.raises(CannotRunError, match=r"y must have the shape \(.*\), got"):
        tv.verify(ChannelsLast(twice=True).subject(operation=LAST))


@pytest.mark.parametrize(("spec", "message"), [
    ("batch_norm", "add_rms_norm, group_norm, instance_norm; got 'batch_norm'"),
    ("layer_norm,heads=2,groups=2", "one of groups and heads divides a row"),
    ("rms_norm,channels=last", "channels=last needs group_norm or instance_norm"),
    ("group_norm,groups=2,channels=middle", "channels must be one of first, last"),
])  # fmt: skip
def test_messages(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        tv.Subject(print, operation=spec)


# The first has the arguments of FlashInfer, the next two of SGLang, the last of DiT blocks.
def fused_rmsnorm_silu(input, weight, eps=1e-6, out=None, block_scale=None): ...  # type: ignore[no-untyped-def] # noqa: A002
def fused_norm_scale_shift(x, weight, bias, scale, shift, norm_type, eps=1e-5): ...  # type: ignore[no-untyped-def]
def rmsnorm_scale_shift_bitexact(x, weight, scale, shift, eps): ...  # type: ignore[no-untyped-def]
def norm_scale_shift(x, scale_msa, shift_msa, eps): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(("function", "spec", "roles"), [
    (fused_rmsnorm_silu, "rms_norm,gate=self", "x gamma eps"),
    (fused_norm_scale_shift, "layer_norm,modulate=row", "x gamma beta scale shift norm_type eps"),
    (fused_norm_scale_shift, "layer_norm,modulate=sample,gamma=false",
        "x gamma beta scale shift norm_type eps"),
    (rmsnorm_scale_shift_bitexact, "rms_norm,modulate=row", "x gamma scale shift eps"),
    (norm_scale_shift, "layer_norm,modulate=sample,gamma=false", "x scale shift eps"),
])  # fmt: skip
def test_arguments_of_libraries(function: Any, spec: str, roles: str) -> None:
    norm = grouped(spec)
    arguments = arguments_of(function, arguments_of_norm(norm), names=names_of(norm))
    assert [role for _, role in arguments.by_name] == roles.split()


def test_a_function_by_its_arguments(tmp_path: Path) -> None:
    """Constants of the operation are passed by name; the message of a mismatch names z."""
    (tmp_path / "kernels.py").write_text(
        "import numpy as np\n"
        "def norm(x, num_groups, weight, bias, eps):\n"
        "    units = x.astype(np.float64).reshape(len(x), num_groups, -1)\n"
        "    c = units - units.mean(-1, keepdims=True)\n"
        "    y = (c / np.sqrt((c * c).mean(-1, keepdims=True) + eps)).reshape(x.shape)\n"
        "    w, b = (each.reshape(-1, *[1] * (x.ndim - 2)) for each in (weight, bias))\n"
        "    return (w * y + b).astype(x.dtype)\n",
        encoding="utf-8",
    )
    target, spec = f"{tmp_path}/kernels.py:norm", "group_norm,groups=2"
    tv.check(tv.load(target, spec), tv.case("float32-normal-4x67", operation=spec))
    with pytest.raises(Exception, match="expected the arguments x, z, gamma, eps; got"):
        tv.load(target, "rms_norm,gate=silu")


@pytest.mark.usefixtures("no_flint")
def test_gates_need_a_package() -> None:
    """Without python-flint, groups can be judged."""
    with pytest.raises(ValueError, match="a formula needs the package python-flint"):
        tv.norm("rms_norm", gate="silu-first", eps=0.25)
    assert tv.norm("rms_norm", groups=4, eps=0.25).groups == 4


def test_a_gate_of_one_row() -> None:
    """Four rows are the groups of one: z is not finite in it."""
    case = tv.case("float32-gate-nan-4x67", operation="rms_norm,groups=4,gate=silu")
    assert case.shape == (1, 268)
    assert np.isnan(case.z).sum() == 1
