"""What is done with each row, in words that do not depend on a backend."""

from typing import NamedTuple

__all__ = ["LAYER_NORM", "RMS_NORM", "Norm"]


class Norm(NamedTuple):
    """Describe a normalization of rows.

    It is part of the key under which settings are cached, and a tuple is hashed without Python.

    Attributes
    ----------
    centred : bool
        Whether the mean of the row is subtracted.
    """

    centred: bool

    @property
    def name(self) -> str:
        """What its public functions begin with."""
        return "layer_norm" if self.centred else "rms_norm"

    @property
    def numbers_kept(self) -> int:
        """What forward keeps of a row: the mean as a pair, and a variance; or a mean square."""
        return 3 if self.centred else 1


LAYER_NORM = Norm(centred=True)
RMS_NORM = Norm(centred=False)
