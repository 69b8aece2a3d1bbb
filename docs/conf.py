"""Sphinx: the pages are MyST Markdown, readable on a code host as they are."""

import os
import re
import sys
from importlib.resources import files
from pathlib import Path

from sphinx.application import Sphinx

import truenorm

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # for mathml and results, and for benchmarks

project = "truenorm"
author = "the truenorm developers"
copyright = "2026, the truenorm developers"
version = release = truenorm.__version__

extensions = [
    *("mathml", "results", "myst_parser", "numpydoc"),
    *("sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_codeautolink"),
]
exclude_patterns = ["_build"]
nitpicky = True
# Names of the type system that have no page of their own.
nitpick_ignore_regex = [("py:.*", r"(numpy|np|collections|optional|sequence|FloatArray).*")]

# Blocks of one page share their imports. A block that is not Python alone gets no links.
codeautolink_concat_default = True
suppress_warnings = ["codeautolink.match_block", "codeautolink.parse_block"]

myst_enable_extensions = ["amsmath", "attrs_inline", "dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False
# Every public docstring has its sections in order; GL08 is "no docstring at all".
numpydoc_validation_checks = {"GL01", "GL06", "GL07", "GL08", "PR01", "PR02", "RT01", "EX01"}
# What a function returns documents its attributes instead of parameters and examples.
numpydoc_validation_exclude = {
    r"Saved",
    r"Gradients$",
    r"Check",
    r"Verdict",
    r"TaylorTest",
    r"Bound",
    r"Score$",
    r"nbytes",
}

html_theme = "furo"
if repository := os.environ.get("TRUENORM_REPOSITORY"):
    html_theme_options = {
        "source_repository": repository,
        "source_branch": "HEAD",
        "source_directory": "docs/",
    }
html_math_renderer = "mathml"
# The font of the formulas; a reader's machine need not have one for mathematics.
html_static_path = ["_static", str(files("ziamath.fonts") / "STIXTwoMath-Regular.ttf")]
html_title = "truenorm"


def remove_empty_lines(_: Sphinx, _docname: str, source: list[str]) -> None:
    """Remove the empty line at the end of a block, which doctest needs."""
    source[0] = re.sub(r"\n\n```$", "\n```", source[0], flags=re.MULTILINE)


def setup(app: Sphinx) -> None:
    app.connect("source-read", remove_empty_lines)
