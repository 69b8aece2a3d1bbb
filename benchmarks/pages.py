"""Pages of results: what a page of docs shows of a file of results, as Markdown.

A fence in a page, ```` ```{results} NAME ````, stands for ``benchmarks.NAME.page`` of the files in
``benchmarks.NAME.FILES``. docs/results.py replaces it when Sphinx reads the page.
"""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.common import read_results

FENCE = re.compile(r"^```\{results\} ([\w.]+)\n```$", re.MULTILINE)


def names_in(text: str) -> list[str]:
    """Return the modules whose results a page shows."""
    return FENCE.findall(text)


def sources(name: str) -> list[Path]:
    """Return the files on which the results of a module depend, the module itself included."""
    module = _module(name)
    return [Path(module.__file__), *module.FILES, *getattr(module, "CASES", ())]


@cache  # the museum judges its kernels, in seconds
def generated(name: str) -> str:
    """Return the results of a module as Markdown."""
    module = _module(name)
    text: str = module.page(*map(read_results, module.FILES))
    return text


def expand(text: str) -> str:
    """Return a page with the results in place of each fence."""
    return FENCE.sub(lambda fence: generated(fence[1]), text)


def _module(name: str) -> Any:
    return import_module(f"benchmarks.{name}")
