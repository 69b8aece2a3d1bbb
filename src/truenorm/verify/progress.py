"""How long work says how far it is."""

from collections.abc import Callable

__all__ = ["Progress"]

Progress = Callable[[int, int, str], None]
"""Is told how many steps are done, of how many, and what comes next."""
