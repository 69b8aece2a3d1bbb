"""How many threads a call may use."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from truenorm import threads
from truenorm.threads import thread_count


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend to have 64 CPUs and no cgroups."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(threads, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(threads, "CGROUPS", tmp_path)
    threads._usable_cpus.cache_clear()
    yield
    threads._usable_cpus.cache_clear()


VARIABLE = {"3": 3, " 100 ": 100, "5,2": 5}
SAYS_NOTHING = dict.fromkeys(["", "0", "-2", "two", "1.5", ",4"], 64)


@pytest.mark.parametrize(("value", "count"), (VARIABLE | SAYS_NOTHING).items())
def test_variable(monkeypatch: pytest.MonkeyPatch, value: str, count: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert thread_count(None) == count
    assert thread_count(200) == 200  # who asks gets it


@pytest.mark.parametrize(("cpus", "count"), [(6, 6), (None, 1)])
def test_where_affinity_is_unknown(
    monkeypatch: pytest.MonkeyPatch, cpus: int | None, count: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    assert thread_count(None) == count


@pytest.mark.parametrize(
    ("membership", "files", "count"),
    [
        # In its own group, in one above, at the root; the smallest counts.
        ("0::/a/b", {"a/b": "150000 100000\n"}, 2),
        ("0::/a/b", {"a/b": "max 100000", "a": "300000 100000"}, 3),
        ("0::/", {"": "200000 100000"}, 2),
        ("0::/a", {"a": "400000 100000", "": "350001 50000"}, 4),
        ("0::/a", {"a": "6500000 100000"}, 64),
        ("0::/of/the/host", {"": "500000 100000"}, 5),
        ("0::/a\n4:cpu,cpuacct:/b", {"a": "500000 100000", "b": "200000 100000"}, 5),
        # At least one
        ("0::/", {"": "1000 100000"}, 1),
        ("0::/", {"": "0 100000"}, 1),
        # What says nothing
        ("0::/", {"": "max 100000"}, 64),
        ("0::/", {"": "1 2 3"}, 64),
        ("0::/", {"": "100000 0"}, 64),
        ("0::/", {"": "\udcff"}, 64),
        ("\udcff", {}, 64),
    ],
)
def test_quotas(tmp_path: Path, membership: str, files: dict[str, str], count: int) -> None:
    texts = {f"{group}/cpu.max".lstrip("/"): text for group, text in files.items()}
    for name, text in {"membership": membership, **texts}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    assert thread_count(None) == count


def test_the_machine_is_asked_once(tmp_path: Path) -> None:
    assert thread_count(None) == 64
    (tmp_path / "cpu.max").write_text("100000 100000")
    assert thread_count(None) == 64
