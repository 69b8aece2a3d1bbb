"""What the package says of itself, and what importing it does."""

import subprocess
import sys
from pathlib import Path

import truenorm

ROOT = Path(__file__).parents[2]


def run_python(code: str) -> str:
    return subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True)


def test_public_names_exist_and_are_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    for name in truenorm.__all__:
        assert hasattr(truenorm, name)
        assert name == "__version__" or f"truenorm.{name}" in reference
    assert truenorm.__all__ == sorted(truenorm.__all__)


def test_no_public_function_has_the_name_of_a_module() -> None:
    beside = {path.stem for path in (ROOT / "src" / "truenorm").iterdir()}
    functions = {name for name in truenorm.__all__ if callable(getattr(truenorm, name))}
    assert not functions & beside


def test_import_loads_nothing_heavy_and_starts_no_thread() -> None:
    heavy = [
        "flint",
        "ml_dtypes",
        "matplotlib",
        "typer",
        "rich",
        "torch",
        "mpi4py",
        "logging.config",
    ]
    loaded = run_python(
        "import sys, threading, truenorm;"
        f"print([name for name in {heavy} if name in sys.modules], threading.active_count())"
    )
    assert loaded.strip() == "[] 1"
