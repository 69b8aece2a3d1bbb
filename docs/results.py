"""Sphinx extension: results of benchmarks, made Markdown when the pages are built.

A fence ```` ```{results} NAME ```` is replaced before MyST parses the page, so that headings and
links of the results are like those that are written by hand.
"""

from typing import Any

from sphinx.application import Sphinx

from benchmarks import pages


def put_results(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace the fences of a page; a change to their files rebuilds it."""
    for name in pages.names_in(source[0]):
        for file in pages.sources(name):
            app.env.note_dependency(str(file), docname=docname)
    source[0] = pages.expand(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx."""
    app.connect("source-read", put_results)
    app.add_css_file("results.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
