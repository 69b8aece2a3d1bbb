"""The examination: everything that is looked at, in order."""

from datetime import UTC, datetime

from truenorm.doctor.backends import backends, usable_backends
from truenorm.doctor.full import gradients, judgement
from truenorm.doctor.kept_kernels import kept_kernels
from truenorm.doctor.processor import processor
from truenorm.doctor.report import Diagnosis, Line, Section
from truenorm.doctor.self_test import self_test
from truenorm.doctor.versions import versions
from truenorm.tools.progress import Progress

__all__ = ["Progress", "examine"]

UNTESTED = Section("Self-test", (Line("not run", "the arithmetic of this process is not IEEE's"),))


def examine(*, full: bool = False, progress: Progress | None = None) -> Diagnosis:
    """Look at the installation of truenorm, and test it.

    Parameters
    ----------
    full : bool
        Also check the gradients, and put every case of the judge's quick level to truenorm.
    progress : callable, optional
        Called with the number of steps done, the number of all, and what comes next.

    Returns
    -------
    Diagnosis
        ``diagnosis.healthy``, ``diagnosis.problems``.

    Examples
    --------
    >>> from truenorm.doctor import examine
    >>> [section.title for section in examine().sections][:2]
    ['Versions', 'Backends']
    """
    found = [versions(), backends(), processor()]
    today = datetime.now(UTC).date().isoformat()
    if found[-1].problems:
        # Then the operation refuses to compute, and more complaints would only hide why.
        return Diagnosis(today, full, (*found, UNTESTED))
    # Before the folder of kernels is looked at: the test fills it.
    tested = self_test(progress)
    found += [kept_kernels("fused" in usable_backends()), tested]
    if full:
        found += [gradients(), judgement(progress)]
    return Diagnosis(today, full, tuple(found))
