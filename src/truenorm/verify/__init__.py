"""The judge: find the bugs in anyone's layer or RMS normalization.

>>> import truenorm.verify as tv
>>> def forward(x, gamma, beta, eps):  # divides by D - 1
...     return gamma * (x - x.mean(-1, keepdims=True)) / x.std(-1, ddof=1, keepdims=True) + beta
>>> report = tv.verify(tv.Subject(forward, name="my kernel", dtypes=["float32"]))
>>> report.passed, report.grades[0].grade
(False, 'wrong')
"""

from truenorm.verify.baseline import update_baseline
from truenorm.verify.bounds import Bound, bound
from truenorm.verify.campaigns import Campaign, Judgement, campaign
from truenorm.verify.equality import Difference, Equality, compare
from truenorm.verify.grading.report import Finding, Grade, Recipe, Report
from truenorm.verify.harnesses import (
    HarnessSubject,
    flashinfer_bench,
    kernelbench,
)
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
    "Campaign",
    "Case",
    "Difference",
    "Domain",
    "Equality",
    "Finding",
    "Grade",
    "HarnessSubject",
    "Judgement",
    "Norm",
    "Quant",
    "Recipe",
    "Report",
    "Score",
    "Subject",
    "bound",
    "campaign",
    "case",
    "case_from",
    "case_of_shape",
    "cases",
    "check",
    "compare",
    "flashinfer_bench",
    "judge_recording",
    "kernelbench",
    "load",
    "load_data",
    "norm",
    "record_cases",
    "score",
    "torch_subject",
    "unswizzled",
    "update_baseline",
    "verify",
]
