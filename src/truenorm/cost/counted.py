"""What was counted of a call: its passes, and the time that follows."""

import math
from dataclasses import dataclass
from typing import Literal

from truenorm.cost.counting import Step
from truenorm.cost.program import Keep

__all__ = ["Cost", "Form", "PassCost"]

Form = Literal["textbook", "blocked", "fused"]


class _Counted:
    """What follows from steps, of one pass or of both."""

    steps: tuple[Step, ...]

    @property
    def flops(self) -> int:
        """Floating-point operations."""
        return sum(step.flops for step in self.steps)

    @property
    def bytes_read(self) -> int:
        """Bytes read from memory."""
        return sum(step.bytes_read for step in self.steps)

    @property
    def bytes_written(self) -> int:
        """Bytes written to memory."""
        return sum(step.bytes_written for step in self.steps)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """FLOPs for each byte that is moved."""
        return self.flops / self.bytes_moved


@dataclass(frozen=True)
class PassCost(_Counted):
    """What one pass costs.

    Attributes
    ----------
    steps : tuple of Step
        In the order in which they are done.
    one_sweep : bool
        Whether all steps are done while the data are on the chip, so that only the slower of
        memory and arithmetic takes time. If not, that holds for each step by itself.
    """

    steps: tuple[Step, ...]
    one_sweep: bool

    @property
    def peak(self) -> int:
        """The most bytes that exist at once beyond the arguments of the pass, results included."""
        return max(step.alive for step in self.steps)

    def seconds(self, bandwidth: float, flops_rate: float = math.inf) -> float:
        """Return the time by the roofline model, for bytes and FLOPs per second."""
        sweeps = [(self.bytes_moved, self.flops)]
        if not self.one_sweep:
            sweeps = [(step.bytes_read + step.bytes_written, step.flops) for step in self.steps]
        return sum(max(moved / bandwidth, flops / flops_rate) for moved, flops in sweeps)


@dataclass(frozen=True)
class Cost(_Counted):
    """What forward and backward cost together.

    Attributes
    ----------
    shape : tuple of int
        Of x; the last axis is the one that is normalized.
    dtype, form, keep : str
        As `layer_norm_cost`, or `rms_norm_cost`, was asked.
    forward, backward : PassCost
        Each pass by itself.
    kept : int
        Bytes that forward allocates for backward.
    referenced : int
        Bytes of the caller's own arrays, gamma and perhaps x, that are kept alive for backward.
    """

    shape: tuple[int, ...]
    dtype: str
    form: Form
    keep: Keep
    forward: PassCost
    backward: PassCost
    kept: int
    referenced: int

    @property
    def steps(self) -> tuple[Step, ...]:  # type: ignore[override]
        """The steps of both passes."""
        return self.forward.steps + self.backward.steps

    @property
    def passes(self) -> dict[str, PassCost]:
        """Both passes by name."""
        return {"forward": self.forward, "backward": self.backward}

    @property
    def peak(self) -> int:
        """The most bytes that exist at once in either pass beyond the caller's arrays."""
        return max(self.forward.peak, self.kept + self.backward.peak)

    def seconds(self, bandwidth: float, flops_rate: float = math.inf) -> float:
        """Return the time of both passes by the roofline model.

        Parameters
        ----------
        bandwidth : float
            Bytes that the machine moves in a second; `measure_bandwidth` finds out.
        flops_rate : float
            Floating-point operations in a second. Without it, memory alone is counted.

        Returns
        -------
        float
            The time, for arrays that no cache holds.

        Examples
        --------
        >>> from truenorm.cost import layer_norm_cost
        >>> print(f"{layer_norm_cost((8, 1024, 4096)).seconds(bandwidth=20e9):.3f}")
        0.035
        """
        return sum(each.seconds(bandwidth, flops_rate) for each in (self.forward, self.backward))
