"""What a kernel does wrong, as data: a stable id for code and tests, and words for people."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cause:
    """A likely cause of a wrong result; two causes with the same id are equal.

    No code may depend on the words: they change whenever a better wording is found.

    Attributes
    ----------
    id : str
        Lower-case words with hyphens, then in parentheses the numbers, types or steps by which
        causes of one kind differ: ``eps-rounded(float16)``.
    words : str
        A sentence without a full stop. A leading "it" is the result that is wrong.
    """

    id: str
    words: str = field(compare=False)

    def of(self, *values: object, **names: object) -> "Cause":
        """Return the cause with values in place of the braces of its id and of its words.

        Examples
        --------
        >>> Cause("no-last-of-every(row, {0})", "the last of every {0} rows is left out").of(4)
        Cause(id='no-last-of-every(row, 4)', words='the last of every 4 rows is left out')
        """
        return Cause(self.id.format(*values, **names), self.words.format(*values, **names))

    def with_words(self, words: str) -> "Cause":
        """Return the same cause in other words, such as those for one output."""
        return Cause(self.id, words)

    def differs_in_numbers(self, other: "Cause") -> bool:
        """Return True if the ids differ in nothing but numbers."""
        mine, theirs = (re.sub(r"\d+", "", each.id) for each in (self, other))
        return mine == theirs


EARLIER_CALLS = "earlier-calls:"
"""The beginning of the ids of causes that something of earlier calls is used."""


def depends_on_calls(causes: Collection[Cause]) -> bool:
    """Return True if one of the causes is that something of earlier calls is used."""
    return any(each.id.startswith(EARLIER_CALLS) for each in causes)
