"""A declared domain: what is beyond it is left out of the grade, and told."""

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.judge import SubjectOptions, with_options
from truenorm.verify.report.wording import about, conclusion
from truenorm.verify.types import Array


def two_passes(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Squares overflow beyond 1e19, and the mean is rounded once."""
    centred = x - x.mean(axis=-1, keepdims=True)
    w = (centred * centred).mean(axis=-1, keepdims=True) + np.float32(eps)
    return np.asarray(gamma * centred / np.sqrt(w) + beta)


def report_of(domain: tv.Domain, require: str = "stable") -> tv.Report:
    return tv.verify(tv.Subject(two_passes, domain=domain), require=require)


def test_everywhere_it_is_unstable() -> None:
    report = report_of(tv.Domain())
    assert report.grades[0].grade == "unstable"
    assert "range" not in report.verdicts
    assert about(report) == []


def test_large_numbers_are_left_out() -> None:
    report = report_of(tv.Domain(largest=1e4), "conditional")
    assert report.passed
    assert report.grades[0].grade == "conditional"
    assert report.verdicts["range"] == "fail"
    assert 0 < report.left_out < len(tv.cases("float32"))
    assert report.left_out + report.cases == len(tv.cases("float32"))
    assert not report_of(tv.Domain(largest=1e4), "stable").passed


def test_so_is_a_large_mean() -> None:
    report = report_of(tv.Domain(largest=1e4, kappa=10))
    assert report.passed
    assert report.grades[0].reaches("stable")
    assert "|x| up to 10000 and kappa up to 10" in about(report)[0]
    assert conclusion(report).endswith("stable for |x| up to 10000 and kappa up to 10.")


def test_a_mistake_within_is_found() -> None:
    def wrong(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        return two_passes(x, gamma, beta, eps) * np.float32(1.01)

    subject = tv.Subject(wrong, domain=tv.Domain(largest=1e4, kappa=10))
    assert tv.verify(subject).grades[0].grade == "wrong"


def test_who_is_right_everywhere_passes_beyond() -> None:
    def right(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        wide = x.astype(np.longdouble)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        w = (centred * centred).mean(axis=-1, keepdims=True) + eps
        found: Array = (gamma * (centred / np.sqrt(w)) + beta).astype(x.dtype)
        return found

    report = tv.verify(tv.Subject(right, domain=tv.Domain(kappa=10)))
    assert report.passed
    assert report.verdicts["range"] == "pass"


@pytest.mark.parametrize("name", ["largest", "kappa"])
def test_a_domain_without_rows(name: str) -> None:
    for value in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=f"{name} is .*; give a number above zero"):
            tv.Domain(**{name: value})


@pytest.mark.parametrize("options", [SubjectOptions(largest=0.0), SubjectOptions(kappa=0.0)])
def test_a_limit_of_zero_was_given(options: SubjectOptions) -> None:
    subject = tv.Subject(two_passes, domain=tv.Domain(1e4, 10.0))
    with pytest.raises(ValueError, match=r"is 0\.0; give a number above zero"):
        with_options(subject, options)
    assert with_options(subject, SubjectOptions(kappa=None)).domain == subject.domain
