"""Tables and text on a terminal. This module needs Rich."""

from collections.abc import Sequence
from typing import Literal

from rich.table import Table
from rich.text import Text

from truenorm.tools.text import one_line

JUSTIFY: dict[str, Literal["left", "right"]] = {"l": "left", "r": "right", "w": "left"}


def rich_table(columns: str, head: Sequence[str | Text] = ()) -> Table:
    """Return an empty table without lines.

    Parameters
    ----------
    columns : str
        One letter a column: "l" is left-aligned, "r" right-aligned, "w" left-aligned and wrapped
        where the terminal is too narrow. The other columns are never wrapped.
    head : sequence of str or Text, optional
        The names of the columns.

    Examples
    --------
    >>> from rich import print
    >>> table = rich_table("lr", ["", "ms"])
    >>> table.add_row("copy", "1.5")
    >>> table.add_row("triad", "12.0")
    >>> print(table)
             ms
    copy    1.5
    triad  12.0
    """
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_header=bool(head),
        header_style="dim",
    )
    for position, kind in enumerate(columns):
        table.add_column(
            head[position] if head else "",
            justify=JUSTIFY[kind],
            no_wrap=kind != "w",
            overflow="fold" if kind == "w" else "ellipsis",
        )
    return table


def plain_text(text: str, style: str = "") -> Text:
    """Return one line of text in which neither markup nor control characters have an effect."""
    return Text(one_line(text), style=style, overflow="fold")
