"""Every planted bug has the same report if it is recorded, run and judged as by verify.

`nox -s torch -- -m slow` runs all of them.
"""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

import truenorm.verify as tv
from full.verify.grouped.test_planted import small_cases
from needs_torch.replayed import both_ways, replay_tensors, report_by
from shared.choosing import few
from shared.verify.grouped.planted import PLANTED as GROUPED
from shared.verify.grouped.planted import Planted
from shared.verify.planted.registry import PLANTED
from shared.verify.quantized.kernels import suite_of
from shared.verify.quantized.planted import PLANTED as QUANTIZED
from shared.verify.recorded import cases_for, subject_named
from truenorm.verify.operation import Case
from truenorm.verify.subject import Subject

RANDOM = {"dgamma by rows in random order"}
"""Their bits differ from run to run by design."""


class Bug(NamedTuple):
    """A planted bug: what makes the subject, and the cases."""

    make: Callable[[], Subject]
    cases: Callable[[], list[Case]]


def of_registry(name: str) -> Bug:
    # Copies, since the state of a kernel may be its bug.
    return Bug(lambda: deepcopy(subject_named(name)), lambda: cases_for(name, "quick"))


def quantized(name: str) -> Bug:
    bug = QUANTIZED[name]
    return Bug(
        lambda: bug.kernel.subject(bug.dtype, recipe=bug.recipe),
        lambda: suite_of(bug.operation, bug.dtype, calls=False),
    )


def grouped(bug: Planted) -> Bug:
    return Bug(lambda: bug.subject, lambda: small_cases(bug))


BUGS: dict[str, Bug] = {
    **{name: of_registry(name) for name in PLANTED},
    **{f"quantized: {name}": quantized(name) for name in QUANTIZED},
    **{f"grouped: {bug.name}": grouped(bug) for bug in GROUPED},
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Use one thread, since the calls are small."""
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    "name",
    few(sorted(BUGS.keys() - RANDOM), reason="each bug is judged twice, which takes seconds"),
)
def test_the_report_is_that_of_verify(name: str, tmp_path: Path) -> None:
    called, replayed = both_ways(BUGS[name].make, BUGS[name].cases(), tmp_path / "cases")
    assert called == replayed
    assert not called["passed"]


class Memory:
    """One block of memory, which is allocated again as soon as it is free."""

    def __init__(self) -> None:
        self.content = torch.zeros(2**16, dtype=torch.uint8)

    def full(self, shape: list[int], fill: int, **_: Any) -> Any:
        return self.content[: shape[0]].fill_(fill)

    def empty_like(self, x: Any) -> Any:
        return self.content[: 4 * x.numel()].view(torch.float32).reshape(x.shape)


def ordinary_cases() -> list[Case]:
    suite = tv.cases("float32", operation="rms_norm")
    return [case for case in suite if case.family == "normal" and case.x.size < 2**12]


@pytest.mark.parametrize("poisoned", [True, False])
def test_memory_that_is_not_written_is_seen_by_the_poison(
    poisoned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that is called again with the same rows relies on what is in its memory."""
    memory = Memory()
    last: list[Any] = [None]

    def forward(x: Any, weight: Any, eps: float) -> Any:
        y = memory.empty_like(x)
        if last[0] is None or last[0].shape != x.shape or not torch.equal(last[0], x):
            wide = x.double()
            y.copy_(wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double())
        last[0] = x.clone()
        return y

    free = memory.full if poisoned else lambda *_, **__: None
    monkeypatch.setattr(torch, "full", free)
    subject = Subject(forward, name="stale", operation=tv.RMS_NORM, dtypes=["float32"])
    replayed = replay_tensors(subject, ordinary_cases(), tmp_path / "cases")
    report = report_by(replayed, ordinary_cases())
    assert report.passed == (not poisoned)
    assert {each.verdict for each in report.findings} == ({"repeatable"} if poisoned else set())


@pytest.mark.parametrize("waits", [True, False])
def test_a_stream_that_is_not_waited_for_is_seen_by_the_second_copy(
    waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results change once the device is done; here it is a CPU with something left to do."""
    left: list[Callable[[], Any]] = []

    def synchronize() -> None:
        while left:
            left.pop()()

    def forward(x: Any, weight: Any, eps: float) -> Any:
        wide = x.double()
        y = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()
        y = y.to(x.dtype)
        left.append(lambda: y.add_(1))
        return y

    monkeypatch.setattr(torch.cpu, "synchronize", synchronize)
    subject = Subject(forward, name="stream", operation=tv.RMS_NORM, dtypes=["float32"])
    replayed = replay_tensors(subject, ordinary_cases(), tmp_path / "cases", waits=waits)
    if not waits:
        assert report_by(replayed, ordinary_cases()).passed
        return
    report = report_by(replayed, ordinary_cases())
    assert not report.passed
    text = "returned y before it was computed: a stream is not waited for"
    assert {each.symptom for each in report.findings} == {text}
