"""A kernel that is compiled for each shape is judged on few shapes, within the time limit."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")
jnp: Any = import_module("jax.numpy")

import truenorm.verify as tv
from truenorm.verify.calls import Call
from truenorm.verify.collecting import collect
from truenorm.verify.judge import grade_records
from truenorm.verify.operation import Case
from truenorm.verify.running.records import Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import Array

LIMIT = 15.0


@jax.jit  # type: ignore[untyped-decorator]
def one_pass(x: Any, gamma: Any, beta: Any, eps: Any) -> Any:
    """Return y with a one-pass variance."""
    mean = x.mean(axis=-1, keepdims=True)
    var = (x * x).mean(axis=-1, keepdims=True) - mean * mean
    return gamma * (x - mean) / jnp.sqrt(var + eps) + beta


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Return y as an array."""
    return np.asarray(one_pass(x, gamma, beta, np.float32(eps)))


class Counting(InProcess):
    """Counts the seconds of all calls, and their shapes."""

    seconds = 0.0

    def run(self, case: Case, call: Call) -> Record:
        record = super().run(case, call)
        self.seconds += record.seconds
        return record


def test_few_shapes_many_rows() -> None:
    subject = tv.Subject(forward, name="one pass in JAX", dtypes=["float32"])
    runner, suite = Counting(subject), tv.cases("float32")
    records = collect(runner, suite, seconds=LIMIT)
    assert runner.seconds < 2 * LIMIT
    report = grade_records(subject, suite, records, subject.spec())
    shapes = {case.name: case.shape for case in suite}
    run = {each.case for each in records if not each.predicted}
    assert len({shapes[name] for name in run}) < len(run) / 2
    assert not any(each.guard == "raised" for each in report.findings)
    assert "one-pass" in {cause.id for each in report.findings for cause in each.causes}
