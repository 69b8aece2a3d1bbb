"""Replace a kernel in the sessions of ``truenorm audit``, which load this plugin.

The module of the kernel is imported when the tests import it, after the setup of conftest.py.
Its functions are replaced before any other module can import them.
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

from truenorm.pytest_plugin import AUDIT
from truenorm.verify.audit.replacing import (
    SELF,
    AuditTask,
    Observations,
    Replacer,
    parse_kernel_path,
)

__all__ = ["pytest_load_initial_conftests"]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Install the import hook in this process, which may be a worker of pytest-xdist."""
    hook = ImportHook(AuditTask.from_environment(os.environ))
    hook.install()
    early_config.pluginmanager.register(hook, AUDIT)


class ImportHook(MetaPathFinder):
    """Replaces kernels in a module as soon as it is loaded, and records failed tests."""

    def __init__(self, task: AuditTask) -> None:
        self._task, self._observations = task, Observations()
        self._replacer = Replacer(
            task.make_kernel(), self._observations, task.eps, keeps_calls=bool(task.backward)
        )
        self._pending: dict[str, list[str]] = {}
        for path in filter(None, (task.replace, task.backward)):
            module, name = parse_kernel_path(path)
            self._pending.setdefault(module, []).append(name)

    def install(self) -> None:
        """Replace kernels in loaded modules, and wait for the import of the others."""
        for name in [each for each in self._pending if each in sys.modules]:
            self._change(sys.modules[name], self._pending.pop(name))
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the other finders, with a loader that replaces the kernels."""
        del path, target
        names = self._pending.pop(name, None)
        spec = None if names is None else find_spec(name)
        if spec is None or spec.loader is None or names is None:
            return None
        loader, load = spec.loader, spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            # Modules that pytest rewrites share a loader: only this one is changed.
            if module.__name__ != name:
                load(module)
                return
            loader.exec_module = load  # type: ignore[method-assign]
            load(module)
            self._change(module, names)

        loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec

    def _change(self, module: ModuleType, names: Sequence[str]) -> None:
        self._observations.imported = True
        for name in names:
            is_forward = f"{module.__name__}:{name}" == self._task.replace
            self._replace(module, name, self._task.signature if is_forward else "")

    def _replace(self, module: ModuleType, path: str, signature: str) -> None:
        """Replace a function in all modules that have it, or the forward method of a class."""
        owner: Any = module
        *parts, name = path.split(".")
        try:
            for part in parts:
                owner = getattr(owner, part)
            original = getattr(owner, name)
        except AttributeError:
            self._observations.error = f"{module.__name__} has no {path}"
            return
        if isinstance(original, type):
            signature = signature and f"{SELF}, {signature}"
            original.forward = self._replacer.wrap(original.forward, signature)  # type: ignore[attr-defined]
            return
        new = self._replacer.wrap(original, signature)
        setattr(owner, name, new)
        for other in list(sys.modules.values()):
            attributes = dict(getattr(other, "__dict__", {}))  # some entries are no modules
            for alias in [key for key, value in attributes.items() if value is original]:
                setattr(other, alias, new)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the first test that fails."""
        self._record(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that fails before its tests run."""
        self._record(report)

    def _record(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and not self._observations.failed:
            self._observations.failed = report.nodeid

    def pytest_unconfigure(self) -> None:
        """Write the observations of this process."""
        self._observations.write(self._task.file)
