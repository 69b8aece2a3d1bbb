"""Who cannot be called is told so at once, with how it is called."""

from pathlib import Path

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.judge import verify_target
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.running.runners import signature
from truenorm.verify.types import Array


def rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    return x * gamma * eps


class Counted:
    """A kernel, and how often it was called."""

    calls = 0

    def failing(self, *_: object) -> Array:
        self.calls += 1
        raise ZeroDivisionError

    def refusing(self, x: Array, *_: object) -> Array:
        self.calls += 1
        if x.dtype == np.float16:
            raise ValueError("no half")
        return x


def test_other_arguments_are_told_after_one_call() -> None:
    subject = tv.Subject(rms_norm, name="mine")
    with pytest.raises(CannotRunError) as told:
        tv.verify(subject)
    text = str(told.value)
    assert "mine cannot be called: it raised TypeError" in text
    assert "The judge calls forward(x, gamma, beta, eps) -> y; give another operation" in text


def test_a_call_for_each_type_and_no_more() -> None:
    kernel = Counted()
    subject = tv.Subject(kernel.failing, dtypes=["float16", "float32"])
    with pytest.raises(CannotRunError, match="ZeroDivisionError"):
        tv.verify(subject)
    assert kernel.calls == 2


def test_one_type_that_can_be_called_is_judged() -> None:
    kernel = Counted()
    report = tv.verify(tv.Subject(kernel.refusing, dtypes=["float16", "float32"]))
    assert report.verdicts["runs"] == "fail"
    assert kernel.calls > 100


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (tv.LAYER_NORM, "forward(x, gamma, beta, eps) -> y"),
        (tv.norm("add_rms_norm"), "forward(x, residual, gamma, eps) -> (y, sum)"),
    ],
)
def test_the_signature(operation: tv.Norm, said: str) -> None:
    assert signature(tv.Subject(np.copy, operation=operation)) == said
    both = signature(tv.Subject(np.copy, np.copy, operation=operation))
    slopes = "dy, dsum, saved" if operation.adds else "dy, saved"
    assert f"and backward({slopes}) -> (dx, " in both


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import truenorm.verify as tv\nsubject = tv.Subject(lambda x: x)\n", encoding="utf-8"
    )
    with pytest.raises(CannotRunError, match="takes 1 positional argument but 4 were given"):
        verify_target(str(file))
