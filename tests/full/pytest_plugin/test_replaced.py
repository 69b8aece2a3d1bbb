"""The import hook of an audit: kernels are replaced in the modules that tests import."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pytest

from truenorm.pytest_plugin.replaced import ImportHook
from truenorm.verify.audit.replacing import AuditTask, Observations

KERNEL = """
import test_of_a_helper
import numpy as np

def rms_norm(x, weight, eps=1e-6):
    return weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps))
"""
MODULE = """
class Norm:
    def __init__(self, weight):
        self.weight, self.eps = weight, 1e-6

    def named_parameters(self):
        return [("weight", self.weight)]

    def forward(self, tokens):
        return tokens
"""
X = np.random.default_rng(0).normal(size=(4, 60)).astype(np.float32)
WEIGHT = np.ones(60, np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of modules that are unloaded after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    return tmp_path


def imported(task: AuditTask, *names: str) -> list[ModuleType]:
    """Import modules in a session of an audit, which writes its observations."""
    with patch.dict(sys.modules):
        hook = ImportHook(task)
        hook.install()
        modules = [import_module(name) for name in names]
    hook.pytest_unconfigure()
    return modules


def test_modules_that_pytest_rewrites(folder: Path) -> None:
    """They share one loader: the other modules are loaded unchanged."""
    (folder / "test_of_a_kernel.py").write_text(KERNEL)
    for name in ("test_of_a_helper", "test_of_what_follows"):
        (folder / f"{name}.py").write_text("def rms_norm(x): return x")
    spec = find_spec("test_of_a_kernel")
    assert spec is not None
    assert spec.loader is find_spec("test_of_a_helper").loader  # type: ignore[union-attr]
    task = AuditTask("test_of_a_kernel:rms_norm", "rms_norm", kernel="zeros", folder=str(folder))
    kernel, helper, other = imported(
        task, "test_of_a_kernel", "test_of_a_helper", "test_of_what_follows"
    )
    assert not kernel.rms_norm(X, WEIGHT).any()
    assert helper.rms_norm(X) is other.rms_norm(X) is X


def test_unknown_name(folder: Path) -> None:
    (folder / "mistyped.py").write_text("def rms_norm(x): return x")
    imported(AuditTask("mistyped:rmsnorm", "rms_norm", folder=str(folder)), "mistyped")
    assert Observations.read(folder).error == "mistyped has no rmsnorm"


def test_signature_of_a_class(folder: Path) -> None:
    (folder / "of_modules.py").write_text(MODULE)
    task = AuditTask("of_modules:Norm", "rms_norm", signature="x", folder=str(folder))
    (module,) = imported(task, "of_modules")
    expected = X / np.sqrt((X * X).mean(-1, keepdims=True) + np.float32(1e-6))
    np.testing.assert_allclose(module.Norm(WEIGHT).forward(X), expected, rtol=1e-5)
