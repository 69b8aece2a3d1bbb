"""What is done with each row, in words that do not depend on a backend."""

from dataclasses import dataclass

__all__ = ["LAYER_NORM", "RMS_NORM", "Norm"]


@dataclass(frozen=True)
class Norm:
    """Describe a normalization of rows.

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
