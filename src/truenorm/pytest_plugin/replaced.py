"""A kernel is replaced in a session of ``truenorm audit``, which alone asks for this module.

The module of the kernel is imported when the tests do so, and not before: what a conftest.py sets
is set by then. What it defines is replaced before anybody can have a reference to it.
"""

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

from truenorm.verify.audit.replaced import Replacing
from truenorm.verify.audit.seen import Seen
from truenorm.verify.audit.task import Task, place_of

__all__ = ["pytest_collectreport", "pytest_runtest_logreport", "pytest_unconfigure"]

TASK, SEEN = Task.found(os.environ), Seen()
REPLACING = Replacing(TASK.planted(), SEEN, TASK.eps)


class Finder(MetaPathFinder):
    """Finds the modules of kernels as others do, and sees to it that they are changed at once."""

    def __init__(self, places: Sequence[str]) -> None:
        self.left: dict[str, list[str]] = {}
        for place in filter(None, places):
            module, name = place_of(place)
            self.left.setdefault(module, []).append(name)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the specification that others find, its loader with one step more."""
        del path, target
        names = self.left.pop(name, None)
        spec = None if names is None else find_spec(name)
        if spec is None or spec.loader is None or names is None:
            return None
        load = spec.loader.exec_module

        def load_and_replace(module: ModuleType) -> None:
            load(module)
            self.replace(module, names)

        spec.loader.exec_module = load_and_replace  # type: ignore[method-assign]
        return spec

    def begin(self) -> None:
        """Change what is imported already, and wait for the rest."""
        for name in [each for each in self.left if each in sys.modules]:
            self.replace(sys.modules[name], self.left.pop(name))
        sys.meta_path.insert(0, self)

    def replace(self, module: ModuleType, names: Sequence[str]) -> None:
        """Put the kernel in the place of what a module has by these names."""
        SEEN.imported = True
        for name in names:
            _replace(module, name)


def _replace(module: ModuleType, path: str) -> None:
    """Replace a function wherever a module holds it, or the forward pass of a class."""
    owner: Any = module
    *parts, name = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    if isinstance(original, type):
        original.forward = REPLACING.instead_of(original.forward)  # type: ignore[attr-defined]
        return
    is_forward = f"{module.__name__}:{path}" == TASK.replace
    new = REPLACING.instead_of(original, TASK.signature if is_forward else "")
    setattr(owner, name, new)
    for other in list(sys.modules.values()):
        held = dict(getattr(other, "__dict__", {}))  # some are no modules
        for known in [key for key, value in held.items() if value is original]:
            setattr(other, known, new)


Finder([TASK.replace, TASK.backward]).begin()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the first test that fails."""
    if report.failed and not SEEN.failed:
        SEEN.failed = report.nodeid


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that fails before it has tests."""
    if report.failed and not SEEN.failed:
        SEEN.failed = report.nodeid


def pytest_unconfigure() -> None:
    """Write what this process saw."""
    SEEN.write(TASK.file)
