"""What every bound is made of."""

__all__ = ["SLACK", "U"]

U = 2.0**-53
"""The unit roundoff of float64."""

SLACK = 1.01
"""On every bound: for products of errors, and for the rounding of the bound itself."""
