"""Ten lines that show a finding again, on their own."""

import math
import textwrap
from dataclasses import replace
from typing import NamedTuple

from truenorm.verify.guards import Symptom
from truenorm.verify.large import copies_of
from truenorm.verify.oracle import expected
from truenorm.verify.record import PLAIN
from truenorm.verify.subject import Subject
from truenorm.verify.wording import one_line

__all__ = ["Origin", "reproducer"]

WIDTH = 80
"""Columns of the comment; code is as wide as it must be to be copied and run."""
GRADIENTS = ("dx", "dgamma", "dbeta")
FORWARD = "subject.forward({x}, case.gamma, case.beta, case.eps)"


class Origin(NamedTuple):
    """Where a subject comes from, and how it is called.

    `file` and `name` tell where it is defined; without them a line is left to be filled in.
    """

    file: str = ""
    name: str = "subject"
    callable: bool = True
    backward: bool = True

    @classmethod
    def of(cls, subject: Subject, file: str = "", name: str = "subject") -> "Origin":
        """Return the origin of a subject that was found in a file."""
        return cls(file, name, subject.forward is not None, subject.backward is not None)


def reproducer(symptom: Symptom, origin: Origin) -> str:
    """Return a script that ends with an AssertionError, or as the subject itself ends."""
    lines = [
        *_comment(f"{symptom.case}: {symptom.text}"),
        "import truenorm.verify as tv",
        f"subject = tv.load({f'{origin.file}:{origin.name}'!r})"
        if origin.file
        else "subject = ...  # your truenorm.verify.Subject",
        f"case = tv.case({symptom.case.name!r})" + _copies(symptom),
    ]
    another_way = symptom.guard == "raised" and symptom.record.call.kind != PLAIN
    in_a_word = symptom.guard in ("shape", "type", "inputs", "rounding")
    if not origin.callable or another_way or in_a_word:
        required = ", require='correct'" if symptom.guard == "rounding" else ""
        lines.append(f"tv.check(subject, case{required})")
    elif symptom.guard in ("repeat", "batch"):
        lines += _compared_with_another_call(symptom, origin)
    elif symptom.guard == "overwritten":
        lines += _compared_with_itself_later(symptom, origin)
    elif symptom.guard in ("stale", "spent"):
        lines += _compared_with_another_backward(symptom)
    else:
        lines += _passes(symptom, origin)
        if symptom.at:
            lines += _compared_with_the_exact_answer(symptom)
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    """Return two lines at most; a case's name, full of hyphens, stays in one piece."""
    return textwrap.wrap(
        one_line(text),
        WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_on_hyphens=False,
        max_lines=2,
        placeholder=" …",
    )


def _copies(symptom: Symptom) -> str:
    """Return what makes the case a large one, where it was wrong as that alone."""
    return f".tiled({copies_of(symptom.case)})" if symptom.guard == "large" else ""


def _passes(symptom: Symptom, origin: Origin) -> list[str]:
    """Return the calls, as far as they are needed."""
    x, dy = "case.x", "case.dy"
    if symptom.case.layout != "rows":
        x, dy = "case.laid_out(case.x)", "case.laid_out(case.dy)"
    forward = FORWARD.format(x=x)
    if not origin.backward:
        return [f"y = {forward}"]
    backward = f"dx, dgamma, dbeta = subject.backward({dy}, saved)"
    return [f"y, saved = {forward}", *([] if symptom.output == "y" else [backward])]


def _compared_with_the_exact_answer(symptom: Symptom) -> list[str]:
    exact = expected(symptom.case)
    value = exact.values[symptom.output]
    if value is None:
        raise ValueError(f"{symptom.case} has no {symptom.output}")
    # The rows of a large call are those of the case, over and over.
    at = tuple(place % size for place, size in zip(symptom.at, value.shape, strict=True))
    right = float(value[at])
    rows = ".reshape(case.x.shape)" if value.ndim == 2 and symptom.case.layout != "rows" else ""
    got = f"got = float({symptom.output}{rows}{list(symptom.at)})"
    if math.isfinite(right):
        allowed = float(exact.allowed(symptom.output)[at])
        return [
            got,
            f"exact = {right!r}  # {right.hex()}",
            f"assert abs(got - exact) <= {allowed:.4g}, f'got {{got}}, exact {{exact}}'",
        ]
    test = "not abs(got) < float('inf')" if math.isnan(right) else f"got == float('{right}')"
    return [got, f"assert {test}, f'got {{got}}, exact {right}'"]


def _compared_with_another_call(symptom: Symptom, origin: Origin) -> list[str]:
    output, call = symptom.output, symptom.record.call
    body = [line.replace("case.", "given.") for line in _passes(symptom, origin)]
    rows = f"{call.start}:{call.stop}"
    second = "run(case)" if symptom.guard == "repeat" else f"run(case)[{rows}]"
    other = (
        "run(case)"
        if symptom.guard == "repeat"
        else f"run(case.part(slice({call.start}, {call.stop})))"
    )
    return [
        "def run(given):",
        *(f"    {line}" for line in body),
        f"    return {output}.copy()",
        f"assert {other}.tobytes() == {second}.tobytes(), {symptom.text!r}",
    ]


def _compared_with_itself_later(symptom: Symptom, origin: Origin) -> list[str]:
    other = FORWARD.format(x="-2*case.x[::-1]")
    passes = _passes(replace(symptom, output=""), origin)
    # y is looked at before its own backward pass, which may be what overwrites it.
    passes.insert(1 if symptom.output == "y" else 2, f"before = {symptom.output}.tobytes()")
    return [
        *passes,
        *(
            [f"_, other = {other}", "subject.backward(-2*case.dy[::-1], other)"]
            if origin.backward
            else [other]
        ),
        f"assert {symptom.output}.tobytes() == before, {symptom.text!r}",
    ]


def _compared_with_another_backward(symptom: Symptom) -> list[str]:
    forward = f"y, saved = {FORWARD.format(x='case.x')}"
    backward = f"subject.backward(case.dy, saved)[{GRADIENTS.index(symptom.output)}]"
    between = [forward, FORWARD.format(x="-2*case.x[::-1]")] if symptom.guard == "stale" else []
    return [
        forward,
        f"first = {backward}.copy()",
        *between,
        f"second = {backward}",
        f"assert first.tobytes() == second.tobytes(), {symptom.text!r}",
    ]
