"""What a campaign has to say: numbers for each result, and findings. Plain data, for pages."""

from dataclasses import dataclass, field

from truenorm.verify.grading.report import Finding
from truenorm.verify.operation import Operation

__all__ = ["Campaign", "Judgement"]


@dataclass(frozen=True)
class Judgement:
    """What a campaign says of one output in one type.

    `elements` were compared with exact answers, of which `answers` were computed: rows that a case
    repeats have one. `wrong` is how many of these elements are below the required grade.
    """

    dtype: str
    output: str
    grade: str
    cases: int
    elements: int
    answers: int
    wrong: int
    max_ulp: float
    max_natural: float
    worst_case: str


@dataclass(frozen=True)
class Campaign:
    """What came of many cases that were drawn.

    Attributes
    ----------
    subject, level, require : str
    seed : int
        The first one that cases were drawn with.
    asked, cases : int
        How many cases were asked for, and how many were judged.
    failed : int
        Cases in which something is wrong: an element, or what the subject did.
    left_out, not_run : int
        Cases beyond the domain of the subject, and those that were given up.
    elements, answers, wrong : int
        Sums over all results.
    results : tuple of Judgement
    findings : tuple of Finding
        As in a `Report`; those of accuracy, and their causes, from the first cases that show each.
    seconds : float
        From the first case to the last.
    worked, called : float
        Processor time of judging, and time in calls of the subject, added up over all workers.
    machine : dict of str to str
    operation : Operation
    """

    subject: str
    level: str
    require: str
    seed: int
    asked: int
    cases: int
    failed: int
    left_out: int
    not_run: int
    elements: int
    answers: int
    wrong: int
    results: tuple[Judgement, ...]
    findings: tuple[Finding, ...]
    seconds: float
    worked: float
    called: float
    machine: dict[str, str]
    operation: Operation = field(kw_only=True, repr=False)

    @property
    def passed(self) -> bool:
        """Whether all cases were judged, and nothing is wrong in any."""
        return bool(self.results) and not self.failed and not self.not_run
