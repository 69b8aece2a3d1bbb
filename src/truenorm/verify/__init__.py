"""The judge: find the bugs in anyone's layer or RMS normalization.

>>> import truenorm.verify as tv
>>> def forward(x, gamma, beta, eps):  # divides by D - 1
...     return gamma * (x - x.mean(-1, keepdims=True)) / x.std(-1, ddof=1, keepdims=True) + beta
>>> report = tv.verify(tv.Subject(forward, name="my kernel", dtypes=["float32"]))
>>> report.passed, report.grades[0].grade
(False, 'wrong')
"""

from truenorm.verify.baselines.comparing import update_baseline
from truenorm.verify.bounds.bound import Bound, bound
from truenorm.verify.campaigns.campaign import campaign
from truenorm.verify.campaigns.summary import Campaign, Judgement
from truenorm.verify.domain import Domain
from truenorm.verify.equal.comparing import compare
from truenorm.verify.equal.report import Difference, Equality
from truenorm.verify.grading.report import Finding, Grade, Recipe, Report
from truenorm.verify.judge import check, verify
from truenorm.verify.operation import Case
from truenorm.verify.operations import LAYER_NORM, RMS_NORM, norm
from truenorm.verify.operations.layer_norm import EXTENSIONS
from truenorm.verify.operations.norms import Norm
from truenorm.verify.own.cases import case_from, case_of_shape
from truenorm.verify.own.data import load_data
from truenorm.verify.runs.loading import load
from truenorm.verify.subject import Subject
from truenorm.verify.suite import case, cases
from truenorm.verify.tensors.torch_subject import torch_subject

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
    "Judgement",
    "Norm",
    "Recipe",
    "Report",
    "Subject",
    "bound",
    "campaign",
    "case",
    "case_from",
    "case_of_shape",
    "cases",
    "check",
    "compare",
    "load",
    "load_data",
    "norm",
    "torch_subject",
    "update_baseline",
    "verify",
]
