"""Where something ran, also on a system that says little."""

import os
import platform
from pathlib import Path

import numpy as np
import pytest

import truenorm
from truenorm.tools import machine


def test_every_fact_and_versions_in_the_order_asked() -> None:
    names = ["truenorm", *machine.FACTS, "numpy", "no-such-package"]
    found = machine.describe(*names)
    assert list(found) == [name for name in names if name != "load" or "load" in found]
    assert found["python"] == platform.python_version()
    assert found["truenorm"] == truenorm.__version__
    assert found["numpy"] == np.__version__
    assert found["no-such-package"] == "not installed"


def test_a_system_that_says_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError

    monkeypatch.setattr(machine, "CPUS", tmp_path / "none")
    monkeypatch.setattr(os, "getloadavg", refuse, raising=False)
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert machine.describe("cpu", "load") == {"cpu": platform.machine()}


def test_the_name_of_the_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Abacus: 3\nprocessor\t: 1\n")
    monkeypatch.setattr(machine, "CPUS", tmp_path / "cpuinfo")
    assert machine.describe("cpu") == {"cpu": "Abacus: 3"}


@pytest.mark.parametrize(
    ("there", "usable", "said"), [(8, {0, 3}, "2 of 8"), (2, {0, 1}, "2"), (None, None, "1")]
)
def test_cores(
    monkeypatch: pytest.MonkeyPatch, there: int | None, usable: set[int] | None, said: str
) -> None:
    """Some are not for us; and some systems do not say which."""
    monkeypatch.setattr(os, "cpu_count", lambda: there)
    if usable is None:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    else:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable, raising=False)
    assert machine.describe("cores") == {"cores": said}
