"""Where a figure comes from: no time means anything without it."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import truenorm

__all__ = ["where"]

CPUS = Path("/proc/cpuinfo")


def where() -> dict[str, str]:
    """Return processor, cores, load, versions and date."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu_model(),
        "cores": _cores(),
        **_load(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        **_versions("numpy", "numba"),
        "truenorm": truenorm.__version__,
    }


def _cpu_model() -> str:
    """Return the name that Linux gives the processor, elsewhere what Python knows of it."""
    try:
        lines = CPUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> str:
    there = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    return str(there) if usable == there else f"{usable} of {there}"


def _load() -> dict[str, str]:
    """Return how many threads wanted a core in the last minute, where the system tells."""
    try:
        return {"load": f"{os.getloadavg()[0]:.1f} before the run"}
    except (AttributeError, OSError):
        return {}


def _versions(*packages: str) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
