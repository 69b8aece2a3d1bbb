"""Write the reproducer of a finding: a script of about ten lines that fails as the judge saw."""

import math
import textwrap
from dataclasses import replace

from truenorm.tools.text import one_line
from truenorm.verify.grading.checks import Symptom, large_call_copies
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.running.records import GRADIENT_LAYOUTS, IDLE_ROWS, PADDING_ROWS, PLAIN, RUNS
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.user_cases import is_user_case

WIDTH = 80
"""Columns of the comment. Code is not wrapped, so that it can be copied and run."""
COMPARE_CALLS = ("repeat", "sums", "position", "batch", "padding", "idle")
"""Checks that compare the results of two calls."""
OTHER_ROWS = "-2*case.{}[::-1]"
"""An input of the same shape whose results all have different bits."""


def reproducer(symptom: Symptom, spec: SubjectSpec) -> str:
    """Return a script that ends with an AssertionError, or as the subject itself ends."""
    lines = [
        *_comment(f"{symptom.case}: {symptom.text}"),
        "import truenorm.verify as tv",
        _subject(spec),
        _case(symptom),
    ]
    guard = symptom.guard
    failed_call = guard == "raised" and symptom.record.call.kind != PLAIN
    by_check = guard in ("shape", "type", "inputs", "rounding", "recipe")
    if not spec.callable or failed_call or by_check:
        options = {"rounding": ", require='correct'", "recipe": f", recipe={spec.recipe!r}"}
        lines.append(f"tv.check(subject, case{options.get(guard, '')})")
    elif guard in COMPARE_CALLS:
        lines += _compare_calls(symptom, spec)
    elif guard == "layout":
        lines += _compare_layouts(symptom)
    elif guard == "overwritten":
        lines += _compare_with_later(symptom, spec)
    elif guard in ("stale", "spent"):
        lines += _compare_backwards(symptom)
    else:
        lines += _passes(symptom, spec)
        if symptom.at:
            lines += _compare_with_answer(symptom)
    return "\n".join(lines) + "\n"


def _subject(spec: SubjectSpec) -> str:
    """Return the line that loads the subject."""
    if not spec.file:
        return "subject = ...  # your truenorm.verify.Subject"
    operation = f", operation={spec.operation!r}" if spec.operation else ""
    return f"subject = tv.load({spec.target!r}{operation})"


def _comment(text: str) -> list[str]:
    """Return at most two lines; the name of a case is not broken at its hyphens."""
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
    """Return the line that makes the case, repeated for a symptom of the large call."""
    case = symptom.case
    is_default = case.operation is Subject.operation
    operation = "" if is_default else ", operation=subject.operation"
    if case.made:
        return f"case = {case.made.replace('{operation}', operation)}"
    if is_user_case(case):
        return "case = ...  # yours"
    copies = f".tiled({large_call_copies(case)})" if symptom.guard == "large" else ""
    return f"case = tv.case({case.name!r}{operation}){copies}"


def _plain_rows(case: Case) -> str:
    """Return a format for the rows of a case in the layout that the subject receives."""
    return "case.{}" if case.layout == "rows" else "case.in_layout(case.{})"


def _forward(case: Case, rows: str) -> str:
    """Return a call of forward; `rows` is the format of its rows."""
    operation = case.operation
    arguments = [
        rows.format(name) if operation.is_rows(name) else f"case.{name}"
        for name in operation.inputs_of("data", "parameter")
    ]
    eps = ["case.eps"] if operation.takes_eps else []
    return f"subject.forward({', '.join([*arguments, *eps])})"


def _backward(case: Case, rows: str, saved: str = "saved") -> str:
    gradients = [rows.format(name) for name in case.operation.inputs_of("gradient")]
    return f"subject.backward({', '.join([*gradients, saved])})"


def _passes(symptom: Symptom, spec: SubjectSpec) -> list[str]:
    """Return the calls up to the output of the symptom."""
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


def _compare_with_answer(symptom: Symptom) -> list[str]:
    if symptom.right is not None:
        got = f"got = float({symptom.output}{list(symptom.at)})"
        return [got, *_assert_close(symptom.right, symptom.allowed)]
    exact = expected(symptom.case)
    value = exact.values[symptom.output]
    if value is None:
        raise ValueError(f"{symptom.case} has no {symptom.output}")
    # The large call repeats the rows of the case.
    at = tuple(place % size for place, size in zip(symptom.at, value.shape, strict=True))
    right = float(value[at])
    relaid = value.ndim == 2 and symptom.case.layout != "rows"
    rows = ".reshape(case.shape)" if relaid else ""
    got = f"got = float({symptom.output}{rows}{list(symptom.at)})"
    return [got, *_assert_close(right, float(exact.allowed(symptom.output)[at]))]


def _assert_close(right: float, allowed: float) -> list[str]:
    """Return an assertion on `got`; for NaN, any non-finite value passes."""
    if not math.isfinite(right):
        test = "not abs(got) < float('inf')" if math.isnan(right) else f"got == float('{right}')"
        return [f"assert {test}, f'got {{got}}, exact {right}'"]
    return [
        f"exact = {right!r}  # {right.hex()}",
        f"assert abs(got - exact) <= {allowed:.4g}, f'got {{got}}, exact {{exact}}'",
    ]


def _compare_calls(symptom: Symptom, spec: SubjectSpec) -> list[str]:
    body = [line.replace("case.", "variant.") for line in _passes(symptom, spec)]
    setup, test = _equal_bits(symptom)
    return [
        *setup,
        "def run(variant):",
        *(f"    {line}" for line in body),
        f"    return {symptom.output}.copy()",
        f"assert {test}, {symptom.text!r}",
    ]


def _equal_bits(symptom: Symptom) -> tuple[list[str], str]:
    """Return the setup and the test that two calls have equal bits."""
    call = symptom.record.call
    if symptom.guard == "sums":
        return [], f"len({{run(case).tobytes() for _ in range({RUNS})}}) == 1"
    if symptom.guard == "position" and symptom.at:
        rows = f"rows = {list(symptom.at)}"
        return [rows], "len({row.tobytes() for row in run(case)[rows]}) == 1"
    setup, whole, other = [], "run(case)", "run(case)"
    if symptom.guard == "position":
        other = "run(case.part(slice(None, None, -1)))[::-1]"
    elif symptom.guard == "batch":
        whole = f"run(case)[{call.start}:{call.stop}]"
        other = f"run(case.part(slice({call.start}, {call.stop})))"
    elif symptom.guard == "padding":
        setup = ["from truenorm.verify.operation import padded"]
        numbers = ", ".join(f"float('{each}')" for each in PADDING_ROWS[call.kind])
        other = f"run(padded(case, [{numbers}]))[:{symptom.case.shape[0]}]"
    elif symptom.guard == "idle":
        setup = ["from truenorm.verify.operation import with_idle_rows"]
        other = f"run(with_idle_rows(case, among={IDLE_ROWS[call.kind]}))"
    return setup, f"{other}.tobytes() == {whole}.tobytes()"


def _compare_layouts(symptom: Symptom) -> list[str]:
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


def _compare_with_later(symptom: Symptom, spec: SubjectSpec) -> list[str]:
    case = symptom.case
    other = _forward(case, OTHER_ROWS)
    passes = _passes(replace(symptom, output=""), spec)
    # Copy a result of forward before its own backward pass, which may overwrite it.
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


def _compare_backwards(symptom: Symptom) -> list[str]:
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
