"""Each form of a kernel is called as kernels of that form are, and judged by what it writes."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import truenorm.verify as tv
from pytorch import kernels
from pytorch.kernels import Tensor
from truenorm.verify.running.records import LARGE, Call
from truenorm.verify.running.runners import InProcess
from truenorm.verify.running.torch_subject import FormName

Case = tuple[Any, str, FormName]
RIGHT: dict[str, Case] = {
    "functional": (kernels.rms_norm, "rms_norm", "functional"),
    "functional layer norm": (kernels.layer_norm, "layer_norm", "functional"),
    "functional, adds": (kernels.add_rms_norm, "add_rms_norm", "functional"),
    "out": (kernels.rms_norm_out, "rms_norm", "out"),
    "inplace": (kernels.fused_add_rms_norm, "add_rms_norm", "inplace"),
    "module": (kernels.RMSNorm, "rms_norm", "module"),
    "module, adds": (kernels.AddLayerNorm, "add_layer_norm", "module"),
    "factory": (lambda D, eps: kernels.RMSNorm(D, eps), "rms_norm", "module"),  # noqa: N803
}
GRADIENTS = {"rms_norm": ["dx", "dgamma"], "add_rms_norm": ["dx", "dresidual", "dgamma"]}


def ordinary(subject: tv.Subject) -> list[tv.Case]:
    """Return what every kernel has to get right, of few elements."""
    return [
        case
        for dtype in subject.dtypes
        for case in tv.cases(dtype, also=subject.also, operation=subject.operation)
        if case.kind == "ordinary" and case.x.size < 10_000
    ]


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_pass(name: str) -> None:
    function, operation, form = RIGHT[name]
    subject = tv.torch_subject(
        function,
        operation=operation,
        form=form,
        dtypes=["float16", "bfloat16", "float32"],
    )
    written = form in ("out", "inplace")  # of which autograd knows nothing
    assert (subject.backward is None) == written
    for case in ordinary(subject):
        tv.check(subject, case)


@pytest.mark.parametrize("name", ["functional", "inplace", "module, adds"])
def test_a_whole_judgement(name: str) -> None:
    function, operation, form = RIGHT[name]
    subject = tv.torch_subject(function, operation=operation, form=form, dtypes=["bfloat16"])
    report = tv.verify(subject)
    forward = [each for each in report.findings if each.output in ("y", "sum", "")]
    assert forward == []
    assert [each.name for each in report.recipes] == ["late"]
    assert report.verdicts["saved kept"] == ("not judged" if form == "inplace" else "pass")


def test_float64() -> None:
    subject = tv.torch_subject(
        torch.nn.functional.rms_norm, operation=tv.RMS_NORM, dtypes=["float64"]
    )
    tv.check(subject, tv.case("float64-normal-4x17", operation=tv.RMS_NORM))


def test_parameters_and_results_of_their_own_type() -> None:
    operation = tv.norm("rms_norm", parameters="float32", result="float32")

    def out(out: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
        assert (out.dtype, weight.dtype) == (torch.float32, torch.float32)
        out.copy_(kernels.rms_norm(x.double(), weight, eps))

    subject = tv.torch_subject(out, operation=operation, form="out", dtypes=["bfloat16"])
    tv.check(subject, tv.case("bfloat16-normal-4x17", operation=operation))


def unwritten(out: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    out[:-1].copy_(kernels.rms_norm(x, weight, eps)[:-1])


def stale_residual(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
    x.copy_(kernels.add_rms_norm(x, residual, weight, eps)[0])


def overwriting(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = kernels.rms_norm(x, weight, eps).detach()
    x.detach().zero_()
    return y


class Unweighted(kernels.RMSNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        return kernels.rms_norm(hidden_states, torch.ones_like(self.weight), self.variance_epsilon)


WRONG: dict[str, tuple[Case, str]] = {
    "a row is not written": ((unwritten, "rms_norm", "out"), r"y\[3, 0\] is nan"),
    "the residual stays": ((stale_residual, "add_rms_norm", "inplace"), r"sum\["),
    "x is overwritten": ((overwriting, "rms_norm", "functional"), "x changed during the call"),
    "no weight": ((Unweighted, "rms_norm", "module"), r"y\["),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_found(name: str) -> None:
    (function, operation, form), said = WRONG[name]
    subject = tv.torch_subject(function, operation=operation, form=form, dtypes=["float32"])
    with pytest.raises(AssertionError, match=said):
        tv.check(subject, tv.case("float32-normal-4x17", operation=subject.operation))


@pytest.mark.parametrize("form", ["functional", "inplace"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_padded_rows_keep_their_strides(form: FormName, dtype: str) -> None:
    seen = []

    def functional(
        x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        seen.extend([x.stride(), residual.stride()])
        return kernels.add_rms_norm(x, residual, weight, eps)

    def in_place(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
        seen.extend([x.stride(), residual.stride()])
        kernels.fused_add_rms_norm(x, residual, weight, eps)

    subject = tv.torch_subject(
        functional if form == "functional" else in_place,
        operation="add_rms_norm",
        form=form,
        dtypes=[dtype],
        also=["padded-rows"],
    )
    padded = [case for case in ordinary(subject) if case.layout == "padded"]
    assert padded
    for case in padded:
        seen.clear()
        tv.check(subject, case)
        assert set(seen) == {(3 * case.shape[1], 1)}


@pytest.mark.parametrize(
    "lack",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory: 8 GB")],
)
def test_memory_that_is_short_is_not_the_kernels_fault(lack: Exception) -> None:
    def large(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if len(x) > 4:
            raise lack
        return kernels.rms_norm(x, weight, eps)

    subject = tv.torch_subject(large, operation="rms_norm", dtypes=["float32"])
    case = tv.case("float32-normal-4x17", operation=tv.RMS_NORM)
    record = InProcess(subject).run(case, Call(LARGE, 0, 8))
    assert record.left_out.startswith("there was not enough memory for 8 rows of 17")


def test_ranks_and_absent_parameters() -> None:
    subject = tv.torch_subject(
        torch.nn.functional.layer_norm,
        operation="layer_norm",
        dtypes=["float32"],
        also=["ranks", "strides", "no-gamma", "no-beta", "empty"],
    )
    asked = [case for case in ordinary(subject) if case.needs]
    assert {each for case in asked for each in case.needs} >= {"ranks", "strides", "no-gamma"}
    for case in asked:
        tv.check(subject, case)
