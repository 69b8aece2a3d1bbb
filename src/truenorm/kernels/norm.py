"""What is done with each row, in words that do not depend on a backend."""

from dataclasses import dataclass

__all__ = ["LAYER_NORM", "Norm"]


@dataclass(frozen=True)
class Norm:
    """Describe a normalization of rows.

    Attributes
    ----------
    centred : bool
        Whether the mean of the row is subtracted.
    """

    centred: bool


LAYER_NORM = Norm(centred=True)
