"""The judge: find the bugs in anyone's layer or RMS normalization.

>>> import truenorm.verify as tv
>>> def forward(x, gamma, beta, eps):  # divides by D - 1
...     return gamma * (x - x.mean(-1, keepdims=True)) / x.std(-1, ddof=1, keepdims=True) + beta
>>> report = tv.verify(tv.Subject(forward, name="my kernel", dtypes=["float32"]))
>>> report.passed, report.grades[0].grade
(False, 'wrong')
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truenorm.verify.baseline import update_baseline
    from truenorm.verify.bounds import Bound, bound
    from truenorm.verify.equality import Difference, Equality, compare
    from truenorm.verify.grading.report import Finding, Grade, Recipe, Report
    from truenorm.verify.in_tests import Verdict, verdicts
    from truenorm.verify.judge import check, verify
    from truenorm.verify.norms.codes import unswizzled
    from truenorm.verify.norms.norm import Norm
    from truenorm.verify.norms.quant import Quant
    from truenorm.verify.operation import Case, Domain
    from truenorm.verify.operations import EXTENSIONS, LAYER_NORM, RMS_NORM, norm
    from truenorm.verify.recordings import judge_recording, record_cases
    from truenorm.verify.running.loading import load
    from truenorm.verify.running.torch_subject import torch_subject
    from truenorm.verify.scores import Score, score
    from truenorm.verify.subject import Subject
    from truenorm.verify.suite import case, cases
    from truenorm.verify.user_cases import case_from, case_of_shape, load_data

__all__ = [
    "EXTENSIONS",
    "LAYER_NORM",
    "RMS_NORM",
    "Bound",
    "Case",
    "Difference",
    "Domain",
    "Equality",
    "Finding",
    "Grade",
    "Norm",
    "Quant",
    "Recipe",
    "Report",
    "Score",
    "Subject",
    "Verdict",
    "bound",
    "case",
    "case_from",
    "case_of_shape",
    "cases",
    "check",
    "compare",
    "formula",
    "judge_recording",
    "load",
    "load_data",
    "norm",
    "record_cases",
    "score",
    "torch_subject",
    "unswizzled",
    "update_baseline",
    "verdicts",
    "verify",
]

# The module of each public name, imported on first access: a script that judges nothing, such as
# one that makes cases, does not wait for the judge.
_HOMES = {
    "Bound": "truenorm.verify.bounds",
    "Case": "truenorm.verify.operation",
    "Difference": "truenorm.verify.equality",
    "Domain": "truenorm.verify.operation",
    "EXTENSIONS": "truenorm.verify.operations",
    "Equality": "truenorm.verify.equality",
    "Finding": "truenorm.verify.grading.report",
    "Grade": "truenorm.verify.grading.report",
    "LAYER_NORM": "truenorm.verify.operations",
    "Norm": "truenorm.verify.norms.norm",
    "Quant": "truenorm.verify.norms.quant",
    "RMS_NORM": "truenorm.verify.operations",
    "Recipe": "truenorm.verify.grading.report",
    "Report": "truenorm.verify.grading.report",
    "Score": "truenorm.verify.scores",
    "Subject": "truenorm.verify.subject",
    "Verdict": "truenorm.verify.in_tests",
    "bound": "truenorm.verify.bounds",
    "case": "truenorm.verify.suite",
    "case_from": "truenorm.verify.user_cases",
    "case_of_shape": "truenorm.verify.user_cases",
    "cases": "truenorm.verify.suite",
    "check": "truenorm.verify.judge",
    "compare": "truenorm.verify.equality",
    "formula": "truenorm.verify.formulas.operation",
    "judge_recording": "truenorm.verify.recordings",
    "load": "truenorm.verify.running.loading",
    "load_data": "truenorm.verify.user_cases",
    "norm": "truenorm.verify.operations",
    "record_cases": "truenorm.verify.recordings",
    "score": "truenorm.verify.scores",
    "torch_subject": "truenorm.verify.running.torch_subject",
    "unswizzled": "truenorm.verify.norms.codes",
    "update_baseline": "truenorm.verify.baseline",
    "verdicts": "truenorm.verify.in_tests",
    "verify": "truenorm.verify.judge",
}


def __getattr__(name: str) -> Any:
    """Import a public name (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'truenorm.verify' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
