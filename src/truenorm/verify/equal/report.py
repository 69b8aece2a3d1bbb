"""What there is to say of two subjects that should have equal bits. Plain data, as of one."""

from dataclasses import dataclass, field

from truenorm.verify.operation import Operation

__all__ = ["Difference", "Equality", "Summary"]


@dataclass(frozen=True)
class Difference:
    """A result of one case that has other bits from the second subject than from the first.

    `elements` of `total` differ, by at most `ulp`, of the larger one; where the largest distance
    is, `at`, the two have the values `first` and `second`, and `exact` is the answer, rounded.
    Of the elements that were `judged` against exact answers, the first is nearer in
    `first_nearer`, the second in `second_nearer`, and their largest errors in ulp are `first_ulp`
    and `second_ulp`. `words` say what differs if it is not numbers: then all of these are 0.
    """

    case: str
    dtype: str
    output: str  # empty where a call failed
    why: str  # what the case is there to show
    elements: int = 0
    total: int = 0
    ulp: float = 0.0
    at: tuple[int, ...] = ()
    first: float = 0.0
    second: float = 0.0
    exact: float | None = None
    judged: int = 0
    first_nearer: int = 0
    second_nearer: int = 0
    first_ulp: float = 0.0
    second_ulp: float = 0.0
    words: str = ""


@dataclass(frozen=True)
class Summary:
    """All cases of one result in one type, in numbers that mean what those of a case mean."""

    dtype: str
    output: str
    cases: int
    cases_that_differ: int
    total: int
    elements: int
    ulp: float
    judged: int
    first_nearer: int
    second_nearer: int
    first_ulp: float
    second_ulp: float
    worst_case: str


@dataclass(frozen=True)
class Equality:
    """Two subjects, case by case.

    Attributes
    ----------
    first, second : str
        Their names.
    level : str
    cases : int
        Those in which at least one of the two returned.
    summaries : tuple of Summary
        By type and output.
    differences : tuple of Difference
        By case and output.
    failed : int
        Cases in which neither returned.
    not_run : int
        Cases that were given up, because one of them crashed or hung too often.
    """

    first: str
    second: str
    level: str
    cases: int
    summaries: tuple[Summary, ...]
    differences: tuple[Difference, ...] = field(repr=False)
    failed: int = 0
    not_run: int = 0
    left_out: int = 0  # cases beyond the domain of one of them
    machine: dict[str, str] = field(default_factory=dict)
    operation: Operation = field(kw_only=True, repr=False)

    @property
    def passed(self) -> bool:
        """Whether something was compared, nothing was given up, and all bits are equal."""
        return bool(self.summaries) and not self.differences and not self.not_run
