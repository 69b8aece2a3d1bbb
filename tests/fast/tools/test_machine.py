"""Facts about the machine, and the stopwatch."""

import os
import platform
import time
from pathlib import Path

import numpy as np
import pytest

import truenorm
from shared.tools.clock import Clock
from truenorm.tools import machine
from truenorm.tools.machine import Stopwatch, seconds_of


def test_facts_and_versions_in_the_given_order() -> None:
    names = ["truenorm", *machine.FACTS, "numpy", "no-such-package"]
    facts = machine.describe(*names)
    assert list(facts) == [name for name in names if name != "load" or "load" in facts]
    assert facts["python"] == platform.python_version()
    assert facts["truenorm"] == truenorm.__version__
    assert facts["numpy"] == np.__version__
    assert facts["no-such-package"] == "not installed"


def test_system_without_these_facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> str:
        raise OSError

    monkeypatch.setattr(machine, "CPUS", tmp_path / "none")
    monkeypatch.setattr(os, "getloadavg", fail, raising=False)
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert machine.describe("cpu", "load") == {"cpu": platform.machine()}


def test_name_of_the_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Abacus: 3\nprocessor\t: 1\n")
    monkeypatch.setattr(machine, "CPUS", tmp_path / "cpuinfo")
    assert machine.describe("cpu") == {"cpu": "Abacus: 3"}


@pytest.mark.parametrize(
    ("total", "usable", "text"), [(8, {0, 3}, "2 of 8"), (2, {0, 1}, "2"), (None, None, "1")]
)
def test_cores(
    monkeypatch: pytest.MonkeyPatch, total: int | None, usable: set[int] | None, text: str
) -> None:
    """A process may be limited to some cores, and a system may not report them."""
    monkeypatch.setattr(os, "cpu_count", lambda: total)
    if usable is None:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    else:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable, raising=False)
    assert machine.describe("cores") == {"cores": text}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: made.now)
    return made


def test_each_round_starts_with_another_contestant(clock: Clock) -> None:
    watch, contestants = Stopwatch(), {name: clock.contestant(name, 1.0) for name in "abc"}
    assert [watch.go_round(contestants) for _ in range(4)] == [3.0] * 4
    assert "".join(clock.played) == "abc" + "bca" + "cab" + "abc"
    assert watch.seconds == {name: [1.0] * 4 for name in "abc"}


@pytest.mark.parametrize("calls", [4, {"a": 4}])
def test_several_calls_follow_an_untimed_one(clock: Clock, calls: int | dict[str, int]) -> None:
    watch = Stopwatch()
    assert watch.go_round({"a": clock.contestant("a", 70.0, 1.0, 2.0, 3.0)}, calls) == 9.0
    assert watch.seconds == {"a": [9.0 / 4]}
    assert len(clock.played) == 5


def test_seconds_of_some_calls(clock: Clock) -> None:
    assert seconds_of(clock.contestant("a", 1.0, 2.0, 4.0)) == 1.0
    assert seconds_of(clock.contestant("a", 1.0, 2.0, 4.0), calls=3) == 7.0


def test_statistics() -> None:
    watch = Stopwatch({"a": [4.0, 1.0, 1.0], "b": [2.0] * 150 + [9.0, 8.0]})
    watch.add("c", 3.0)
    assert (watch.p50("a"), watch.mean("a"), watch.p99("a")) == (1.0, 2.0, 4.0)
    assert (watch.p50("b"), watch.p99("b")) == (2.0, 8.0)
    assert (watch.ratio("b", to="a"), watch.ratio("c", to="b")) == (2.0, 1.5)
