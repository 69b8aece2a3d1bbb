"""The result of a judgement as plain data: grades, verdicts and findings."""

import math
from dataclasses import dataclass, field

from truenorm.verify.causes import Cause
from truenorm.verify.operation import EVERYWHERE, Domain, Operation, Quantization

GRADES = ("wrong", "unstable", "conditional", "stable", "faithful", "correct")
"""The grades, from worst to best."""

VERDICTS = {
    "runs": "every call returns results of the right shape and type",
    "repeatable": "the same call returns the same bits",
    "sums repeatable": "sums over rows have the same bits in each of eight runs",
    "batch-invariant": "the bits of a row do not depend on its position or on other rows",
    "idle rows": "rows of zero gradient do not change sums over rows",
    "layouts of gradients": "backward reads gradients in any memory layout, where claimed",
    "large calls": "rows beyond element 2^24 of a call are as accurate as the first",
    "inputs kept": "{inputs} are not modified",
    "results kept": "later calls do not modify returned results",
    "own state": "backward uses the state that its own forward saved",
    "saved kept": "backward returns the same bits when called again with the same saved state",
    "special values": "NaN and infinity appear where they must, and nowhere else",
    "subnormals kept": "subnormal numbers are not flushed to zero",
}
"""The verdicts beside the grades. Each one is pass, fail, warn or not judged."""
BATCH_INVARIANT = "batch-invariant"
"""The verdict that need not be required: not every library promises it."""
BATCH = ("require", "warn")
"""What a finding of `BATCH_INVARIANT` is: a failure or a warning."""
NO_RESULT = ("raised", "result", "shape")
"""Checks that fail if there is no result to grade."""
ACCURACY = "accuracy"
"""The verdict of findings that are about a grade."""


@dataclass(frozen=True)
class CaseResult:
    """The error of one output of one case.

    `ulp` is the largest error in units in the last place. `natural` is the largest error in units
    of the unit roundoff times the natural scale of the output. Both are infinite if an element is
    not finite and should be. `allowed` is the largest `natural` of a stable result. `needs` is the
    smallest power of kappa that explains the error: 0, 1, 2, or 3 for none. `correct` is true if
    every element is the exact answer rounded once, ties to even.
    """

    case: str
    dtype: str
    family: str
    kind: str
    output: str
    ulp: float
    natural: float
    allowed: float
    needs: int
    correct: bool
    kappa: float

    @property
    def badness(self) -> tuple[int, float, float]:
        """The sort key of errors."""
        return self.needs, self.natural, self.ulp


@dataclass(frozen=True)
class Grade:
    """The grade of one output in one type, with the largest errors over all cases."""

    dtype: str
    output: str
    grade: str
    max_ulp: float
    max_natural: float
    worst_case: str
    slope: float | None  # of log(error) against log(kappa); None if errors do not grow

    @property
    def type_and_output(self) -> tuple[str, str]:
        """The type and the output."""
        return self.dtype, self.output

    def reaches(self, least: str) -> bool:
        """Return True if the grade is at least `least`."""
        return GRADES.index(self.grade) >= GRADES.index(least)


@dataclass(frozen=True)
class Finding:
    """A symptom, a case that shows it, and a script that reproduces it.

    `guard` is the check that failed; `verdict` is the verdict it decides, or ``accuracy``.
    `cause` is the likely cause in words, or empty if unknown, and `causes` are the same as data;
    `tried` is the number of hypotheses that were compared, and `matched` is True if one of them
    predicts the result. `matters` says why it matters, `to_try` what to do first. `follows` is the
    number of the finding, counted from 1, whose cause explains this one, or 0. A `warning` does
    not fail the report. With a baseline, a finding is either `known`, and `reason` is the reason
    given there, or `new` says what the baseline does not contain.
    """

    guard: str
    verdict: str
    dtype: str
    output: str  # empty for a finding about the whole call
    case: str
    why: str  # the purpose of the case
    symptom: str
    sources: tuple[str, ...] = ()
    also_in: int = 0  # other cases with the same symptom
    reproducer: str = field(default="", repr=False)
    cause: str = ""
    tried: int = 0  # hypotheses; 0 for symptoms without any
    families: tuple[str, ...] = ()  # of the cases that show it
    slope: float | None = None  # the power of kappa with which the error grows
    matters: str = ""
    to_try: str = ""
    causes: tuple[Cause, ...] = ()
    matched: bool = False
    follows: int = 0
    warning: bool = False
    known: bool = False
    reason: str = ""
    new: str = ""

    @property
    def fails(self) -> bool:
        """True if the finding fails its report: it is neither known nor a warning."""
        return not (self.known or self.warning)

    @property
    def check(self) -> str:
        """The name of the check in a baseline: one for all checks of accuracy."""
        return ACCURACY if self.verdict == ACCURACY else self.guard


@dataclass(frozen=True)
class BeyondDomain:
    """A failure outside the domain of a subject: outputs of one type with the same grade.

    Attributes
    ----------
    dtype : str
    outputs : tuple of str
    outcome : str
        The grade of the failing cases; for a check other than accuracy, its verdict.
    limit : str
        The limit that the failing cases exceed, ``|x|`` or ``kappa``; empty for a check.
    least : float
        The smallest |x| or kappa of a failing case.
    values : str
        The kind of the worst elements, such as ``zeros``, or empty; for a check, the symptom.
    cases : int
        The number of failing cases.
    """

    dtype: str
    outputs: tuple[str, ...]
    outcome: str
    limit: str
    least: float
    values: str
    cases: int


@dataclass(frozen=True)
class Recipe:
    """The intermediate roundings of an output, identified by its bits.

    Attributes
    ----------
    dtype : str
    name : str
        The recipe; empty if none matches.
    shares : dict of str to float
        By recipe, the share with its bits of the elements that the recipe decides.
    same : dict of str to tuple of str
        By recipe, other recipes with the same bits for this operation and these types.
    output : str
    explanation : str
        The roundings that explain the bits if no recipe does, or the roundings of backward.
    causes : tuple of Cause
        The same as data.
    tried : int
        The number of roundings and hypotheses that were compared if no recipe matches.
    way : str
        How y is scaled before it is quantized, if the bits show it.
    ways : dict of str to float
        By way, the share of the elements with its bits, in rows made to show ways.
    """

    dtype: str
    name: str
    shares: dict[str, float]
    same: dict[str, tuple[str, ...]]
    output: str = "y"
    explanation: str = ""
    causes: tuple[Cause, ...] = ()
    tried: int = 0
    way: str = ""
    ways: dict[str, float] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The recipe that matches, and recipes with the same bits; also with the way."""
        names = (self.name, *self.same[self.name]) if self.name else ()
        return (*names, *(f"{name}, {self.way}" for name in names if self.way))

    @property
    def full_name(self) -> str:
        """The recipe that matches, with the way."""
        return f"{self.name}, {self.way}" if self.name and self.way else self.name

    def __str__(self) -> str:
        """Return the three largest shares in words, rounded down: 100 % is all."""
        return f"bits {_shares_text(self.shares)} of decided elements"

    @property
    def ways_text(self) -> str:
        """The shares of the ways in words."""
        return f"bits {_shares_text(self.ways)} of rows that distinguish them"


def _shares_text(shares: dict[str, float]) -> str:
    order = sorted(shares, key=lambda name: -shares[name])[:3]
    percent = {name: math.floor(1e4 * shares[name]) / 100 for name in order}
    return ", ".join(f"of {name} in {percent[name]:.2f} %" for name in order)


@dataclass(frozen=True)
class TooSlow:
    """The cases of a family and a type that were not judged in full, since they take too long.

    `cases` were not run at all; `calls` of other cases were left out. All of them would have taken
    about so many `seconds`.
    """

    dtype: str
    family: str
    cases: int
    calls: int
    seconds: float


@dataclass(frozen=True)
class Unsupported:
    """A type, or numbers `eps`, that the subject refuses, with the message of its exception.

    `cases` were not judged.
    """

    dtype: str
    eps: tuple[float, ...]  # empty if it refuses the type
    message: str
    cases: int


@dataclass(frozen=True)
class Known:
    """A finding in a baseline, identified independently of machine, seed and order.

    `families` are the families of the cases that show the finding, if it depends on the input.
    `grade` is the known grade, for accuracy. The maintainer of the baseline writes `reason`.
    """

    subject: str
    operation: str
    dtype: str
    output: str
    check: str
    families: tuple[str, ...] = ()
    grade: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Compared:
    """A report compared with a baseline.

    `known` and `new` are numbers of findings; warnings are not counted as new. `entries` are the
    entries of this subject, `vanished` the entries that were checked and not found (with the
    families concerned), and `better` the entries whose grade has improved.
    """

    known: int
    new: int
    vanished: tuple[Known, ...]
    better: tuple[Known, ...]
    entries: tuple[Known, ...]


@dataclass(frozen=True)
class Report:
    """The judgement of one subject."""

    subject: str
    level: str
    require: str
    grades: tuple[Grade, ...]
    verdicts: dict[str, str]  # pass, fail, warn or not judged
    findings: tuple[Finding, ...]
    results: tuple[CaseResult, ...] = field(repr=False)
    cases: int = 0
    seconds: float = 0.0
    machine: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # reasons of verdicts not judged
    recipes: tuple[Recipe, ...] = ()  # of the first output, by type of 16 bits
    backward_recipes: tuple[Recipe, ...] = ()  # by type of 16 bits and output
    quantization: tuple[Quantization, ...] = ()  # by type, of codes and scales
    domain: Domain = EVERYWHERE
    left_out: int = 0  # cases outside the domain
    beyond: tuple[BeyondDomain, ...] = ()  # what fails there
    results_beyond: tuple[CaseResult, ...] = field(default=(), repr=False)
    strict: bool = True  # sums over rows have the bound of other results
    not_run: int = 0  # cases skipped after too many crashes
    unsupported: tuple[Unsupported, ...] = ()  # types and eps that it refuses
    too_slow: tuple[TooSlow, ...] = ()  # not judged within the time limit
    recipe: str = ""  # that is required
    batch: str = "require"  # or "warn": see BATCH
    baseline: Compared | None = None
    operation: Operation = field(kw_only=True, repr=False)

    @property
    def passed(self) -> bool:
        """True if there are grades, all are accepted, and no finding fails."""
        accepted = all(map(self.accepts, self.grades))
        return bool(self.grades) and accepted and not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that fail the report."""
        return tuple(each for each in self.findings if each.fails)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are warnings, and not known."""
        return tuple(each for each in self.findings if each.warning and not each.known)

    def accepts(self, grade: Grade) -> bool:
        """Return True if a grade reaches the required grade or the grade in the baseline."""
        place = (grade.dtype, grade.output)
        entries = self.baseline.entries if self.baseline else ()
        known = [
            each.grade for each in entries if each.grade and (each.dtype, each.output) == place
        ]
        return any(map(grade.reaches, [self.require, *known])) or self._has_known_failure(grade)

    def _has_known_failure(self, grade: Grade) -> bool:
        """Return True if there is no result to grade because of a known finding.

        Results of a wrong shape are not graded, nor are results of other cases.
        """
        known = {
            each.guard
            for each in self.findings
            if each.known and each.dtype == grade.dtype and each.output in ("", grade.output)
        }
        place = (grade.dtype, grade.output)
        graded = any((each.dtype, each.output) == place for each in self.results)
        return "shape" in known or (not graded and not known.isdisjoint(NO_RESULT))

    def explained(self, verdict: str) -> str:
        """Return the meaning of a verdict, or why it was not judged."""
        *others, last = (each.name for each in self.operation.inputs)
        inputs = f"{', '.join(others)} and {last}"
        return self.notes.get(verdict) or VERDICTS.get(verdict, "").format(inputs=inputs)
