"""Which wrong kernels say something of tests, by what their calls had."""

import pytest

from truenorm.verify.audit.planted import Kernel, planted_kernels
from truenorm.verify.audit.replacing import Seen, Task
from truenorm.verify.audit.running import told_apart
from truenorm.verify.operations import norm
from truenorm.verify.operations.norms import Norm


def told(operation: str, arguments: str, results: str) -> tuple[list[str], dict[str, str]]:
    """Return the names of what is planted, and what is left out, for such calls in float32."""
    task, seen = Task("mine:kernel", operation), Seen(calls=1, dtypes=["float32"])
    seen.had(arguments.split(), results.split())
    seen.backwards = int("dx" in seen.results)
    chosen, left_out = told_apart(task, planted_kernels(task.norm), seen)
    return [each.name for each in chosen], left_out


def test_a_call_without_a_parameter() -> None:
    chosen, left_out = told("rms_norm", "x", "y")
    assert "no eps" in chosen
    assert "no gradient was asked of what --replace names; --backward" in left_out["zeros for dx"]
    for name in ("no gamma", "gain offset"):
        assert left_out[name] == "no call has gamma among its arguments"


def test_a_result_that_is_not_there() -> None:
    chosen, left_out = told("add_rms_norm", "x residual gamma dy", "y dx")
    assert {"no residual", "zeros for dx", "dx without projection"} <= {*chosen}
    for name, absent in (
        ("zeros for the sum", "no call has sum among its results"),
        ("zeros for dgamma", "no call has dgamma among its results"),
        ("no dsum", "no call has dsum among its arguments"),
    ):
        assert left_out[name] == absent


@pytest.mark.parametrize(
    "operation",
    [norm("rms_norm"), norm("add_layer_norm", gain="zero-centred")],
    ids=lambda each: each.spec,
)
def test_every_kernel_is_wrong_in_a_call_that_has_everything(operation: Norm) -> None:
    everything = operation.inputs_of("data", "parameter", "gradient")
    for planted in planted_kernels(operation, "late"):
        dtype = "bfloat16" if planted.narrow else "float32"
        reach = Kernel(operation, planted, "late").reach(dtype, everything)
        assert set(reach) & set(operation.outputs_of(backward=planted.backward)), planted.name
