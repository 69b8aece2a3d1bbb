"""A screen that keeps what is printed on it."""

import io
from collections.abc import Callable
from typing import Any

from rich.console import Console


def printed(
    show: Callable[..., None], *arguments: Any, width: int = 80, colours: bool = False
) -> str:
    """Return what a function prints that takes a keyword argument `console`."""
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=colours,
        color_system="truecolor" if colours else None,
        highlight=False,
    )
    show(*arguments, console=console)
    return file.getvalue()
