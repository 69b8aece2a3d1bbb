"""The four floating-point types, as what rounding needs to know of them."""

from dataclasses import dataclass

__all__ = ["BFLOAT16", "FLOAT16", "FLOAT32", "FLOAT64", "FloatFormat"]


@dataclass(frozen=True, eq=False)  # each is itself alone: no time is spent on comparing
class FloatFormat:
    """A binary floating-point type. Its finite numbers are multiples of 2**quantum.

    Attributes
    ----------
    name : str
        The name of its NumPy dtype.
    precision : int
        Bits of a normal number, the leading one included.
    quantum : int
        Exponent of the smallest positive number.
    limit : int
        What rounds to 2**limit or more is infinite.
    """

    name: str
    precision: int
    quantum: int
    limit: int


FLOAT16 = FloatFormat("float16", 11, -24, 16)
BFLOAT16 = FloatFormat("bfloat16", 8, -133, 128)
FLOAT32 = FloatFormat("float32", 24, -149, 128)
FLOAT64 = FloatFormat("float64", 53, -1074, 1024)
