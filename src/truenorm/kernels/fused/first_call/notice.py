"""What is said before a process compiles its first function."""

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from truenorm import user_cache

__all__ = ["SECONDS", "tell"]

logger = logging.getLogger("truenorm")

SECONDS = 20
"""What the first calls of one type take, forward and backward in correct mode: measured as
docs/engine.md says, section "The first call"."""
TYPES = {"int16": "float16", "uint16": "bfloat16", "float32": "float32", "float64": "float64"}
"""The data by how kernels hold them, the narrowest first: beside it there may be float64."""


def tell(signature: Any, folder: Callable[[], str]) -> None:
    """Say what is going to be compiled: to who listens, and on a terminal to who waits.

    `folder` names the folder where it will be kept, or raises OSError.
    """
    is_watched = os.environ.get("TRUENORM_QUIET", "") in {"", "0"} and sys.stderr.isatty()
    if not (is_watched or logger.isEnabledFor(logging.INFO)):
        return
    held = {str(each.dtype) for each in signature if hasattr(each, "dtype")}
    kind = next((f" for {name}" for code, name in TYPES.items() if code in held), "")
    once, then = "once", 'Run "truenorm warmup" to do it ahead'
    try:
        user_cache.place_of(folder())
    except (OSError, RuntimeError):
        once, then = "as every process will", '"truenorm doctor" says why nothing can be kept'
    text = f"compiling kernels{kind}, {once}; about {SECONDS} s. {then}"
    logger.info("truenorm: %s", text)
    if is_watched:
        sys.stderr.write(f"truenorm: {text}; TRUENORM_QUIET=1 silences this.\n")
        sys.stderr.flush()
