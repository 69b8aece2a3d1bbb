"""Load the C core, or return the reason for its absence."""

from functools import cache
from importlib import import_module
from types import ModuleType

CORE = f"{__package__}._core"
NOTE = "not_built.txt"
"""Written beside this file by setup.py if it builds no extension."""


def is_built() -> bool:
    """Return True if the C core can be imported."""
    return core_or_none() is not None


def core_or_none() -> ModuleType | None:
    """Return the extension module, or None if it cannot be imported."""
    return _load()[0]


def reason_for_absence() -> str:
    """Return why the C core cannot be imported, in one line.

    Returns
    -------
    str
        The reason that the build recorded, or the error of the import; empty if the core can be
        imported.
    """
    return _load()[1]


@cache
def _load() -> tuple[ModuleType | None, str]:
    try:
        return import_module(CORE), ""
    except ModuleNotFoundError:
        return None, _recorded_reason()
    except ImportError as error:
        return None, f"the C core cannot be loaded: {_first_line(str(error))}"


def _recorded_reason() -> str:
    from importlib.resources import files  # slow to import

    note = files(__package__) / NOTE
    if note.is_file():
        return f"the C core was not built: {_first_line(note.read_text(encoding='utf-8'))}"
    return "the C core was not built; in a checkout, run: pip install -e ."


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
