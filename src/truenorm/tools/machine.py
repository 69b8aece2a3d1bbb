"""Where and with what something ran, and when: no figure means anything without it."""

import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["describe", "package_version", "today", "usable_cores"]

CPUS = Path("/proc/cpuinfo")


def describe(*names: str) -> dict[str, str]:
    """Return facts by name, in the order in which they are asked for.

    Parameters
    ----------
    *names : str
        Of `FACTS`; any other is the name of a package, whose version is given.

    Returns
    -------
    dict of str to str
        Without what the system does not tell.

    Examples
    --------
    >>> list(describe("date", "cpu", "numpy"))
    ['date', 'cpu', 'numpy']
    """
    found = {name: FACTS[name]() if name in FACTS else package_version(name) for name in names}
    return {name: text for name, text in found.items() if text}


def today() -> str:
    """Return the date in UTC: 2026-12-31."""
    return datetime.now(UTC).date().isoformat()


def usable_cores() -> int:
    """Return how many cores this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def package_version(package: str) -> str:
    """Return the version of a package, or that there is none."""
    if package == "truenorm":  # a checkout may have a version that is not the one installed
        return str(import_module(package).__version__)
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    """Return the name that Linux gives the processor, elsewhere what Python knows of it."""
    try:
        lines = CPUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> str:
    there, usable = os.cpu_count() or 1, usable_cores()
    return str(there) if usable == there else f"{usable} of {there}"


def _load() -> str:
    """Return how many threads wanted a core in the last minute, where the system tells."""
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
"""What is known about where a process runs."""
