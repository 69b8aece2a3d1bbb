"""Sums along a row, in float64."""
