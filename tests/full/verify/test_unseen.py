"""Wrong kernels whose author had not seen the hypotheses: each is caught, and no cause is made up.

``unseen/truth.toml`` was written before the judge saw the kernels, ``unseen/said.toml`` after:
what it named, and whether that is true. A cause that is not in there must be read by a person, and
recorded, before this passes.
"""

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

import truenorm.verify as tv
from shared.choosing import few
from shared.verify.unseen import kernels
from shared.verify.unseen.kernels import SUBJECTS

HERE = Path(kernels.__file__).parent
TRUTH = tomllib.loads((HERE / "truth.toml").read_text())
SAID = tomllib.loads((HERE / "said.toml").read_text())["finding"]


def recorded(name: str, verdict: str, output: str = "") -> set[str]:
    """Return the ids of the causes of a kernel, or of one output, that have this verdict."""
    return {
        cause
        for each in SAID
        if each["name"] == name and each["verdict"].startswith(verdict)
        if output in ("", each["output"])
        for cause in each["causes"]
    }


def as_parameter(name: str) -> Any:
    """Return a kernel for pytest; one about which the judge is known to be wrong must fail."""
    untrue = pytest.mark.xfail(reason="the judge names a cause that is not true")
    return pytest.param(name, marks=[untrue] if recorded(name, "wrong") else [])


@pytest.mark.parametrize(
    "name", few(map(as_parameter, sorted(SUBJECTS)), reason="a verdict takes seconds")
)
def test_is_caught_and_no_cause_is_untrue(name: str) -> None:
    report = tv.verify(SUBJECTS[name], strict=True, time=math.inf)
    of_accuracy = [each for each in report.findings if each.verdict == "accuracy"]
    assert {each.output for each in of_accuracy} == set(TRUTH[name]["results"])
    for each in of_accuracy:
        ids = {cause.id for cause in each.causes}
        assert not ids or ids & recorded(name, "right", each.output), each.cause
