"""The notebook of the worked row is made of its page, and its cells print the stored outputs."""

import contextlib
import io
import json
from typing import Any

from benchmarks.notebook import NOTEBOOK, PAGE, notebook

STORED: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def printed(cell: dict[str, Any], names: dict[str, Any]) -> str:
    """Run a cell of code, and return its output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec("".join(cell["source"]), names)
    return output.getvalue()


def stored(cell: dict[str, Any]) -> str:
    return "".join("".join(output["text"]) for output in cell["outputs"])


def test_cells_print_the_stored_outputs() -> None:
    names: dict[str, Any] = {}
    cells = [cell for cell in STORED["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        assert printed(cell, names) == stored(cell), cell["source"]
    assert sum(map(bool, map(stored, cells))) >= 10


def test_the_notebook_is_made_of_the_page() -> None:
    """If this fails: `python -m benchmarks.notebook`."""
    assert notebook(PAGE.read_text(encoding="utf-8")) == STORED
