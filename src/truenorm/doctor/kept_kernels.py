"""Where compiled kernels are kept, and whether they can be."""

from pathlib import Path
from types import ModuleType

from truenorm import user_cache
from truenorm.doctor.report import Line, Section, without_home

__all__ = ["kept_kernels"]

REMEDY = (
    "every process compiles the kernels again, which takes about half a minute for each type: set "
    "TRUENORM_CACHE_DIR to the absolute path of a folder that is yours and that nobody else can "
    "write to"
)
PROBE = "doctor-was-here"


def kept_kernels(usable: bool) -> Section:
    """Return the folder of compiled kernels, whether it can be written to, and its size."""
    return Section("Compiled kernels", tuple(_lines()) if usable else (_none(),))


def _none() -> Line:
    return Line("kept in", "no folder: there is no backend that compiles")


def _lines() -> list[Line]:
    try:
        from truenorm.kernels.fused import compiling
    except Exception as broken:  # whatever it is, the self-test says what to do
        return [Line("kept in", f"unknown: {without_home(f'{type(broken).__name__}: {broken}')}")]
    place = _writable_place(compiling)
    if place is None:
        return [Line("kept in", "no folder can be written to", REMEDY)]
    files = [path for path in place.rglob("*") if path.is_file()]
    current = [path for path in files if path.parent.name == compiling.IMPORTED]
    return [
        Line("kept in", f"{without_home(str(place))} (writable)"),
        Line("for this version", _amount(current)),
        Line("for all versions", _amount(files)),
    ]


def _writable_place(compiling: ModuleType) -> Path | None:
    """Return the folder that the kernels themselves would write to: it is they who try."""
    try:
        probe = user_cache.write(compiling._folder(), PROBE, b"")
    except (OSError, RuntimeError):  # a RuntimeError is a user without a home
        return None
    probe.unlink(missing_ok=True)
    return probe.parents[1]


def _amount(files: list[Path]) -> str:
    size = sum(path.stat().st_size for path in files)
    return f"{len(files)} functions, {size / 1e6:.1f} MB"
