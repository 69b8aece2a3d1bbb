"""Which cases are beyond what a subject claims, and how it does there."""

from collections.abc import Sequence

import numpy as np

from truenorm.verify.answers.expected import expected
from truenorm.verify.domain import Domain
from truenorm.verify.operation import Case
from truenorm.verify.own.cases import is_own
from truenorm.verify.own.norms import condition

__all__ = ["parted"]


def parted(cases: Sequence[Case], domain: Domain) -> tuple[list[Case], list[Case]]:
    """Return the cases that a domain has, and those beyond it."""
    within = [case for case in cases if _has(domain, case)]
    return within, [case for case in cases if case not in within]


def _has(domain: Domain, case: Case) -> bool:
    """Tell whether every row of a case is in a domain; what is not finite has no size."""
    if domain.is_all:
        return True
    for name in case.operation.inputs_of("data"):
        sizes = np.abs(case.rows[name].astype(np.float64))
        if sizes[np.isfinite(sizes)].max(initial=0.0) > domain.largest:
            return False
    if is_own(case):
        return condition(case) <= domain.kappa
    return bool(expected(case).scales.kappa.max(initial=0.0) <= domain.kappa)
