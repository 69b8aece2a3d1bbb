"""Backends whose rounding tests are too weak: with a share of their bounds.

The reference gets them while it runs; the fused backend in a copy of its sources, since what is
compiled cannot be patched.
"""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from programs import SOURCES
from truenorm.kernels.reference import columns, narrow, pairs

__all__ = ["QUICKLY_COMPILED", "copied", "divide_bounds", "divide_bounds_of_copy"]

QUICKLY_COMPILED = {"NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}


def divide_bounds(monkeypatch: pytest.MonkeyPatch, share: int) -> None:
    """Divide the bounds of the reference, until the patch is undone."""
    rounded = columns.BoundedSum.rounded

    def smaller_sum(self: columns.BoundedSum, target: Any) -> Any:
        self._bound = self._bound / share
        return rounded(self, target)

    def smaller(test: Any) -> Any:
        return lambda z, bound, *rest: test(z, bound / share, *rest)

    for level in (narrow, pairs):
        monkeypatch.setattr(level, "rounding_test", smaller(level.rounding_test))
    monkeypatch.setattr(columns.BoundedSum, "rounded", smaller_sum)


def copied(folder: Path) -> Path:
    """Copy the package; return what to put on the path."""
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCES / "truenorm", folder / "src" / "truenorm", ignore=unwanted)
    return folder / "src"


def divide_bounds_of_copy(copy: Path, share: int) -> None:
    """Divide them in the sources of a copy: every test adds its bound to one end of a bracket."""
    changed = []
    folder = copy / "truenorm" / "kernels" / "fused" / "compiled"
    for path in folder.rglob("*.py"):
        original = path.read_text(encoding="utf-8")
        text = re.sub(r"([-+]) bound\b", rf"\1 bound / {share}", original)
        path.write_text(text, encoding="utf-8")
        changed += [path.relative_to(folder).as_posix()] if text != original else []
    assert {"narrow/forward.py", "narrow/dx.py", "pairs/rounding.py"} <= set(changed)
