"""What is to be done with each row, in words that do not depend on a backend."""

from dataclasses import dataclass

__all__ = ["LAYER_NORM", "RowOperation"]


@dataclass(frozen=True)
class RowOperation:
    """Describe a normalization of rows.

    Attributes
    ----------
    centred : bool
        Whether the mean of the row is subtracted.
    residual : bool
        Whether a second array is added to x first.
    """

    centred: bool
    residual: bool


LAYER_NORM = RowOperation(centred=True, residual=False)
