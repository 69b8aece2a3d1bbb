"""Sphinx extension: formulas as MathML, made when the pages are built.

A browser shows it without any script, where Sphinx's own choice (MathJax from a server) shows TeX
as it was written when there is no network.
"""

import re
from html import escape
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

NUMBER = re.compile(r"\\tag\{(.*?)\}")

# The converter passes on what it does not know: a command, or the & of a table.
NOT_UNDERSTOOD = re.compile(r"\\|&(?!#)")

# It leaves spacing to browsers, which put space around these as between two numbers.
BAR_OR_SLASH = re.compile(r"<mo( [^>]*)?>(?=&#x0007C;|&#x0002F;)")
MINUS_AFTER_EQUALS = "<mo>&#x0003D;</mo><mo>&#x02212;</mo>"
MINUS_AS_A_SIGN = '<mo>&#x0003D;</mo><mo form="prefix">&#x02212;</mo>'


def mathml_of(tex: str, display: str) -> str:
    """Return a formula as MathML; what is not understood is an error."""
    mathml = convert(tex, display=display)
    if NOT_UNDERSTOOD.search(mathml):
        raise ValueError(f"latex2mathml does not know a command of: {tex}")
    mathml = BAR_OR_SLASH.sub(r'<mo\1 lspace="0" rspace="0">', mathml)
    return mathml.replace(MINUS_AFTER_EQUALS, MINUS_AS_A_SIGN)


def write_inline(page: HTML5Translator, node: nodes.math) -> None:
    """Write a formula into its line."""
    page.body.append(mathml_of(node.astext(), "inline"))
    raise nodes.SkipNode


def write_displayed(page: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, and its number at the right end."""
    tex = node.astext()
    number = NUMBER.search(tex)
    mathml = mathml_of(NUMBER.sub("", tex).strip(), "block")
    label = f'<span class="number">({escape(number[1])})</span>' if number else ""
    page.body.append(f'<div class="formula">{mathml}{label}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx; `html_math_renderer` in conf.py chooses it."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_displayed, None))
    app.add_css_file("mathml.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
