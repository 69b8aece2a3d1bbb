"""What is installed."""

import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import truenorm
from truenorm.doctor.report import Line, Section

__all__ = ["versions"]

PACKAGES = {
    "numpy": ("numpy", ""),
    "numba": ("numba", "compiled kernels: pip install 'truenorm[fast]'"),
    "llvmlite": ("llvmlite", "compiled kernels: pip install 'truenorm[fast]'"),
    "ml_dtypes": ("ml_dtypes", "bfloat16: pip install 'truenorm[verify]'"),
    "python-flint": ("flint", "proofs of gradients: pip install 'truenorm[verify]'"),
    "typer": ("typer", "this command: pip install 'truenorm[verify]'"),
    "rich": ("rich", "this command: pip install 'truenorm[verify]'"),
    "matplotlib": ("matplotlib", "--png and --html: pip install 'truenorm[verify]'"),
    "jinja2": ("jinja2", "--html: pip install 'truenorm[verify]'"),
}
"""What a package is imported as, and what it is for. Only NumPy must be there."""


def versions() -> Section:
    """Return the versions of everything that truenorm uses or can use."""
    lines = [
        Line("truenorm", truenorm.__version__),
        Line("python", f"{platform.python_implementation()} {platform.python_version()}"),
        Line("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        *(Line(name, _version(name, *how)) for name, how in PACKAGES.items()),
    ]
    return Section("Versions", tuple(lines))


def _version(name: str, module: str, purpose: str) -> str:
    if find_spec(module) is None:
        return f"not installed; it is for {purpose}"
    try:
        return version(name)
    except PackageNotFoundError:
        return "installed, of unknown version"
