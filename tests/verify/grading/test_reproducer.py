"""The lines that show a finding again: their comment fits a terminal, their code can be run."""

import ast

import pytest

from truenorm.verify import EXTENSIONS
from truenorm.verify.grading.checks import Symptom
from truenorm.verify.grading.reproducer import reproducer
from truenorm.verify.running.records import Call, Record
from truenorm.verify.subject import SubjectSpec
from truenorm.verify.suite import cases

LONGEST = max(cases("float32", "full", EXTENSIONS), key=lambda case: len(case.name))
ROWS = Call("rows", 0, 1)


def lines_of(guard: str, text: str, call: Call) -> list[str]:
    record = Record(LONGEST.name, call)
    symptom = Symptom(guard, LONGEST, record, "dx", text, (1, 2))
    return reproducer(symptom, SubjectSpec("kernel.py")).splitlines()


@pytest.mark.parametrize("call", [Call(), ROWS], ids=str)
@pytest.mark.parametrize(
    "text", ["dx is off", "dx is off " * 50, "x" * 500, "two\nlines \x1b[31m"], ids=len
)
@pytest.mark.parametrize("guard", ["ordinary", "batch", "raised", "type"])
def test_the_comment_fits_80_columns(guard: str, text: str, call: Call) -> None:
    lines = lines_of(guard, text, call)
    ast.parse("\n".join(lines))
    comment = [line for line in lines if line.startswith("#")]
    assert 1 <= len(comment) <= 2
    assert lines[: len(comment)] == comment
    assert max(map(len, comment)) <= 80
    assert comment[0].startswith(f"# {LONGEST.name}:")
    assert all(line.isprintable() for line in comment)
    assert len(lines) <= 10


def test_what_is_cut_says_so_and_numbers_fit() -> None:
    assert lines_of("type", "dx is off " * 50, Call())[1].endswith(" …")
    lines = lines_of("ordinary", "dx is off", Call())
    assert "…" not in "".join(lines)
    # The comment behind a number has the same number, to the bit.
    (behind,) = (line for line in lines if "  # " in line)
    assert behind.startswith("exact = ")
    assert len(behind) <= 80
