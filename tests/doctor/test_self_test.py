"""The self-test passes where all is well, and sees what is not."""

import os
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from truenorm.doctor import self_test as module
from truenorm.doctor.report import Section
from truenorm.doctor.self_test import CASES, self_test, without_overrides
from truenorm.verify.types import FORMATS

USABLE = [status.name for status in tn.backends() if status.usable]


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_backends", lambda: ["reference"])


def values(section: Section) -> dict[str, str]:
    return {line.name: line.value for line in section.lines}


@pytest.mark.parametrize("backend", USABLE)
def test_healthy(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setattr(module, "usable_backends", lambda: [backend])
    told: list[tuple[int, int, str]] = []
    section = self_test(lambda *step: told.append(step))
    assert values(section) == {
        f"{backend}, {dtype}": f"correct to the bit ({len(CASES)} cases, forward and backward)"
        for dtype in FORMATS
    }
    assert section.problems == []
    assert section.seconds
    assert [done for done, _, _ in told] == [0, 1, 2, 3]


@pytest.mark.usefixtures("reference")
@pytest.mark.parametrize("output", ["y", "dx", "dgamma", "dbeta"])
def test_one_wrong_bit_is_seen(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    def with_another_bit(array: Any) -> Any:
        changed = array.copy()
        changed.reshape(-1).view(np.uint8)[0] ^= 1
        return changed

    def forward(*given: Any, **options: Any) -> Any:
        y, saved = tn.layer_norm_forward(*given, **options)
        return with_another_bit(y) if output == "y" else y, saved

    def backward(*given: Any, **options: Any) -> Any:
        found = tn.layer_norm_backward(*given, **options)._asdict()
        if output in found:
            found[output] = with_another_bit(found[output])
        return tn.Gradients(**found)

    monkeypatch.setattr(module, "layer_norm_forward", forward)
    monkeypatch.setattr(module, "layer_norm_backward", backward)
    section = self_test()
    assert len(section.problems) == len(FORMATS)
    value = values(section)["reference, float32"]
    for name in CASES:
        assert f"{output} of float32-{name}" in value
    assert section.problems[0].remedy == module.REPORT


@pytest.mark.usefixtures("reference")
def test_a_gradient_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def backward(*given: Any, **options: Any) -> Any:
        return tn.layer_norm_backward(*given, **options)._replace(dgamma=None)

    monkeypatch.setattr(module, "layer_norm_backward", backward)
    assert "dgamma of float64-exact-tie" in values(self_test())["reference, float64"]


@pytest.mark.parametrize(
    ("backend", "remedy"), [("fused", module.REINSTALL), ("reference", module.REPORT)]
)
def test_a_crash_is_a_problem(monkeypatch: pytest.MonkeyPatch, backend: str, remedy: str) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise OSError("cannot load libllvm")

    monkeypatch.setattr(module, "usable_backends", lambda: [backend])
    monkeypatch.setattr(module, "layer_norm_forward", broken)
    section = self_test()
    assert [line.remedy for line in section.problems] == [remedy] * len(FORMATS)
    assert section.lines[0].value == "FAILED: OSError: cannot load libllvm"


@pytest.mark.usefixtures("reference")
def test_variables_do_not_decide_what_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments of the test do; each of these would make it fail, or test something else."""
    variables = {
        "TRUENORM_BACKEND": "abacus",
        "TRUENORM_ROUNDING": "up",
        "TRUENORM_THREADS": "some",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert self_test().problems == []
    assert {name: os.environ.get(name) for name in variables} == variables


def test_variables_come_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUENORM_THREADS", "3")

    def fail() -> None:
        with without_overrides():
            assert "TRUENORM_THREADS" not in os.environ
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert os.environ["TRUENORM_THREADS"] == "3"
