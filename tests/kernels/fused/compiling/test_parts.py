"""Functions that kernels call, and Python does not."""

from pathlib import Path
from typing import Any

import pytest

numba = pytest.importorskip("numba")

from truenorm.kernels.fused.compiling import compiled, kernel  # noqa: E402


@compiled
def _halved(x: Any) -> Any:
    return x / 2


@kernel
def _quartered(x: Any) -> Any:
    return _halved(_halved(x))


halved: Any = _halved
quartered: Any = _quartered


def test_python_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would crash, whether a kernel was there before or not."""
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path))  # one that was kept has its parts
    for _ in range(2):
        with pytest.raises(TypeError, match=r"halved is a part of kernels"):
            halved(2.0)
        assert quartered(2.0) == 0.5
    assert halved.signatures == [(numba.float64,)]


def test_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path))
    assert kernel(quartered.py_func)(3) == 0.75
    ((file,),) = (folder.iterdir() for folder in tmp_path.iterdir())
    assert file.name.startswith("_quartered-")
