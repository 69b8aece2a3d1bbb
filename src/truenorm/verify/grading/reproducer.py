"""Write the reproducer of a finding: a script of about ten lines that fails in the same way."""

import math
import textwrap

from truenorm.tools.text import one_line
from truenorm.verify.calls import (
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    MANY,
    MANY_CALLS,
    PADDING_ROWS,
    PAUSE_SECONDS,
    PAUSED,
    PLAIN,
    RUNS,
    TILED,
)
from truenorm.verify.grading.large_calls import large_call_rows
from truenorm.verify.grading.symptoms import Symptom
from truenorm.verify.oracle import expected
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.user_cases import is_user_case

WIDTH = 80
"""Columns of the comment. Code is not wrapped, so that it can be copied and run."""
BY_CHECK = ("result", "shape", "type", "inputs", "rounding", "recipe", "biased")
"""Checks that `tv.check` reproduces."""
ANSWERED = ("ordinary", "finite", "growth", "special")
"""Checks that compare with an answer; answers to codes depend on the scales that are returned."""
IMPORT_OTHERS = "from truenorm.verify.operation import other_cases"
IMPORT_MEMORY = "from truenorm.verify.running.runners import InputMemory"
HOLD = "InputMemory().hold"
"""The judge puts inputs at the addresses of earlier inputs, which a subject may remember."""
OTHER_ROWS = "-2*case.{}[::-1]"
"""An input of the same shape whose results all have different bits."""


def reproducer(symptom: Symptom, spec: SubjectSpec, *, after_others: bool = False) -> str:
    """Return a script that ends with an AssertionError or in the way the subject ends.

    If `after_others`, the script compares with the exact answer after calls on other inputs.
    """
    comment = textwrap.wrap(
        one_line(f"{symptom.case}: {symptom.text}"),
        WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_on_hyphens=False,  # in the name of the case
        max_lines=2,
        placeholder=" …",
    )
    subject = "...  # your truenorm.verify.Subject"
    if spec.file:
        operation = f", operation={spec.operation!r}" if spec.operation else ""
        subject = f"tv.load({spec.target!r}{operation})"
    script = _Script(symptom, spec, after_others=after_others)
    lines = ["import truenorm.verify as tv", f"subject = {subject}", script.case_line()]
    return "\n".join([*comment, *lines, *script.body()]) + "\n"


class _Script:
    """The lines of a script; `rows` is a format for an input of rows, such as "case.{}"."""

    def __init__(self, symptom: Symptom, spec: SubjectSpec, *, after_others: bool) -> None:
        self.symptom, self.spec, self.case = symptom, spec, symptom.case
        self.after_others = after_others
        self.operation = symptom.case.operation
        self.forward_outputs = self.operation.outputs_of(backward=False)
        self.backward_outputs = self.operation.outputs_of(backward=True)

    def case_line(self) -> str:
        """Return the line that makes the case, repeated for a symptom of the large call."""
        case = self.case
        is_default = self.operation is Subject.operation
        operation = "" if is_default else ", operation=subject.operation"
        if case.made:
            return f"case = {case.made.replace('{operation}', operation)}"
        if is_user_case(case):
            return "case = ...  # yours"
        copies = ""
        if self.symptom.guard == "large":
            rows = large_call_rows(case, self.symptom.record.call.kind)
            copies = f".tiled({rows // case.shape[0]})"
        return f"case = tv.case({case.name!r}{operation}){copies}"

    def body(self) -> list[str]:
        """Return the calls and the assertion."""
        guard = self.symptom.guard
        failed_call = guard == "raised" and self.symptom.record.call.kind != PLAIN
        of_forward = guard in ("stale", "spent") and self.symptom.output in self.forward_outputs
        of_codes = self.operation.expected_type is not None and guard in ANSWERED
        if not self.spec.callable or failed_call or of_forward or of_codes or guard in BY_CHECK:
            options = {
                "rounding": ", require='correct'",
                "recipe": f", recipe={self.spec.recipe!r}",
            }
            return [f"tv.check(subject, case{options.get(guard, '')})"]
        if guard == "floor":  # two cases show it
            test = "all(each.guard != 'floor' for each in tv.verify(subject).findings)"
            return [f"assert {test}, {self.symptom.text!r}"]
        if guard in ("repeat", "sums", "position", "batch", "padding", "idle"):
            return self._compare_calls()
        if guard == "layout":
            return self._compare_layouts()
        if guard == "overwritten":
            return self._compare_with_later()
        if guard in ("stale", "spent"):
            return self._compare_backwards()
        of_element = bool(self.symptom.at)
        if guard == "history" and not (self.after_others and of_element):
            return self._compare_with_first()
        passes = self._passes()
        if self.after_others and of_element:
            loop = f"for case in map({HOLD}, [*other_cases(case), case]):"
            passes = [IMPORT_OTHERS, IMPORT_MEMORY, loop, *(f"    {line}" for line in passes)]
        return [*passes, *(self._compare_with_answer() if of_element else [])]

    def _call_forward(self, rows: str) -> str:
        arguments = [
            self._given(name, rows if self.operation.is_rows(name) else "case.{}")
            for name in self.operation.inputs_of("data", "parameter")
        ]
        eps = ["case.eps"] if self.operation.takes_eps else []
        settings = [f"case.{name}" for name in self.operation.inputs_of("setting")]
        return f"subject.forward({', '.join([*arguments, *eps, *settings])})"

    def _given(self, name: str, rows: str) -> str:
        """Return an argument in the shape that the subject expects."""
        argument = rows.format(name)
        if not self.operation.reshapes:
            return argument
        return f"case.operation.give({name!r}, {argument}, case.given_shape)"

    def _forward(self, rows: str = "case.{}") -> str:
        saved = ["saved"] if self.spec.backward else []
        return f"{', '.join([*self.forward_outputs, *saved])} = {self._call_forward(rows)}"

    def _call_backward(self, rows: str = "case.{}", saved: str = "saved") -> str:
        gradients = [self._given(name, rows) for name in self.operation.inputs_of("gradient")]
        return f"subject.backward({', '.join([*gradients, saved])})"

    def _backward(self, rows: str = "case.{}") -> str:
        return f"{', '.join(self.backward_outputs)} = {self._call_backward(rows)}"

    def _passes(self, *, both: bool = False) -> list[str]:
        """Return the passes up to the output of the symptom, or `both`."""
        rows = "case.{}" if self.case.layout == "rows" else "case.in_layout(case.{})"
        if not self.spec.backward or (self.symptom.output in self.forward_outputs and not both):
            return [self._forward(rows)]
        return [self._forward(rows), self._backward(rows)]

    def _compare_with_answer(self) -> list[str]:
        symptom, reshaped = self.symptom, ""
        right, allowed = symptom.right, symptom.allowed
        if right is None:
            exact = expected(self.case)
            value = exact.wide[symptom.output]
            # The large call repeats the rows of the case.
            at = tuple(place % size for place, size in zip(symptom.at, value.shape, strict=True))
            right, allowed = float(value[at]), float(exact.allowed(symptom.output)[at])
            if value.ndim == 2 and self.case.layout != "rows":
                reshaped = ".reshape(case.shape)"
        result = symptom.output
        if self.operation.reshapes:
            result = f"case.operation.take({result!r}, {result}, case.given_shape)"
        got = f"got = float({result}{reshaped}{list(symptom.at)})"
        if not math.isfinite(right):  # for NaN, any non-finite value passes
            nan = math.isnan(right)
            test = "not abs(got) < float('inf')" if nan else f"got == float('{right}')"
            return [got, f"assert {test}, f'got {{got}}, exact {right}'"]
        return [
            got,
            f"exact = {right!r}  # {right.hex()}",
            f"assert abs(got - exact) <= {allowed:.4g}, f'got {{got}}, exact {{exact}}'",
        ]

    def _compare_calls(self) -> list[str]:
        setup, test = self._equal_bits()
        define = self._define_run()
        if self.after_others:
            _, *passes = define
            header = f"def run(variant, hold={HOLD}):"
            define = [IMPORT_MEMORY, header, "    variant = hold(variant)", *passes]
        return [*setup, *define, f"assert {test}, {self.symptom.text!r}"]

    def _equal_bits(self) -> tuple[list[str], str]:
        """Return the setup and the test that two calls have equal bits."""
        guard, call, at = self.symptom.guard, self.symptom.record.call, self.symptom.at
        if guard == "sums" or call.kind == MANY:
            runs = MANY_CALLS if call.kind == MANY else RUNS
            return [], f"len({{run(case).tobytes() for _ in range({runs})}}) == 1"
        if call.kind == TILED:
            copies = -(-call.stop // self.case.shape[0])
            setup = [f"more = case.tiled({copies}).part(slice({call.stop}))"]
            rows_of = "{{row.tobytes() for row in run({})}}".format
            return setup, f"{rows_of('more')} <= {rows_of('case')}"
        if guard == "position" and at:
            return [f"rows = {list(at)}"], "len({row.tobytes() for row in run(case)[rows]}) == 1"
        setup, whole, other = [], "run(case)", "run(case)"
        if guard == "position":
            other = "run(case.part(slice(None, None, -1)))[::-1]"
        elif guard == "batch":
            whole = f"run(case)[{call.start}:{call.stop}]"
            other = f"run(case.part(slice({call.start}, {call.stop})))"
        elif guard == "padding":
            setup = ["from truenorm.verify.operation import padded"]
            numbers = ", ".join(f"float('{each}')" for each in PADDING_ROWS[call.kind])
            other = f"run(padded(case, [{numbers}]))[:{self.case.shape[0]}]"
        elif guard == "idle":
            setup = ["from truenorm.verify.operation import with_idle_rows"]
            other = f"run(with_idle_rows(case, among={IDLE_ROWS[call.kind]}))"
        return setup, f"{other}.tobytes() == {whole}.tobytes()"

    def _compare_with_first(self) -> list[str]:
        return [
            IMPORT_OTHERS,
            IMPORT_MEMORY,
            *self._define_run(),
            f"first, *_, last = map(run, map({HOLD}, [case, *other_cases(case), case]))",
            f"assert first.tobytes() == last.tobytes(), {self.symptom.text!r}",
        ]

    def _define_run(self) -> list[str]:
        return [
            "def run(variant):",
            *(f"    {line.replace('case.', 'variant.')}" for line in self._passes()),
            f"    return {self.symptom.output}.copy()",
        ]

    def _compare_layouts(self) -> list[str]:
        layout = GRADIENT_LAYOUTS[self.symptom.record.call.kind]
        return [
            "from truenorm.verify.operation import LAYOUTS",
            "def run(layout):",
            f"    {self._forward()}",
            f"    {self._backward('LAYOUTS[layout](case.{})')}",
            f"    return {self.symptom.output}.tobytes()",
            f"assert run({layout!r}) == run('rows'), {self.symptom.text!r}",
        ]

    def _compare_with_later(self) -> list[str]:
        output = self.symptom.output
        passes = self._passes(both=True)
        # Copy a result of forward before its own backward pass, which may overwrite it.
        place = 1 if output in self.forward_outputs else 2
        passes.insert(place, f"before = {output}.tobytes()")
        later = [self._call_forward(OTHER_ROWS)]
        if self.symptom.record.call.kind == PAUSED:
            later = ["import time", f"time.sleep({PAUSE_SECONDS})"]
        elif self.spec.backward:
            later = [f"*_, other = {later[0]}", self._call_backward(OTHER_ROWS, "other")]
        return [*passes, *later, f"assert {output}.tobytes() == before, {self.symptom.text!r}"]

    def _compare_backwards(self) -> list[str]:
        names = self.backward_outputs
        index = f"[{names.index(self.symptom.output)}]" if len(names) > 1 else ""
        backward = f"{self._call_backward()}{index}"
        stale = self.symptom.guard == "stale"
        return [
            self._forward(),
            f"first = {backward}.copy()",
            *([self._forward(), self._call_forward(OTHER_ROWS)] if stale else []),
            f"second = {backward}",
            f"assert first.tobytes() == second.tobytes(), {self.symptom.text!r}",
        ]
