"""Tables on a terminal, by Rich: who imports this needs it."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text


def number_table(
    head: Sequence[str | Text], *, words: int = 1, gap: int = 2, widths: Sequence[int] = ()
) -> Table:
    """Return a table without lines: the first columns are for words, the others for numbers.

    Parameters
    ----------
    head : sequence of str or Text
        The names of the columns.
    words : int
        How many columns are to the left; the others are to the right.
    gap : int
        Spaces between columns.
    widths : sequence of int, optional
        What each column has at least.
    """
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for place, name in enumerate(head):
        least = widths[place] if widths else None
        table.add_column(
            name, justify="left" if place < words else "right", no_wrap=True, min_width=least
        )
    return table
