"""Facts about the machine and the installation."""

import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPUS = Path("/proc/cpuinfo")


def describe(*names: str) -> dict[str, str]:
    """Return facts about the machine by name, in the given order.

    Parameters
    ----------
    *names : str
        Keys of `FACTS`; any other name is that of a package, whose version is returned.

    Returns
    -------
    dict of str to str
        Facts that the system does not provide are missing.

    Examples
    --------
    >>> list(describe("date", "cpu", "numpy"))
    ['date', 'cpu', 'numpy']
    """
    facts = {name: FACTS[name]() if name in FACTS else package_version(name) for name in names}
    return {name: text for name, text in facts.items() if text}


def today() -> str:
    """Return the date in UTC: 2026-12-31."""
    return datetime.now(UTC).date().isoformat()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def package_version(package: str) -> str:
    """Return the version of a package, or 'not installed'."""
    if package == "truenorm":  # a checkout may differ from the installed version
        return str(import_module(package).__version__)
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    """Return the name of the processor from Linux, or from Python on other systems."""
    try:
        lines = CPUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> str:
    total, usable = os.cpu_count() or 1, usable_cores()
    return str(total) if usable == total else f"{usable} of {total}"


def _load() -> str:
    """Return the load average of the last minute, or nothing if the system has none."""
    try:
        return f"{os.getloadavg()[0]:.1f} before the run"
    except (AttributeError, OSError):
        return ""


FACTS: dict[str, Callable[[], str]] = {
    "date": today,
    "cpu": _cpu_model,
    "cores": _cores,
    "load": _load,
    "machine": lambda: f"{platform.system()} {platform.machine()}",
    "system": lambda: f"{platform.system()} {platform.release()} {platform.machine()}",
    "platform": platform.platform,
    "python": platform.python_version,
}
"""Functions that return a fact about the machine, by name."""
