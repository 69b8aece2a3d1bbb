"""Facts about the machine."""

import os
import platform
from pathlib import Path

import numpy as np
import pytest

import truenorm
from truenorm.tools import machine


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
