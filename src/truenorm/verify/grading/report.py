"""What the judge has to say: grades, verdicts and findings. Plain data, for every kind of page."""

from dataclasses import dataclass, field

from truenorm.verify.operation import EVERYWHERE, Domain, Operation

__all__ = [
    *("ACCURACY", "GRADES", "RANGE", "VERDICTS"),
    *("CaseResult", "Compared", "Finding", "Grade", "Known", "Recipe", "Report"),
]

GRADES = ("wrong", "unstable", "conditional", "stable", "faithful", "correct")
"""From the worst to the best."""

VERDICTS = {
    "runs": "every call returns, with results of the right shape and type",
    "repeatable": "the same bits when called twice",
    "sums repeatable": "sums over rows have the same bits in each of eight runs",
    "batch-invariant": "the same bits for a row wherever it stands, whatever rows are beside it",
    "idle rows": "rows whose gradients are zero change no bit of sums over rows",
    "layouts of gradients": "backward reads gradients however they lie in memory, where claimed",
    "large calls": "rows beyond element 2^24 of a call are as right as the first",
    "inputs kept": "{inputs} are left as they were",
    "results kept": "what was returned stays as it was when more calls follow",
    "own state": "backward uses what its own forward saved",
    "saved kept": "backward, called again with what forward saved, gives the same bits",
    "special values": "NaN and infinity go where they must, and nowhere else",
    "subnormals kept": "numbers below the normal range are not flushed to zero",
}
"""What is said beside the grades: pass, fail, or not judged."""
RANGE = "range"
"""The verdict on what is beyond the domain, if one is declared: no finding comes of it."""
NO_RESULT = ("raised", "shape")
"""Guards whose findings leave nothing to grade."""
ACCURACY = "accuracy"
"""What stands for a verdict where a finding is about a grade."""


@dataclass(frozen=True)
class CaseResult:
    """How far one output of one case was off.

    `ulp` is the largest error in units in the last place, `natural` the largest in units of the
    unit roundoff times the natural scale of the output; both are infinite where something that
    is not finite came and should not have. `allowed` is what `natural` may be for `stable`.
    `needs` is the smallest power of kappa that explains the error: 0, 1, 2, or 3 for none.
    `correct` tells whether every element is the exact answer rounded once, ties to even.
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


@dataclass(frozen=True)
class Grade:
    """The grade of one output in one type, and what it rests on."""

    dtype: str
    output: str
    grade: str
    max_ulp: float
    max_natural: float
    worst_case: str
    slope: float | None  # of log(error) against log(kappa); None where nothing grows

    def reaches(self, least: str) -> bool:
        """Whether it is at least so good."""
        return GRADES.index(self.grade) >= GRADES.index(least)


@dataclass(frozen=True)
class Finding:
    """A symptom, the case that showed it, and ten lines that show it again.

    `guard` is the check that found it; `verdict` the line of `VERDICTS` it belongs to, or
    ``accuracy``. `cause` says what is done wrong, if that is known: for ``accuracy``, if one of
    the `tried` hypotheses fits. If there is a baseline, a finding is either `known`, and `reason`
    is what somebody wrote there, or `new` says what the baseline does not have.
    """

    guard: str
    verdict: str
    dtype: str
    output: str  # empty where all are meant
    case: str
    why: str  # what the case is there to show
    symptom: str
    sources: tuple[str, ...] = ()
    also_in: int = 0  # other cases with the same symptom
    reproducer: str = field(default="", repr=False)
    cause: str = ""
    tried: int = 0  # hypotheses; none where the symptom is no matter of them
    families: tuple[str, ...] = ()  # of the cases that show it
    known: bool = False
    reason: str = ""
    new: str = ""

    @property
    def check(self) -> str:
        """What a baseline calls the guard: those of accuracy are one, and the grade says more."""
        return ACCURACY if self.verdict == ACCURACY else self.guard


@dataclass(frozen=True)
class Recipe:
    """Where the first result is rounded on the way, as far as its bits tell.

    Attributes
    ----------
    dtype : str
    name : str
        The recipe; empty if none fits.
    shares : dict of str to float
        By recipe, the share of elements that have its bits.
    same : dict of str to tuple of str
        By recipe, others that give the same bits for this operation and these types.
    """

    dtype: str
    name: str
    shares: dict[str, float]
    same: dict[str, tuple[str, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """The recipe that fits, and those that give the same bits."""
        return (self.name, *self.same[self.name]) if self.name else ()

    def __str__(self) -> str:
        """Return the three largest shares in words."""
        order = sorted(self.shares, key=lambda name: -self.shares[name])[:3]
        parts = [f"of {name} in {100 * self.shares[name]:.2f} %" for name in order]
        return f"bits {', '.join(parts)} of elements"


@dataclass(frozen=True)
class Known:
    """A finding as a baseline has it: by what depends on neither machine, seed nor order.

    `families` are those of the cases that show it, where it is about input; `grade` is what
    accuracy is known to be; `reason` is for people to write.
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
    """What a baseline says of a report.

    `known` and `new` are numbers of findings; `entries` what the baseline has of this subject,
    `vanished` those that were looked for and not found, with their families that were not, and
    `better` those whose grade is higher now.
    """

    known: int
    new: int
    vanished: tuple[Known, ...]
    better: tuple[Known, ...]
    entries: tuple[Known, ...]


@dataclass(frozen=True)
class Report:
    """Everything about one subject."""

    subject: str
    level: str
    require: str
    grades: tuple[Grade, ...]
    verdicts: dict[str, str]  # pass, fail or not judged
    findings: tuple[Finding, ...]
    results: tuple[CaseResult, ...] = field(repr=False)
    cases: int = 0
    seconds: float = 0.0
    machine: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # by verdict: why it was not judged
    recipes: tuple[Recipe, ...] = ()  # of types of 16 bits
    domain: Domain = EVERYWHERE
    left_out: int = 0  # cases beyond the domain
    not_run: int = 0  # cases that were given up
    recipe: str = ""  # that was asked for
    baseline: Compared | None = None
    operation: Operation = field(kw_only=True, repr=False)

    @property
    def passed(self) -> bool:
        """Whether something was graded, nothing new was found, and every grade is accepted."""
        enough = all(map(self.accepts, self.grades))
        return bool(self.grades) and enough and all(each.known for each in self.findings)

    def accepts(self, grade: Grade) -> bool:
        """Tell whether a grade is at least the required one, or the one that a baseline has."""
        place = (grade.dtype, grade.output)
        entries = self.baseline.entries if self.baseline else ()
        known = [
            each.grade for each in entries if each.grade and (each.dtype, each.output) == place
        ]
        return any(map(grade.reaches, [self.require, *known])) or self._is_known_to_lack(grade)

    def _is_known_to_lack(self, grade: Grade) -> bool:
        """Tell whether a grade rests on no result at all, and a baseline knows why."""
        place = (grade.dtype, grade.output)
        if any((each.dtype, each.output) == place for each in self.results):
            return False
        return any(
            each.known
            and each.guard in NO_RESULT
            and each.dtype == grade.dtype
            and each.output in ("", grade.output)
            for each in self.findings
        )

    def explained(self, verdict: str) -> str:
        """Return why a verdict was not judged, or what it says."""
        *others, last = (each.name for each in self.operation.inputs)
        inputs = f"{', '.join(others)} and {last}"
        return self.notes.get(verdict) or VERDICTS.get(verdict, "").format(inputs=inputs)
