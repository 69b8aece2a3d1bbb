"""Ten lines that show a finding again, on their own."""

import math
import textwrap
from dataclasses import replace

from truenorm.tools.text import one_line
from truenorm.verify.grading.checks import Symptom, copies_of, same_as
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.running.records import GRADIENT_LAYOUTS, PLAIN
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.user_cases import is_user_case

WIDTH = 80
"""Columns of the comment; code is as wide as it must be to be copied and run."""
COMPARED = ("repeat", "sums", "position", "batch", "padding", "idle")
"""Guards that hold results of one call against those of another."""
OTHER_ROWS = "-2*case.{}[::-1]"
"""An input of the same shape, none of whose results has the same bits."""


def reproducer(symptom: Symptom, spec: SubjectSpec) -> str:
    """Return a script that ends with an AssertionError, or as the subject itself ends."""
    lines = [
        *_comment(f"{symptom.case}: {symptom.text}"),
        "import truenorm.verify as tv",
        _subject(spec),
        _case(symptom),
    ]
    another_way = symptom.guard == "raised" and symptom.record.call.kind != PLAIN
    in_a_word = symptom.guard in ("shape", "type", "inputs", "rounding", "recipe")
    if not spec.callable or another_way or in_a_word:
        asked = {"rounding": ", require='correct'", "recipe": f", recipe={spec.recipe!r}"}
        required = asked.get(symptom.guard, "")
        lines.append(f"tv.check(subject, case{required})")
    elif symptom.guard in COMPARED:
        lines += _compared_with_another_call(symptom, spec)
    elif symptom.guard == "layout":
        lines += _compared_with_another_layout(symptom)
    elif symptom.guard == "overwritten":
        lines += _compared_with_itself_later(symptom, spec)
    elif symptom.guard in ("stale", "spent"):
        lines += _compared_with_another_backward(symptom)
    else:
        lines += _passes(symptom, spec)
        if symptom.at:
            lines += _compared_with_the_exact_answer(symptom)
    return "\n".join(lines) + "\n"


def _subject(spec: SubjectSpec) -> str:
    """Return what finds the subject."""
    if not spec.file:
        return "subject = ...  # your truenorm.verify.Subject"
    taken_for = f", operation={spec.operation!r}" if spec.operation else ""
    return f"subject = tv.load({spec.target!r}{taken_for})"


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


def _case(symptom: Symptom) -> str:
    """Return what finds the case, and makes it a large one where it was wrong as that alone."""
    case = symptom.case
    is_default = case.operation is Subject.operation
    operation = "" if is_default else ", operation=subject.operation"
    if case.made:
        return f"case = {case.made.replace('{operation}', operation)}"
    if is_user_case(case):
        return "case = ...  # yours"
    copies = f".tiled({copies_of(case)})" if symptom.guard == "large" else ""
    return f"case = tv.case({case.name!r}{operation}){copies}"


def _plain_rows(case: Case) -> str:
    """Return how the rows of a case are written, as the subject gets them."""
    return "case.{}" if case.layout == "rows" else "case.in_layout(case.{})"


def _forward(case: Case, rows: str) -> str:
    """Return a call of forward; `rows` says how its rows are written, given their name."""
    operation = case.operation
    given = [
        rows.format(name) if operation.is_rows(name) else f"case.{name}"
        for name in operation.inputs_of("data", "parameter")
    ]
    return f"subject.forward({', '.join([*given, *['case.eps'][: operation.takes_eps]])})"


def _backward(case: Case, rows: str, saved: str = "saved") -> str:
    given = [rows.format(name) for name in case.operation.inputs_of("gradient")]
    return f"subject.backward({', '.join([*given, saved])})"


def _passes(symptom: Symptom, spec: SubjectSpec) -> list[str]:
    """Return the calls, as far as they are needed."""
    case, operation = symptom.case, symptom.case.operation
    rows = _plain_rows(case)
    of_forward = operation.outputs_of(backward=False)
    results = ", ".join(of_forward)
    if not spec.backward:
        return [f"{results} = {_forward(case, rows)}"]
    forward = f"{results}, saved = {_forward(case, rows)}"
    gradients = ", ".join(operation.outputs_of(backward=True))
    backward = f"{gradients} = {_backward(case, rows)}"
    return [forward] if symptom.output in of_forward else [forward, backward]


def _compared_with_the_exact_answer(symptom: Symptom) -> list[str]:
    if symptom.right is not None:  # known from when it was measured
        got = f"got = float({symptom.output}{list(symptom.at)})"
        return [got, *_compared_with(symptom.right, symptom.allowed)]
    exact = expected(symptom.case)
    value = exact.values[symptom.output]
    if value is None:
        raise ValueError(f"{symptom.case} has no {symptom.output}")
    # The rows of a large call are those of the case, over and over.
    at = tuple(place % size for place, size in zip(symptom.at, value.shape, strict=True))
    right = float(value[at])
    relaid = value.ndim == 2 and symptom.case.layout != "rows"
    rows = ".reshape(case.shape)" if relaid else ""
    got = f"got = float({symptom.output}{rows}{list(symptom.at)})"
    return [got, *_compared_with(right, float(exact.allowed(symptom.output)[at]))]


def _compared_with(right: float, allowed: float) -> list[str]:
    """Return what holds a number against the right one; where that is NaN, any will do."""
    if not math.isfinite(right):
        test = "not abs(got) < float('inf')" if math.isnan(right) else f"got == float('{right}')"
        return [f"assert {test}, f'got {{got}}, exact {right}'"]
    return [
        f"exact = {right!r}  # {right.hex()}",
        f"assert abs(got - exact) <= {allowed:.4g}, f'got {{got}}, exact {{exact}}'",
    ]


def _compared_with_another_call(symptom: Symptom, spec: SubjectSpec) -> list[str]:
    body = [line.replace("case.", "given.") for line in _passes(symptom, spec)]
    needed, test = same_as(symptom)
    return [
        *needed,
        "def run(given):",
        *(f"    {line}" for line in body),
        f"    return {symptom.output}.copy()",
        f"assert {test}, {symptom.text!r}",
    ]


def _compared_with_another_layout(symptom: Symptom) -> list[str]:
    case = symptom.case
    results = ", ".join(case.operation.outputs_of(backward=False))
    gradients = ", ".join(case.operation.outputs_of(backward=True))
    layout = GRADIENT_LAYOUTS[symptom.record.call.kind]
    return [
        "from truenorm.verify.operation import LAYOUTS",
        "def run(layout):",
        f"    {results}, saved = {_forward(case, 'case.{}')}",
        f"    {gradients} = {_backward(case, 'LAYOUTS[layout](case.{})')}",
        f"    return {symptom.output}.tobytes()",
        f"assert run({layout!r}) == run('rows'), {symptom.text!r}",
    ]


def _compared_with_itself_later(symptom: Symptom, spec: SubjectSpec) -> list[str]:
    case = symptom.case
    other = _forward(case, OTHER_ROWS)
    passes = _passes(replace(symptom, output=""), spec)
    # A result of forward is looked at before its own backward pass, which may overwrite it.
    of_forward = symptom.output in case.operation.outputs_of(backward=False)
    passes.insert(1 if of_forward else 2, f"before = {symptom.output}.tobytes()")
    return [
        *passes,
        *(
            [f"*_, other = {other}", _backward(case, OTHER_ROWS, "other")]
            if spec.backward
            else [other]
        ),
        f"assert {symptom.output}.tobytes() == before, {symptom.text!r}",
    ]


def _compared_with_another_backward(symptom: Symptom) -> list[str]:
    case = symptom.case
    gradients = case.operation.outputs_of(backward=True)
    results = ", ".join(case.operation.outputs_of(backward=False))
    forward = f"{results}, saved = {_forward(case, 'case.{}')}"
    which = f"[{gradients.index(symptom.output)}]" if len(gradients) > 1 else ""
    backward = _backward(case, "case.{}") + which
    between = [forward, _forward(case, OTHER_ROWS)] if symptom.guard == "stale" else []
    return [
        forward,
        f"first = {backward}.copy()",
        *between,
        f"second = {backward}",
        f"assert first.tobytes() == second.tobytes(), {symptom.text!r}",
    ]
