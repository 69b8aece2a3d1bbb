"""A kernel is replaced in a session of ``truenorm audit``, which alone asks for this module.

The module of the kernel is imported when the tests do so, and not before: what a conftest.py sets
is set by then. What it defines is replaced before anybody else can have it.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

from truenorm.verify.audit.replacing import SELF, Replacing, Seen, Task, place_of

__all__ = ["pytest_load_initial_conftests"]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Wait for the module of the kernel, in this process or in a worker of pytest-xdist."""
    replaced = Replaced(Task.found(os.environ))
    replaced.begin()
    early_config.pluginmanager.register(replaced, "truenorm-audit")


class Replaced(MetaPathFinder):
    """Finds the modules of kernels as others do, and changes them as soon as they are there."""

    def __init__(self, task: Task) -> None:
        self._task, self._seen = task, Seen()
        self._replacing = Replacing(
            task.planted(), self._seen, task.eps, remembers=bool(task.backward)
        )
        self._left: dict[str, list[str]] = {}
        for place in filter(None, (task.replace, task.backward)):
            module, name = place_of(place)
            self._left.setdefault(module, []).append(name)

    def begin(self) -> None:
        """Change what is imported already, and wait for the rest."""
        for name in [each for each in self._left if each in sys.modules]:
            self._change(sys.modules[name], self._left.pop(name))
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what others find, with one step more for its loader."""
        del path, target
        names = self._left.pop(name, None)
        spec = None if names is None else find_spec(name)
        if spec is None or spec.loader is None or names is None:
            return None
        loader, load = spec.loader, spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            # Whatever pytest rewrites has the same loader: what is imported next is not ours.
            if module.__name__ != name:
                load(module)
                return
            loader.exec_module = load  # type: ignore[method-assign]
            load(module)
            self._change(module, names)

        loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec

    def _change(self, module: ModuleType, names: Sequence[str]) -> None:
        self._seen.imported = True
        for name in names:
            is_forward = f"{module.__name__}:{name}" == self._task.replace
            self._replace(module, name, self._task.signature if is_forward else "")

    def _replace(self, module: ModuleType, path: str, signature: str) -> None:
        """Replace a function wherever a module holds it, or the forward pass of a class."""
        owner: Any = module
        *parts, name = path.split(".")
        try:
            for part in parts:
                owner = getattr(owner, part)
            original = getattr(owner, name)
        except AttributeError:
            self._seen.raised = f"{module.__name__} has no {path}"
            return
        if isinstance(original, type):
            signature = signature and f"{SELF}, {signature}"
            original.forward = self._replacing.instead_of(original.forward, signature)  # type: ignore[attr-defined]
            return
        new = self._replacing.instead_of(original, signature)
        setattr(owner, name, new)
        for other in list(sys.modules.values()):
            held = dict(getattr(other, "__dict__", {}))  # some are no modules
            for known in [key for key, value in held.items() if value is original]:
                setattr(other, known, new)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first test that fails."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that fails before it has tests."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and not self._seen.failed:
            self._seen.failed = report.nodeid

    def pytest_unconfigure(self) -> None:
        """Write what this process saw."""
        self._seen.write(self._task.file)
